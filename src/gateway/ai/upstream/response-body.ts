// Reads response bodies of providers: streamed with an idle timeout, whole with a size limit, and the start of error bodies.
import { pipeline, type Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import type * as Undici from 'undici';
import { Problem } from '../../../kernel/problem.ts';
import type { Deadlines } from './deadlines.ts';
import { timeoutProblem, toTransportProblem } from './provider-error.ts';

type ResponseBody = Undici.Dispatcher.ResponseData['body'];

// The message of an error stands near its start.
const maxErrorBytes = 64 * 1024;
const errorBodyMs = 5_000;
// The rest of an abandoned body is read up to here, so that its connection can be reused.
const maxDrainBytes = 16 * 1024;
const drainMs = 500;

/** The pieces of a body, decompressed. Throws a Problem, which `onError` receives before, when the transport fails. */
export async function* readResponseBody(
  { body, headers }: Undici.Dispatcher.ResponseData,
  { deadlines, idleMs, onError }: { deadlines: Deadlines; idleMs: number; onError: (error: unknown) => void },
): AsyncGenerator<Uint8Array> {
  const decoded = decompress(body, headers['content-encoding']);
  const iterator = decoded.iterator({ destroyOnReturn: false }) as AsyncIterator<Uint8Array, undefined>;
  // The idle timeout applies only while the provider is awaited; a slow reader is not the provider's fault.
  let isWaiting = true;
  let idleTimer: NodeJS.Timeout | undefined;
  let hasEnded = false;
  try {
    for (;;) {
      isWaiting = true;
      idleTimer?.refresh();
      const next = await iterator.next();
      isWaiting = false;
      if (next.done === true) {
        hasEnded = true;
        return;
      }
      if (idleTimer === undefined) {
        deadlines.firstByteArrived();
        idleTimer = setTimeout(() => {
          if (isWaiting) deadlines.abort(timeoutProblem());
        }, idleMs);
      }
      yield next.value;
    }
  } catch (error) {
    hasEnded = true;
    const problem = toTransportProblem(error, deadlines.signal, 'midway');
    onError(problem);
    throw problem;
  } finally {
    clearTimeout(idleTimer);
    deadlines.release();
    if (!hasEnded && !body.destroyed) {
      if (decoded !== body) body.destroy();
      else drain(body);
    }
  }
}

// Uses a timer of its own: an AbortSignal.timeout would also fire after the end, and create an error each time.
function drain(body: ResponseBody): void {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), drainMs);
  body
    .dump({ limit: maxDrainBytes, signal: controller.signal })
    .catch(() => body.destroy())
    .finally(() => clearTimeout(timer));
}

// Some providers compress in spite of `accept-encoding: identity`.
function decompress(body: ResponseBody, encoding: string | string[] | undefined): Readable {
  const createDecoder = {
    gzip: createGunzip,
    'x-gzip': createGunzip,
    deflate: createInflate,
    br: createBrotliDecompress,
  }[String(encoding ?? '').toLowerCase()];
  // The reader of the decoded bytes gets the errors.
  return createDecoder === undefined ? body : pipeline(body, createDecoder(), () => {});
}

/** The whole body. Throws a Problem when it is larger than the limit. */
export async function readAll(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > maxBytes)
      throw new Problem(
        'upstream_failed',
        'upstream_failed',
        'The model provider sent an answer that is too large.',
      );
    pieces.push(piece);
  }
  return pieces.length === 1 ? Buffer.from(pieces[0] ?? []) : Buffer.concat(pieces, bytes);
}

/** The start of an error body, as far as it arrives in time. Never throws: the status alone is enough for a Problem. */
export async function readErrorBody(body: ResponseBody): Promise<string> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  const timer = setTimeout(() => body.destroy(), errorBodyMs);
  try {
    for await (const piece of body as AsyncIterable<Uint8Array>) {
      pieces.push(piece);
      bytes += piece.length;
      if (bytes > maxErrorBytes) break;
    }
  } catch {
    // The pieces so far are enough.
  } finally {
    clearTimeout(timer);
  }
  return Buffer.concat(pieces).toString('utf8');
}
