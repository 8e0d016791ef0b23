// Deadlines of one request to a provider: to the first byte and over all. Both end it through one abort signal.
import { timeoutProblem } from './provider-error.ts';

/** Limits of one request to a provider, in milliseconds. */
export interface Timeouts {
  connectMs: number;
  /** To the first byte of a streamed answer's body. */
  firstByteMs: number;
  /** To the first byte of an answer that comes as a whole. */
  answerMs: number;
  /** Between two pieces of a body. */
  idleMs: number;
  /** For the whole request. */
  streamMs: number;
}

export const defaultTimeouts: Timeouts = {
  connectMs: 5_000,
  firstByteMs: 60_000,
  answerMs: 600_000,
  idleMs: 60_000,
  streamMs: 1_800_000,
};

/** The deadlines of one request, and the one signal that ends it. */
export interface Deadlines {
  signal: AbortSignal;
  abort(reason: unknown): void;
  firstByteArrived(): void;
  /** Stops the timers; to be called when the request has ended. */
  release(): void;
}

/** Starts the timers of one request; `signal` is the caller's. */
export function startDeadlines(
  { streams, firstMs, signal }: { streams: boolean; firstMs?: number | undefined; signal: AbortSignal },
  timeouts: Timeouts,
): Deadlines {
  const controller = new AbortController();
  const abort = (reason: unknown) => controller.abort(reason);
  const onCallerAbort = () => abort(signal.reason);
  signal.addEventListener('abort', onCallerAbort, { once: true });
  const total = setTimeout(() => abort(timeoutProblem()), timeouts.streamMs);
  total.unref();
  const firstByte = setTimeout(
    () => abort(timeoutProblem()),
    firstMs ?? (streams ? timeouts.firstByteMs : timeouts.answerMs),
  );
  const release = () => {
    clearTimeout(total);
    clearTimeout(firstByte);
    signal.removeEventListener('abort', onCallerAbort);
  };
  // Releases also a request whose body is never read, because its reader was aborted first.
  controller.signal.addEventListener('abort', release, { once: true });
  return { signal: controller.signal, abort, firstByteArrived: () => clearTimeout(firstByte), release };
}
