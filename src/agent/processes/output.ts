// Bounded output of a process: its first half and its last half, since both ends matter more than the middle.

import { StringDecoder } from 'node:string_decoder';

export interface BoundedOutput {
  /** Returns how many bytes were added so far. */
  add(chunk: Buffer): number;
  read(): { text: string; bytes: number; truncated: boolean };
}

export function boundedOutput(maxBytes: number): BoundedOutput {
  const halfBytes = Math.floor(maxBytes / 2);
  const head: Buffer[] = [];
  let headBytes = 0;
  let tail: Buffer[] = [];
  let tailBytes = 0;
  let total = 0;
  return {
    add(chunk) {
      total += chunk.length;
      const first = chunk.subarray(0, Math.max(0, halfBytes - headBytes));
      if (first.length > 0) {
        head.push(Buffer.from(first));
        headBytes += first.length;
      }
      const rest = chunk.subarray(first.length);
      if (rest.length > 0) {
        tail.push(Buffer.from(rest.subarray(-halfBytes)));
        tailBytes += Math.min(rest.length, halfBytes);
        // Joining rarely keeps the cost linear for many small chunks.
        if (tailBytes > 2 * halfBytes) {
          tail = [Buffer.from(Buffer.concat(tail).subarray(-halfBytes))];
          tailBytes = halfBytes;
        }
      }
      return total;
    },
    read() {
      const end = Buffer.concat(tail).subarray(-halfBytes);
      const missingBytes = total - headBytes - end.length;
      if (missingBytes <= 0)
        return {
          text: replaceControls(Buffer.concat([...head, end]).toString('utf8')),
          bytes: total,
          truncated: false,
        };
      const [first, last] = [Buffer.concat(head).toString('utf8'), end.toString('utf8')];
      const text = `${replaceControls(first)}\n[${missingBytes} bytes are left out here]\n${replaceControls(last)}`;
      return { text, bytes: total, truncated: true };
    },
  };
}

// Parameters of an escape sequence are shorter; without a limit the decoder could wait for ever.
const unfinishedSequence = /\u001b(?:\[[0-9;?]{0,32})?$/;

/** Decodes output piece by piece. A character or an escape sequence that is cut waits for its rest. */
export function outputDecoder(): (chunk: Buffer) => string {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  return (chunk) => {
    const text = rest + decoder.write(chunk);
    const cut = unfinishedSequence.exec(text)?.index ?? text.length;
    rest = text.slice(cut);
    return replaceControls(text.slice(0, cut));
  };
}

// Drops ANSI escape sequences and replaces other control characters: a model cannot
// read them and pays for them.
function replaceControls(text: string): string {
  return text
    .replaceAll(/\u001b\[[0-9;?]*[A-Za-z]/g, '')
    .replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g, '\ufffd');
}
