// Reads response bodies of providers: piece by piece with an idle timeout, as a whole with a size
// limit, or only the start of an error body.
import { pipeline, Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { Problem } from '../../../kernel/problem.ts';
import type { Deadlines } from './deadlines.ts';
import { toTransportProblem } from './provider-error.ts';
import type { Pieces, ProviderResponse } from './response.ts';

// The message of an error is near its start.
const maxErrorBytes = 64 * 1024;
const errorBodyMs = 5_000;

const lastResult = { done: true, value: undefined } as const;

/**
 * The pieces of a body, decompressed. When the transport fails, calls `onError` with a Problem,
 * then throws it.
 */
export class ResponseBody implements Pieces {
  readonly #response: ProviderResponse;
  readonly #pieces: Pieces;
  readonly #deadlines: Deadlines;
  readonly #onError: (error: unknown) => void;
  #hasBegun = false;
  #hasEnded = false;

  constructor(response: ProviderResponse, deadlines: Deadlines, onError: (error: unknown) => void) {
    this.#response = response;
    this.#pieces = decompress(response);
    this.#deadlines = deadlines;
    this.#onError = onError;
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (this.#hasEnded) return lastResult;
    const deadlines = this.#deadlines;
    try {
      const isWaiting = this.#hasBegun && !this.#response.isReady;
      if (isWaiting) deadlines.startWait();
      const result = await this.#pieces.next();
      if (isWaiting) deadlines.endWait();
      if (result.done === true) this.#end();
      else if (!this.#hasBegun) deadlines.firstByteArrived();
      this.#hasBegun = true;
      return result;
    } catch (error) {
      this.#end();
      const problem = toTransportProblem(error, this.#response, 'midway');
      this.#onError(problem);
      throw problem;
    }
  }

  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (this.#hasEnded) return lastResult;
    this.#end();
    return this.#pieces.return();
  }

  #end(): void {
    this.#hasEnded = true;
    this.#deadlines.release();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

// Some providers compress in spite of `accept-encoding: identity`.
function decompress(response: ProviderResponse): Pieces {
  const createDecoder = {
    gzip: createGunzip,
    'x-gzip': createGunzip,
    deflate: createInflate,
    br: createBrotliDecompress,
  }[String(response.headers['content-encoding'] ?? '').toLowerCase()];
  if (createDecoder === undefined) return response;
  // The callback ignores errors, because the reader of the decoded bytes gets them too.
  const decodedStream = pipeline(Readable.from(response, { objectMode: false }), createDecoder(), () => {});
  return decodedStream[Symbol.asyncIterator]() as Pieces;
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

/**
 * The start of an error body, decompressed: what arrives within five seconds. Never throws, since the status
 * alone is enough for a Problem.
 */
export async function readErrorBody(response: ProviderResponse): Promise<string> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  const timer = setTimeout(() => response.abort(new Error('The error body took too long.')), errorBodyMs);
  try {
    for await (const piece of decompress(response)) {
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
