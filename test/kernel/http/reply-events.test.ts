// The frames of an event stream that arrives in chunks.
import { expect, test } from 'vitest';
import { readFrames } from '../../../src/kernel/http/reply-events.ts';

async function framesOf(bytes: Buffer, chunkBytes: number): Promise<string[]> {
  async function* chunks() {
    for (let start = 0; start < bytes.length; start += chunkBytes)
      yield bytes.subarray(start, start + chunkBytes);
  }
  const frames = [];
  for await (const frame of readFrames(chunks())) frames.push(frame);
  return frames;
}

test('frames are the same however the bytes arrive', async () => {
  const frames = ['data: ü\n\n', ': comment\r\n\r\n', 'data: 1\ndata: 2\n\n', 'data: cut off'];
  const bytes = Buffer.from(frames.join(''));
  for (let chunkBytes = 1; chunkBytes <= bytes.length; chunkBytes += 1)
    expect(await framesOf(bytes, chunkBytes), `chunks of ${chunkBytes}`).toEqual(frames);
});

test('a large frame in many chunks takes a time proportional to its length', async () => {
  const frame = `data: "${'a'.repeat(4 * 1024 * 1024)}"\n\n`;
  const startedMs = performance.now();
  expect(await framesOf(Buffer.from(frame), 1024)).toEqual([frame]);
  // 60 ms on an idle machine. A search of the whole frame for each chunk would take more than a minute.
  expect(performance.now() - startedMs).toBeLessThan(10_000);
});
