// The thread that parses large bodies, beside json-parser.ts: one document a message, answered in order.
import { parentPort } from 'node:worker_threads';
import { asProblem } from '../problem.ts';
import { parseJson } from './json.ts';
import type { FromJsonThread } from './json-parser.ts';

parentPort?.on('message', (bytes: Uint8Array<ArrayBuffer>) => {
  const answer = parse(bytes);
  // The bytes go back as they came: a signature or a digest may be about them.
  parentPort?.postMessage(answer, [bytes.buffer]);
});

function parse(bytes: Uint8Array<ArrayBuffer>): FromJsonThread {
  try {
    return { bytes, value: parseJson(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)) };
  } catch (error) {
    const { kind, code, message, param, details } = asProblem(error);
    return { bytes, problem: { kind, code, message, param, details } };
  }
}
