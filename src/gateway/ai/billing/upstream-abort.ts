// The abort signal of a call's upstream requests. It aborts with the caller's signal, or up to 2 s
// later when the provider may still send the usage of a charged answer.
import { Problem } from '../../../kernel/problem.ts';

export interface UpstreamAbortOptions {
  /** Whether further reading may return the provider's usage. */
  mayGetUsage(): boolean;
  /** Called once the upstream request is aborted because the caller disconnected. */
  onAbort(): void;
  /** Receives a promise that resolves when the wait for the usage is over. */
  track(wait: Promise<void>): void;
}

// How long to read the answer for its usage after the caller has disconnected.
const usageWaitMs = 2_000;

export class UpstreamAbort {
  readonly #caller: AbortSignal;
  readonly #options: UpstreamAbortOptions;
  readonly #controller = new AbortController();
  readonly #onCallerAbort = () => this.#handleDisconnect();
  #wait: { timer: NodeJS.Timeout; end: () => void } | undefined;

  constructor(caller: AbortSignal, options: UpstreamAbortOptions) {
    this.#caller = caller;
    this.#options = options;
    if (caller.aborted) this.#controller.abort(caller.reason);
    else caller.addEventListener('abort', this.#onCallerAbort, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Whether the caller has disconnected and the answer is still read for its usage. */
  get isWaiting(): boolean {
    return this.#wait !== undefined;
  }

  /**
   * Ends the wait for the usage and stops following the caller. Aborts upstream if
   * the caller has disconnected.
   */
  end(): void {
    this.#caller.removeEventListener('abort', this.#onCallerAbort);
    this.#endWait();
    if (this.#caller.aborted) this.#controller.abort(this.#caller.reason);
  }

  #handleDisconnect(): void {
    // An abort by the server itself, when it shuts down, has a Problem as its reason. It must not wait.
    if (!this.#options.mayGetUsage() || this.#caller.reason instanceof Problem) return this.#abort();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wait = { timer: setTimeout(() => this.#abort(), usageWaitMs), end: resolve };
    this.#options.track(promise);
  }

  #abort(): void {
    this.#endWait();
    this.#controller.abort(this.#caller.reason);
    this.#options.onAbort();
  }

  #endWait(): void {
    clearTimeout(this.#wait?.timer);
    this.#wait?.end();
    this.#wait = undefined;
  }
}
