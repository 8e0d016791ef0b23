// Deadlines of one request to a provider: to the first byte, between two pieces, and
// over all. Each aborts its response.
import { timeoutProblem } from './provider-error.ts';

/** Limits of one request to a provider, in milliseconds. */
export interface Timeouts {
  connectMs: number;
  /** To the first byte of a streamed answer's body. */
  firstByteMs: number;
  /** To the first byte of an answer that is not streamed. */
  answerMs: number;
  /** The limit between two pieces of a body. */
  idleMs: number;
  /** The limit of the whole request. */
  streamMs: number;
}

export const defaultTimeouts: Timeouts = {
  connectMs: 5_000,
  firstByteMs: 60_000,
  answerMs: 600_000,
  idleMs: 60_000,
  streamMs: 1_800_000,
};

/** The response, which the deadlines and the caller can abort. */
interface Abortable {
  abort(reason: unknown): void;
}

export interface DeadlineOptions {
  streams: boolean;
  /** Time left to the first byte, if an earlier attempt has used some of it. */
  firstMs?: number | undefined;
  /** Overrides the idle timeout. */
  idleMs?: number | undefined;
  /** The caller's. */
  signal: AbortSignal;
}

/** A class, because one is created for every call and methods on the prototype are not. */
export class Deadlines {
  readonly #response: Abortable;
  readonly #signal: AbortSignal;
  readonly #idleMs: number;
  readonly #streamMs: number;
  readonly #startedMs = performance.now();
  readonly #onCallerAbort = () => this.abort(this.#signal.reason);
  readonly #onTimeout = () => this.abort(timeoutProblem());
  readonly #onIdle = () => {
    if (this.#isAwaited) this.#onTimeout();
  };
  /** The timer of the first byte, and from then on of the whole request. */
  #timer: NodeJS.Timeout | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  // The idle timeout applies only while the gateway waits for the provider; a slow
  // reader does not count as a silent provider.
  #isAwaited = false;

  constructor(
    { streams, firstMs, idleMs, signal }: DeadlineOptions,
    timeouts: Timeouts,
    response: Abortable,
  ) {
    this.#response = response;
    this.#signal = signal;
    this.#idleMs = idleMs ?? timeouts.idleMs;
    this.#streamMs = timeouts.streamMs;
    signal.addEventListener('abort', this.#onCallerAbort, { once: true });
    const firstByteMs = firstMs ?? (streams ? timeouts.firstByteMs : timeouts.answerMs);
    this.#timer = setTimeout(this.#onTimeout, Math.min(firstByteMs, this.#streamMs));
  }

  abort(reason: unknown): void {
    this.release();
    this.#response.abort(reason);
  }

  /** Ends the deadline of the first byte. */
  firstByteArrived(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** The reader calls it before each wait for a further piece. */
  startWait(): void {
    this.#isAwaited = true;
    if (this.#idleTimer !== undefined) return void this.#idleTimer.refresh();
    this.#idleTimer = setTimeout(this.#onIdle, this.#idleMs);
    const restMs = Math.max(this.#streamMs - (performance.now() - this.#startedMs), 1);
    this.#timer = setTimeout(this.#onTimeout, restMs);
    this.#timer.unref();
  }

  endWait(): void {
    this.#isAwaited = false;
  }

  /** Stops the timers; call it when the request has ended. */
  release(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#idleTimer);
    this.#signal.removeEventListener('abort', this.#onCallerAbort);
  }
}
