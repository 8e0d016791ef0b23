// Parses request bodies, JSON and forms, without blocking the event loop: small ones
// inline, large ones in a thread. The thread's result is copied on the event loop,
// which is cheap for long strings; parseJson bounds the rest.
import type { Worker } from 'node:worker_threads';
import { startThread } from '../../assets.ts';
import { nextTurn } from '../../async.ts';
import { Problem, type ProblemDetail, type ProblemKind } from '../../problem.ts';
import type { ProblemCode } from '../../../contract/problem-code.gen.ts';
import { parseJson } from '../../contract/json.ts';
import { parseMultipart } from './multipart.ts';

export interface ParsedBody {
  /** The bytes of the document, possibly in another buffer than before. */
  raw: Buffer;
  value: unknown;
}

/** A message to the thread; `formType` is the content type of a form. */
export interface ToBodyThread {
  bytes: Uint8Array<ArrayBuffer>;
  formType: string | undefined;
}

/** The thread's answer: the same bytes, and their value or the error. */
export type FromBodyThread = { bytes: Uint8Array<ArrayBuffer> } & (
  | { value: unknown }
  | { problem: PlainProblem }
);

interface PlainProblem {
  kind: ProblemKind;
  code: ProblemCode;
  message: string;
  param: string | null;
  details: ProblemDetail[] | undefined;
}

// 4 MiB take 15 ms to decode, scan and parse.
const largeBytes = 4 * 1024 * 1024;
// Bodies above this size are parsed in a separate turn of the event loop.
const mediumBytes = 256 * 1024;

/**
 * Throws as `parseJson` does. The bytes of a large document are transferred: use
 * `raw` of the result afterwards.
 */
export function parseBody(bytes: Buffer): ParsedBody | Promise<ParsedBody> {
  if (bytes.byteLength <= mediumBytes) return { raw: bytes, value: parseJson(bytes) };
  return bytes.byteLength <= largeBytes ? parseInTurn(bytes) : parseInThread(bytes);
}

/** Like `parseBody`, for a form; throws as `parseMultipart` does. */
export async function parseForm(bytes: Buffer, contentType: string): Promise<ParsedBody> {
  if (bytes.byteLength > largeBytes) return parseInThread(bytes, contentType);
  return { raw: bytes, value: await parseMultipart(bytes, contentType) };
}

async function parseInTurn(bytes: Buffer): Promise<ParsedBody> {
  await nextTurn();
  const value = parseJson(bytes);
  await nextTurn();
  return { raw: bytes, value };
}

interface Waiter {
  resolve(parsed: ParsedBody): void;
  reject(error: Error): void;
}

// One thread per process, started by the first large body. It responds in the order of the requests.
let thread: { worker: Worker; waiters: Waiter[] } | undefined;

function parseInThread(bytes: Buffer, formType?: string): Promise<ParsedBody> {
  const { worker, waiters } = (thread ??= startParser());
  return new Promise<ParsedBody>((resolve, reject) => {
    waiters.push({ resolve, reject });
    // Only a whole ArrayBuffer can be transferred; a view of a larger one is copied.
    const ownBytes =
      bytes.byteLength === bytes.buffer.byteLength ? bytes : Buffer.from(new Uint8Array(bytes).buffer);
    worker.postMessage({ bytes: ownBytes, formType }, [ownBytes.buffer as ArrayBuffer]);
  }).then(async (parsedBody) => {
    await nextTurn();
    return parsedBody;
  });
}

function startParser(): { worker: Worker; waiters: Waiter[] } {
  // Start the thread without the flags of the process: a profiler or a test's preload is meant for the
  // main thread.
  const worker = startThread('src/kernel/http/body/thread', { execArgv: [] });
  const entry = { worker, waiters: [] as Waiter[] };
  // The thread must not keep the process running after the server has closed.
  worker.unref();
  worker.on('message', (answer: FromBodyThread) => {
    const waiter = entry.waiters.shift();
    if ('problem' in answer) waiter?.reject(problemOf(answer.problem));
    else
      waiter?.resolve({
        raw: Buffer.from(answer.bytes.buffer, answer.bytes.byteOffset, answer.bytes.byteLength),
        value: answer.value,
      });
  });
  const rejectAll = (cause: unknown): void => {
    if (thread === entry) thread = undefined;
    for (const { reject } of entry.waiters.splice(0))
      reject(new Error('The thread that parses large bodies has exited.', { cause }));
  };
  worker.on('error', rejectAll);
  worker.on('exit', rejectAll);
  return entry;
}

function problemOf({ kind, code, message, param, details }: PlainProblem): Problem {
  return new Problem(kind, code, message, { param, ...(details === undefined ? {} : { details }) });
}
