// Streams to a client: events, and raw bytes. Invariants: at most one frame plus the
// socket's buffer is in memory, a stalled reader is disconnected, a disconnected client
// stops the producer, and a truncated stream is never mistaken for a complete one.
import type { ServerResponse } from 'node:http';
import type { SseEvent } from '../contract/operation.ts';

export interface StreamLimits {
  /** Interval of comments that keep proxies from closing a quiet stream. */
  heartbeatMs: number;
  /** A client that accepts no bytes for this long is disconnected. */
  stallMs: number;
}

export const defaultStreamLimits: StreamLimits = { heartbeatMs: 15_000, stallMs: 60_000 };

/** `failed` means that the producer threw; `onError` has received the error. */
export type StreamOutcome = 'completed' | 'client_gone' | 'stalled' | 'failed';

// A large frame is written in pieces, since the stall timer starts again for each of them: a client
// that reads 64 KiB within `stallMs` stays connected. The frame itself stays in memory as a whole.
const pieceBytes = 64 * 1024;

export interface EventStreamOptions {
  /** The last data line, such as `[DONE]`, after events that end without an error. */
  end?: string;
  limits: StreamLimits;
  /** Renders the final frames after the producer threw. */
  onError: (error: unknown) => string;
}

/** Writes events until they end, then ends the response. The head must have been written. */
export async function writeEvents(
  response: ServerResponse,
  events: AsyncIterable<SseEvent<unknown>>,
  options: EventStreamOptions,
): Promise<StreamOutcome> {
  const writer = new ResponseWriter(response, options.limits);
  sendHead(response);
  const heartbeat = setInterval(() => writer.writeIfQuiet(': hb\n\n'), options.limits.heartbeatMs);
  try {
    const outcome = await pump(writer, events, (event) => Buffer.from(serializeFrame(event)));
    if (outcome !== 'completed') return outcome;
    if (options.end !== undefined && !(await writer.write(Buffer.from(`data: ${options.end}\n\n`))))
      return writer.loss;
    response.end();
    return 'completed';
  } catch (error) {
    if (writer.isClosed) return writer.loss;
    if (await writer.write(Buffer.from(options.onError(error)))) response.end();
    return 'failed';
  } finally {
    clearInterval(heartbeat);
    writer.release();
  }
}

/**
 * Forwards bytes as they arrive. If the producer throws after the first byte, the connection
 * is destroyed, because that is the only way to signal a truncated body to the client.
 */
export async function writeContent(
  response: ServerResponse,
  content: AsyncIterable<Uint8Array>,
  options: { limits: StreamLimits; onError: (error: unknown) => void },
): Promise<StreamOutcome> {
  const writer = new ResponseWriter(response, options.limits);
  sendHead(response);
  try {
    const outcome = await pump(writer, content, (bytes) => bytes);
    if (outcome === 'completed') response.end();
    return outcome;
  } catch (error) {
    if (writer.isClosed) return writer.loss;
    options.onError(error);
    // Sends the bytes before the error.
    response.socket?.uncork();
    response.destroy();
    return 'failed';
  } finally {
    writer.release();
  }
}

// Sends the head at once, so that the client gets its status before the first event exists. Events
// that are already available go into the same packet: a system call costs more than all other work
// for an event.
function sendHead(response: ServerResponse): void {
  const { socket } = response;
  socket?.cork();
  response.flushHeaders();
  if (socket) process.nextTick(() => socket.uncork());
}

/** Stops a producer whose reader is gone, and ignores its errors. */
export function discard(source: AsyncIterable<unknown>): void {
  stop(source[Symbol.asyncIterator]());
}

function stop(iterator: AsyncIterator<unknown>): void {
  // Not awaited: a generator that waits for its upstream resolves only when that
  // wait ends, which the call's abort signal causes.
  iterator.return?.().catch(() => {});
}

async function pump<T>(
  writer: ResponseWriter,
  source: AsyncIterable<T>,
  toBytes: (item: T) => Uint8Array,
): Promise<StreamOutcome> {
  const iterator = source[Symbol.asyncIterator]();
  for (;;) {
    const step = await writer.unlessClosed(iterator.next());
    if (step === undefined) {
      stop(iterator);
      return writer.loss;
    }
    if (step.done) return 'completed';
    let bytes: Uint8Array;
    try {
      bytes = toBytes(step.value);
    } catch (error) {
      stop(iterator);
      throw error;
    }
    // `write` returns a promise only when it has to wait for the client.
    const writing = writer.write(bytes);
    const isWritten = writing === true || (await writing);
    if (!isWritten) {
      stop(iterator);
      return writer.loss;
    }
  }
}

function serializeFrame(event: SseEvent<unknown>): string {
  const lines: string[] = [];
  if (event.id !== undefined) lines.push(`id: ${fieldValue(event.id)}\n`);
  if (event.event !== undefined) lines.push(`event: ${fieldValue(event.event)}\n`);
  const data = JSON.stringify(event.data);
  if (data === undefined) throw new Error('An event without data cannot be written.');
  // JSON contains no raw line break, so one data line is always enough.
  lines.push(`data: ${data}\n\n`);
  return lines.join('');
}

function fieldValue(value: string): string {
  if (/[\r\n\0]/.test(value))
    throw new Error(`The event field ${JSON.stringify(value)} holds a line break or a NUL.`);
  return value;
}

/**
 * The bytes of one stream on their way to a client that may be slow or leave. A class, so that a
 * chunk allocates nothing beyond its promise.
 */
class ResponseWriter {
  readonly #response: ServerResponse;
  readonly #stallMs: number;
  #isClosed: boolean;
  #isStalled = false;
  /** True while a frame is partly written, or while the client is slow. */
  #isBusy = false;
  // A single slot instead of Promise.race, which would leave a reaction on the
  // long-lived promise for every event.
  #onClosed: (() => void) | undefined = undefined;

  constructor(response: ServerResponse, { stallMs }: StreamLimits) {
    this.#response = response;
    this.#stallMs = stallMs;
    this.#isClosed = response.destroyed || response.closed;
    response.once('close', this.#markClosed);
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Why the client is gone. */
  get loss(): 'client_gone' | 'stalled' {
    return this.#isStalled ? 'stalled' : 'client_gone';
  }

  /** True when the bytes are written and more may follow; waits while the client is slow. */
  write(bytes: Uint8Array): true | Promise<boolean> {
    if (this.#isClosed) return Promise.resolve(false);
    if (bytes.byteLength === 0) return true;
    if (bytes.byteLength > pieceBytes) return this.#writePieces(bytes);
    if (this.#response.write(bytes)) return true;
    this.#isBusy = true;
    return this.#waitForDrain().finally(() => {
      this.#isBusy = false;
    });
  }

  /** Writes the text, unless a frame is incomplete or the client is slow. */
  writeIfQuiet(text: string): void {
    if (!this.#isClosed && !this.#isBusy && !this.#response.writableNeedDrain) this.#response.write(text);
  }

  /** The promise's value, or undefined as soon as the client is gone. */
  unlessClosed<T>(promise: Promise<T>): Promise<T | undefined> {
    return new Promise((resolve, reject) => {
      if (this.#isClosed) {
        promise.catch(() => {});
        resolve(undefined);
        return;
      }
      this.#onClosed = () => resolve(undefined);
      // Clear the slot before the next step starts, because that step may wait for the client and
      // set it again.
      promise.then(
        (value) => {
          this.#onClosed = undefined;
          resolve(value);
        },
        (error: unknown) => {
          this.#onClosed = undefined;
          reject(error as Error);
        },
      );
    });
  }

  /** Removes the listener. The response stays open. */
  release(): void {
    this.#response.off('close', this.#markClosed);
  }

  readonly #markClosed = (): void => {
    this.#isClosed = true;
    this.#onClosed?.();
  };

  async #writePieces(bytes: Uint8Array): Promise<boolean> {
    this.#isBusy = true;
    try {
      for (let offset = 0; offset < bytes.byteLength; offset += pieceBytes) {
        if (this.#isClosed) return false;
        const piece = bytes.subarray(offset, offset + pieceBytes);
        if (!this.#response.write(piece) && !(await this.#waitForDrain())) return false;
      }
      return true;
    } finally {
      this.#isBusy = false;
    }
  }

  /** Waits until the client accepts more; false when it is gone or stalls. */
  #waitForDrain(): Promise<boolean> {
    const response = this.#response;
    return new Promise((resolve) => {
      const settle = (isDrained: boolean) => {
        clearTimeout(timer);
        response.off('drain', onDrain);
        this.#onClosed = undefined;
        resolve(isDrained);
      };
      const onDrain = () => settle(true);
      const timer = setTimeout(() => {
        this.#isStalled = true;
        response.destroy();
        settle(false);
      }, this.#stallMs);
      this.#onClosed = () => settle(false);
      response.once('drain', onDrain);
    });
  }
}
