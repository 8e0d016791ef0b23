import { describe, expect, test } from 'vitest';
import {
  type Frame,
  maxFrameBytes,
  readFrame,
  readFrames,
  writeFrame,
} from '../../../../src/gateway/credits/journal/line-format.ts';

function frameBytes(...frames: Frame[]): Buffer {
  const bytes = frames.map((frame) => {
    const target = Buffer.alloc(maxFrameBytes(frame.text.length));
    return target.subarray(0, writeFrame(target, 0, frame));
  });
  return Buffer.concat(bytes);
}

const first: Frame = { seq: 1, syncedSeq: 0, text: '{"a":"ü€😀"}' };
const second: Frame = { seq: 2 ** 47, syncedSeq: 2 ** 46, text: '' };

describe('frames of the journal', () => {
  test('read back as they were written', () => {
    expect([...readFrames(frameBytes(first, second))]).toMatchObject([first, second]);
  });

  test('end where zeros begin', () => {
    expect([...readFrames(Buffer.concat([frameBytes(first), Buffer.alloc(4096)]))]).toMatchObject([first]);
  });

  test('are refused with any bit changed', () => {
    const bytes = frameBytes(first);
    for (let at = 0; at < bytes.length; at += 1)
      for (let bit = 0; bit < 8; bit += 1) {
        const changedBytes = Buffer.from(bytes);
        changedBytes[at] = (changedBytes[at] ?? 0) ^ (1 << bit);
        expect(readFrame(changedBytes, 0), `byte ${at}, bit ${bit}`).toBeNull();
      }
  });

  test('are refused when cut at any byte', () => {
    const bytes = frameBytes(first);
    for (let length = 0; length < bytes.length; length += 1)
      expect(readFrame(bytes.subarray(0, length), 0), `${length} bytes`).toBeNull();
  });

  test('are read on after a damaged one', () => {
    const third = { ...first, seq: 3 };
    const bytes = frameBytes(first, { ...first, seq: 2 }, third);
    const at = frameBytes(first).length + 20;
    bytes[at] = (bytes[at] ?? 0) ^ 1;
    expect([...readFrames(bytes)]).toMatchObject([first, third]);
  });
});
