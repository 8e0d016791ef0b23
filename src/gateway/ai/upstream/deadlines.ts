// Deadlines of one request to a provider: for its first byte, for the pause between two pieces, and
// for the whole request. A missed deadline aborts the response.
import { timeoutProblem } from './provider-error.ts';

/** Limits of one request to a provider, in milliseconds. */
export interface Timeouts {
  connectMs: number;
  /** Until the first byte of a streamed answer's body. */
  firstByteMs: number;
  /** Until the first byte of an answer that is not streamed. */
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

/** The response of the request, which a missed deadline or the caller aborts. */
interface Abortable {
  abort(reason: unknown): void;
}

export interface DeadlineOptions {
  streams: boolean;
  /** Time left until the first byte must arrive, if an earlier attempt has used some of it. */
  firstMs?: number | undefined;
  /** Overrides the idle timeout. */
  idleMs?: number | undefined;
  /** Aborted when the caller disconnects. */
  signal: AbortSignal;
}

/** A class rather than a closure: its methods are not allocated again for every call. */
export class Deadlines {
  readonly #response: Abortable;
  readonly #signal: AbortSignal;
  readonly #idleMs: number;
  readonly #streamMs: number;
  readonly #startedMs = performance.now();
  readonly #onCallerAbort = () => this.abort(this.#signal.reason);
  readonly #onTimeout = () => this.abort(timeoutProblem());
  readonly #onIdle = () => {
    if (this.#isWaiting) this.#onTimeout();
  };
  /** The timer for the first byte; from the first wait after it on, for the whole request. */
  #timer: NodeJS.Timeout | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  // The idle timeout applies only while the gateway waits for the provider; a slow
  // reader does not count as a silent provider.
  #isWaiting = false;

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

  /**
   * Called by the reader before each wait for a further piece; the first call starts its timers.
   */
  startWait(): void {
    this.#isWaiting = true;
    if (this.#idleTimer !== undefined) return void this.#idleTimer.refresh();
    this.#idleTimer = setTimeout(this.#onIdle, this.#idleMs);
    const restMs = Math.max(this.#streamMs - (performance.now() - this.#startedMs), 1);
    this.#timer = setTimeout(this.#onTimeout, restMs);
    this.#timer.unref();
  }

  endWait(): void {
    this.#isWaiting = false;
  }

  /** Stops the timers; call it when the request has ended. */
  release(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#idleTimer);
    this.#signal.removeEventListener('abort', this.#onCallerAbort);
  }
}
