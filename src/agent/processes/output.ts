// Bounded output of a process: its first half and its last half, since both ends matter more than the middle.

import { StringDecoder } from 'node:string_decoder';

export interface BoundedOutput {
  /** Returns how many bytes were added in total. */
  add(chunk: Buffer): number;
  read(): { text: string; bytes: number; truncated: boolean };
}

export function boundedOutput(maxBytes: number): BoundedOutput {
  const halfBytes = Math.floor(maxBytes / 2);
  const head: Buffer[] = [];
  let headBytes = 0;
  let tail: Buffer[] = [];
  let tailBytes = 0;
  let totalBytes = 0;
  return {
    add(chunk) {
      totalBytes += chunk.length;
      const headPart = chunk.subarray(0, Math.max(0, halfBytes - headBytes));
      if (headPart.length > 0) {
        head.push(Buffer.from(headPart));
        headBytes += headPart.length;
      }
      const tailPart = chunk.subarray(headPart.length);
      if (tailPart.length > 0) {
        tail.push(Buffer.from(tailPart.subarray(-halfBytes)));
        tailBytes += Math.min(tailPart.length, halfBytes);
        // Joining only when the tail has doubled keeps the cost linear for many small chunks.
        if (tailBytes > 2 * halfBytes) {
          tail = [Buffer.from(Buffer.concat(tail).subarray(-halfBytes))];
          tailBytes = halfBytes;
        }
      }
      return totalBytes;
    },
    read() {
      const end = Buffer.concat(tail).subarray(-halfBytes);
      const missingBytes = totalBytes - headBytes - end.length;
      if (missingBytes <= 0)
        return {
          text: replaceControls(Buffer.concat([...head, end]).toString('utf8')),
          bytes: totalBytes,
          truncated: false,
        };
      const [headText, tailText] = [Buffer.concat(head).toString('utf8'), end.toString('utf8')];
      const text = `${replaceControls(headText)}\n[${missingBytes} bytes are left out here]\n${replaceControls(tailText)}`;
      return { text, bytes: totalBytes, truncated: true };
    },
  };
}

// Real escape sequences have shorter parameters; without the limit, the decoder could hold back all
// further output.
const unfinishedSequence = /\u001b(?:\[[0-9;?]{0,32})?$/;

/**
 * Decodes output chunk by chunk. Holds back an incomplete character or escape sequence until its rest comes.
 */
export function outputDecoder(): (chunk: Buffer) => string {
  const decoder = new StringDecoder('utf8');
  let unfinishedText = '';
  return (chunk) => {
    const text = unfinishedText + decoder.write(chunk);
    const cutIndex = unfinishedSequence.exec(text)?.index ?? text.length;
    unfinishedText = text.slice(cutIndex);
    return replaceControls(text.slice(0, cutIndex));
  };
}

// Drops ANSI escape sequences and replaces other control characters: a model cannot use them, and they
// cost tokens.
function replaceControls(text: string): string {
  return text
    .replaceAll(/\u001b\[[0-9;?]*[A-Za-z]/g, '')
    .replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g, '\ufffd');
}
