// The thread that parses large bodies for parser.ts: one body per message, answered in order.
import { parentPort } from 'node:worker_threads';
import { parseJson } from '../../contract/json.ts';
import { asProblem } from '../../problem.ts';
import type { FromBodyThread, ToBodyThread } from './parser.ts';
import { parseMultipart, type FormMembers } from './multipart.ts';

let lastAnswer = Promise.resolve();

parentPort?.on('message', (request: ToBodyThread) => {
  lastAnswer = lastAnswer.then(async () => {
    const answer = await parse(request);
    const isForm = 'value' in answer && request.formType !== undefined;
    // The bytes are returned unchanged, because a signature or a digest may cover them.
    parentPort?.postMessage(answer, [
      request.bytes.buffer,
      ...(isForm ? fileBuffers(answer.value as FormMembers) : []),
    ]);
  });
});

/** Files are copies of their part of the bytes, so no buffer is transferred twice. */
function fileBuffers(members: FormMembers): ArrayBuffer[] {
  return Object.values(members)
    .flat()
    .flatMap((member) => (typeof member === 'string' ? [] : [member.content.buffer as ArrayBuffer]));
}

async function parse({ bytes, formType }: ToBodyThread): Promise<FromBodyThread> {
  try {
    if (formType !== undefined) return { bytes, value: await parseMultipart(bytes, formType) };
    return { bytes, value: parseJson(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)) };
  } catch (error) {
    const { kind, code, message, param, details } = asProblem(error);
    return { bytes, problem: { kind, code, message, param, details } };
  }
}
