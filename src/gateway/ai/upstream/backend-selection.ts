// Chooses the backend of each attempt of one call: a key and endpoint that is ready, that has not
// failed in the call, and whose circuit breaker lets the call pass.
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { Backend, BackendPool } from './backends.ts';
import type { Breaker, Permit } from './breaker.ts';

/** The circuit breakers of a model at the endpoints of its provider. */
export interface EndpointBreakers {
  breakerOf(backend: Pick<Backend, 'baseUrl'>): Breaker;
}

/** What the choice depends on in a call. */
export interface SelectionCall {
  model: CatalogModel;
  /** Whether no fallback follows. Such a call may wait longer and use a backend that cools down. */
  isLast: boolean;
  /** The hash of the call's session; called only where there are several keys or endpoints. */
  session?: (() => number | undefined) | undefined;
  /** Whether the answer is streamed. */
  streams?: boolean | undefined;
}

/** A backend, and the permit of its breaker for one call. */
export interface PermittedBackend {
  pool: BackendPool;
  backend: Backend;
  permit: Permit;
}

/** Chooses the backends of one call in turn, and remembers which of them have failed. */
export class BackendSelection {
  readonly #pool: BackendPool;
  readonly #breakers: EndpointBreakers;
  readonly #call: SelectionCall;
  readonly #session: number | undefined;
  /** The backends that have failed in this call. */
  #failedBits = 0;

  constructor(pool: BackendPool, breakers: EndpointBreakers, call: SelectionCall) {
    this.#pool = pool;
    this.#breakers = breakers;
    this.#call = call;
    this.#session = pool.isShared ? call.session?.() : undefined;
  }

  /** The backend of the next attempt, or why there is none. */
  next(): PermittedBackend | { outcome: 'breaker_open' | 'keys_cooling'; problem: Problem } {
    const { permit, openBits } = this.#acquire((bits) => this.#choose(bits));
    if (permit !== undefined) return permit;
    return openBits === 0
      ? { outcome: 'keys_cooling', problem: coolingProblem(this.#pool.restMs()) }
      : { outcome: 'breaker_open', problem: breakerOpenProblem(this.#breakerWaitMs()) };
  }

  /** A ready backend that has not failed in this call and whose breaker lets the call pass. */
  other(): PermittedBackend | undefined {
    if (!this.#pool.isShared) return undefined;
    return this.#acquire((bits) => this.#pool.choose(this.#session, bits | this.#failedBits)).permit;
  }

  recordFailure(backend: Backend): void {
    this.#failedBits |= backend.bit;
  }

  /**
   * Acquires a permit for the first choice whose breaker grants one. `openBits` are the backends
   * whose breakers have refused, for the next choice to exclude.
   */
  #acquire(choose: (openBits: number) => Backend | undefined): {
    permit?: PermittedBackend;
    openBits: number;
  } {
    const pool = this.#pool;
    let openBits = 0;
    for (;;) {
      const backend = choose(openBits);
      if (backend === undefined) return { openBits };
      const permit = this.#breakers.breakerOf(backend).tryAcquire();
      if (permit !== undefined) return { permit: { pool, backend, permit }, openBits };
      openBits |= pool.endpointBits(backend);
    }
  }

  /**
   * A ready backend, preferably one that has not failed in this call. Only when no fallback is
   * left, also a backend that still cools down.
   */
  #choose(openBits: number): Backend | undefined {
    const pool = this.#pool;
    if (!pool.isShared) return openBits === 0 ? pool.backends[0] : undefined;
    return (
      (this.#failedBits === 0 ? undefined : pool.choose(this.#session, openBits | this.#failedBits)) ??
      pool.choose(this.#session, openBits) ??
      (this.#call.isLast ? pool.soonest(openBits) : undefined)
    );
  }

  /**
   * The model's limit on the time to first content, if another backend or model could then take
   * over.
   */
  firstContentMs(backend: Backend): number | undefined {
    const { model, streams, isLast } = this.#call;
    const seconds = streams === true ? model.first_content_s : undefined;
    if (seconds === undefined || (isLast && !this.#hasOther(backend))) return undefined;
    return seconds * 1000;
  }

  #hasOther({ bit }: Backend): boolean {
    const pool = this.#pool;
    if (!pool.isShared) return false;
    const excludedBits = pool.backends.reduce(
      (bits, backend) => (this.#breakers.breakerOf(backend).waitMs() > 0 ? bits | backend.bit : bits),
      this.#failedBits | bit,
    );
    return pool.hasReady(excludedBits);
  }

  #breakerWaitMs(): number {
    return Math.min(...this.#pool.backends.map((backend) => this.#breakers.breakerOf(backend).waitMs()));
  }
}

function coolingProblem(waitMs: number): Problem {
  return new Problem(
    'rate_limited',
    'rate_limited',
    'Every key of the model provider is limited or refused just now; try again later.',
    { headers: retryAfter(waitMs) },
  );
}

function breakerOpenProblem(waitMs: number): Problem {
  return new Problem(
    'upstream_failed',
    'upstream_failed',
    'The model provider has failed too often just now; no calls are sent to it for a moment.',
    { headers: retryAfter(waitMs) },
  );
}

/** At least one second: the header has no fractions. */
function retryAfter(waitMs: number): { 'retry-after': string } {
  return { 'retry-after': String(Math.max(Math.ceil(waitMs / 1000), 1)) };
}
