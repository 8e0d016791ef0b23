// Lines of one turn of the event loop, framed into one block of bytes for one write. A block stays
// in memory until its lines are known to be on disk, so that they can be written to another file.
import { type Frame, maxFrameBytes, writeFrame } from './line-format.ts';

export interface Block {
  firstSeq: number;
  lastSeq: number;
  bytes: Buffer;
}

// Maximum size of a block, which bounds the time that one write(2) blocks the event loop.
const blockBytes = 256 * 1024;

export interface LineBuffer {
  add(frame: Frame): void;
  /** Returns the blocks that were filled since the last call, in the order of their lines. */
  take(): Block[];
}

export function createLineBuffer(): LineBuffer {
  let target = Buffer.allocUnsafe(blockBytes);
  let length = 0;
  let firstSeq = 0;
  let lastSeq = 0;
  let blocks: Block[] = [];

  function cutBlock(): void {
    if (length > 0) blocks.push({ firstSeq, lastSeq, bytes: Buffer.from(target.subarray(0, length)) });
    length = 0;
  }

  return {
    add(frame) {
      const maxBytes = maxFrameBytes(frame.text.length);
      if (length + maxBytes > target.length) cutBlock();
      if (maxBytes > target.length) target = Buffer.allocUnsafe(maxBytes);
      if (length === 0) firstSeq = frame.seq;
      lastSeq = frame.seq;
      length = writeFrame(target, length, frame);
    },
    take() {
      cutBlock();
      const readyBlocks = blocks;
      blocks = [];
      return readyBlocks;
    },
  };
}
