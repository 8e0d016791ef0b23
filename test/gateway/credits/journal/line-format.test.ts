// The frames in which lines are stored: what is read back after bytes were changed or lost.
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

const firstFrame: Frame = { seq: 1, syncedSeq: 0, text: '{"a":"ü€😀"}' };
const secondFrame: Frame = { seq: 2 ** 47, syncedSeq: 2 ** 46, text: '' };

describe('frames of the journal', () => {
  test('read back as they were written', () => {
    expect([...readFrames(frameBytes(firstFrame, secondFrame))]).toMatchObject([firstFrame, secondFrame]);
  });

  test('end before the zeros that fill a segment', () => {
    expect([...readFrames(Buffer.concat([frameBytes(firstFrame), Buffer.alloc(4096)]))]).toMatchObject([
      firstFrame,
    ]);
  });

  test('are refused with any bit changed', () => {
    const bytes = frameBytes(firstFrame);
    for (let index = 0; index < bytes.length; index += 1)
      for (let bit = 0; bit < 8; bit += 1) {
        const changedBytes = Buffer.from(bytes);
        changedBytes[index] = (changedBytes[index] ?? 0) ^ (1 << bit);
        expect(readFrame(changedBytes, 0), `byte ${index}, bit ${bit}`).toBeNull();
      }
  });

  test('are refused when cut at any byte', () => {
    const bytes = frameBytes(firstFrame);
    for (let length = 0; length < bytes.length; length += 1)
      expect(readFrame(bytes.subarray(0, length), 0), `${length} bytes`).toBeNull();
  });

  test('are read after a damaged frame', () => {
    const thirdFrame = { ...firstFrame, seq: 3 };
    const bytes = frameBytes(firstFrame, { ...firstFrame, seq: 2 }, thirdFrame);
    const offset = frameBytes(firstFrame).length + 20;
    bytes[offset] = (bytes[offset] ?? 0) ^ 1;
    expect([...readFrames(bytes)]).toMatchObject([firstFrame, thirdFrame]);
  });
});
