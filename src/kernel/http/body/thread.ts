// The thread that parses large bodies for parser.ts: one body per message, answered in order.
import { parentPort } from 'node:worker_threads';
import { parseJson } from '../../contract/json.ts';
import { asProblem } from '../../problem.ts';
import type { FromBodyThread, ToBodyThread } from './parser.ts';
import { parseMultipart } from './multipart.ts';

let lastAnswer = Promise.resolve();

parentPort?.on('message', (request: ToBodyThread) => {
  lastAnswer = lastAnswer.then(async () => {
    const answer = await parse(request);
    // The bytes are returned unchanged, because a signature or a digest may cover
    // them. The files of a form are transferred too.
    const files =
      'value' in answer && request.formType !== undefined
        ? Object.values(answer.value as Record<string, string | { content: Uint8Array<ArrayBuffer> }>)
        : [];
    parentPort?.postMessage(answer, [
      request.bytes.buffer,
      ...files.flatMap((member) => (typeof member === 'string' ? [] : [member.content.buffer])),
    ]);
  });
});

async function parse({ bytes, formType }: ToBodyThread): Promise<FromBodyThread> {
  try {
    if (formType !== undefined) return { bytes, value: await parseMultipart(bytes, formType) };
    return { bytes, value: parseJson(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)) };
  } catch (error) {
    const { kind, code, message, param, details } = asProblem(error);
    return { bytes, problem: { kind, code, message, param, details } };
  }
}
