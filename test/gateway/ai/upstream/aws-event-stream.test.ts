// The frames of Amazon Bedrock's streams.
import { describe, expect, test } from 'vitest';
import { readConverseFrames } from '../../../../src/gateway/ai/upstream/aws-event-stream.ts';
import { Problem } from '../../../../src/kernel/problem.ts';
import { event, exception } from '../../../support/provider-bedrock.ts';

const delta = event('contentBlockDelta', { contentBlockIndex: 0, delta: { text: 'x'.repeat(100) } });
const stop = event('messageStop', { stopReason: 'end_turn' });
const usage = event('metadata', { usage: { inputTokens: 1, outputTokens: 1 } });
const wholeStream = Buffer.concat([event('messageStart', { role: 'assistant' }), delta, delta, stop, usage]);

async function* split(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let offset = 0; offset < bytes.length; offset += size) yield bytes.subarray(offset, offset + size);
}

async function read(bytes: Buffer, size = 65_536, maxFrameBytes = 1024 * 1024): Promise<Buffer> {
  const groups = [];
  for await (const group of readConverseFrames(split(bytes, size), { maxFrameBytes }))
    groups.push(...group.map((frame) => frame.bytes));
  return Buffer.concat(groups);
}

const codeOf = (bytes: Buffer, size?: number, limit?: number) =>
  read(bytes, size, limit).then(
    () => 'none',
    (error: unknown) => (error instanceof Problem ? error.code : 'other'),
  );

describe('readConverseFrames', () => {
  test.each([1, 2, 7, 11, 12, 13, 100, 65_536])(
    'keeps every byte of frames that arrive in pieces of %i bytes',
    async (size) => {
      expect(await read(wholeStream, size)).toEqual(wholeStream);
    },
  );

  test('ends at the usage', async () => {
    expect(await read(Buffer.concat([wholeStream, delta]))).toEqual(wholeStream);
  });

  test('accepts a stream without usage', async () => {
    const withoutUsage = wholeStream.subarray(0, wholeStream.length - usage.length);
    expect(await read(withoutUsage)).toEqual(withoutUsage);
  });

  test.each([
    ['before the end of its message', Buffer.concat([delta, delta])],
    ['within a frame', wholeStream.subarray(0, wholeStream.length - 1)],
    ['at once', Buffer.alloc(0)],
  ])('fails a stream that ends %s', async (_moment, bytes) => {
    expect(await codeOf(bytes)).toBe('upstream_truncated');
  });

  test('fails a stream with any changed byte', async () => {
    for (let offset = 0; offset < wholeStream.length; offset += 1) {
      const bytes = Buffer.from(wholeStream);
      bytes[offset] = (bytes[offset] ?? 0) ^ 1;
      expect(await codeOf(bytes), String(offset)).not.toBe('none');
    }
  });

  test('fails a frame above the size limit before the whole frame has arrived', async () => {
    expect(await codeOf(delta.subarray(0, 12), 12, 100)).toBe('upstream_failed');
  });

  test('reports an exception after the frames before it', async () => {
    const bytes = Buffer.concat([delta, exception('throttlingException', 'Too many requests')]);
    const frames: Buffer[] = [];
    const failure = await (async () => {
      for await (const group of readConverseFrames(split(bytes, 65_536), { maxFrameBytes: 1024 }))
        frames.push(...group.map((frame) => frame.bytes));
    })().catch((error: unknown) => error);
    expect(frames).toEqual([delta]);
    expect(failure).toMatchObject({
      code: 'upstream_failed',
      cause: { status: 429, words: 'Too many requests' },
    });
  });

  test('fails an event that is not a JSON object', async () => {
    expect(await codeOf(event('messageStart', []))).toBe('upstream_failed');
  });
});
