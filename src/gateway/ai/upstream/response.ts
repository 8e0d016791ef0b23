// The response of a provider as it arrives: undici's handler for one request, and the
// pieces of the body for one reader. A handler of our own saves undici's stream, its
// events and a promise for each piece (docs/decisions/2026-11-22-processor-time.md).
import type * as Undici from 'undici';

type Controller = Undici.Dispatcher.DispatchController;

// Limit of bytes that wait for the reader before the socket is paused.
const maxQueuedBytes = 64 * 1024;
// Up to this size the rest of an abandoned body is read, so that its connection can be reused.
const maxDrainBytes = 16 * 1024;
const drainMs = 500;

/** The pieces of a body, for one reader. A reader that stops before the end calls `return`. */
export interface Pieces {
  next(): Promise<IteratorResult<Uint8Array, undefined>>;
  return(): Promise<IteratorResult<Uint8Array, undefined>>;
  [Symbol.asyncIterator](): Pieces;
}

const lastResult = { done: true, value: undefined } as const;

/**
 * The response of one request. Its callbacks are undici's; a reader calls only `next` and `return`,
 * one after the other.
 */
export class ProviderResponse implements Undici.Dispatcher.DispatchHandler, Pieces {
  statusCode = 0;
  headers: Record<string, string | string[] | undefined> = {};
  /** Whether `abort` was called; `reason` is its argument. */
  aborted = false;
  reason: unknown = undefined;
  #controller: Controller | undefined = undefined;
  #pieces: Uint8Array[] = [];
  #queuedBytes = 0;
  #hasHead = false;
  #hasEnded = false;
  #failure: { error: unknown } | undefined = undefined;
  #isPaused = false;
  /** Resolves the promise that waits for the head, for more of the body, or for its end. */
  #wake: (() => void) | undefined = undefined;
  #drain: { bytes: number; timer: NodeJS.Timeout } | undefined = undefined;

  /**
   * Resolves when status and headers have arrived. Rejects when the request fails or is aborted
   * before that.
   */
  async head(): Promise<void> {
    while (!this.#hasHead) {
      if (this.#failure !== undefined) throw this.#failure.error;
      await this.#wait();
    }
  }

  /**
   * Ends the request: its reader gets the reason as an error. No effect once the body is complete.
   */
  abort(reason: unknown): void {
    if (this.aborted || this.#hasEnded) return;
    this.aborted = true;
    this.reason = reason;
    this.#pieces = [];
    this.#fail(reason);
    this.#controller?.abort(reason as Error);
  }

  /** Whether `next` resolves at once, without waiting for the provider. */
  get isReady(): boolean {
    return this.#pieces.length > 0 || this.#hasEnded || this.#failure !== undefined;
  }

  /**
   * All bytes that have arrived, as one piece. After a failure it first returns the bytes that
   * arrived before, then throws.
   */
  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    while (!this.isReady) await this.#wait();
    if (this.#pieces.length > 0) return { done: false, value: this.#take() };
    if (this.#failure !== undefined) throw this.#failure.error;
    return lastResult;
  }

  /** Reads a short remainder, so that the connection can be reused, and aborts a longer one. */
  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#pieces = [];
    if (this.#hasEnded || this.#failure !== undefined) return lastResult;
    this.#drain = {
      bytes: 0,
      timer: setTimeout(() => this.abort(new Error('The rest of the body was not read.')), drainMs),
    };
    this.#resume();
    return lastResult;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  onRequestStart(controller: Controller): void {
    if (this.aborted) controller.abort(this.reason as Error);
    else this.#controller = controller;
  }

  onResponseStart(_controller: Controller, statusCode: number, headers: ProviderResponse['headers']): void {
    // Informational responses, such as 103, precede the response.
    if (statusCode < 200) return;
    this.statusCode = statusCode;
    this.headers = headers;
    this.#hasHead = true;
    this.#wakeUp();
  }

  onResponseData(controller: Controller, piece: Uint8Array): void {
    if (this.#drain !== undefined) {
      this.#drain.bytes += piece.byteLength;
      if (this.#drain.bytes > maxDrainBytes) this.abort(new Error('The rest of the body was not read.'));
      return;
    }
    this.#pieces.push(piece);
    this.#queuedBytes += piece.byteLength;
    if (this.#queuedBytes >= maxQueuedBytes) {
      this.#isPaused = true;
      controller.pause();
    }
    this.#wakeUp();
  }

  onResponseEnd(): void {
    this.#hasEnded = true;
    clearTimeout(this.#drain?.timer);
    this.#wakeUp();
  }

  onResponseError(_controller: Controller | null, error: unknown): void {
    this.#fail(error);
  }

  #fail(error: unknown): void {
    this.#failure ??= { error };
    clearTimeout(this.#drain?.timer);
    this.#wakeUp();
  }

  #take(): Uint8Array {
    const pieces = this.#pieces;
    this.#pieces = [];
    this.#queuedBytes = 0;
    this.#resume();
    return pieces.length === 1 ? (pieces[0] as Uint8Array) : Buffer.concat(pieces);
  }

  #resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#controller?.resume();
  }

  #wait(): Promise<void> {
    return new Promise((resolve) => (this.#wake = resolve));
  }

  #wakeUp(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}
