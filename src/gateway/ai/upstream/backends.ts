// The backends of a provider, each one endpoint with one key or credentials, and the choice of one
// for a call: by weighted rendezvous hashing with bounded loads for calls of a session, else by the
// least outstanding calls by weight. A backend whose key is refused or limited cools down.
import type { Clock } from '../../../kernel/clock.ts';
import { hashText } from '../../../kernel/hash-text.ts';
import type { Problem } from '../../../kernel/problem.ts';
import type { ProviderEntry } from '../catalog/models-file.ts';
import { isSet, keysAtEndpoints, type KeyAtEndpoint } from '../catalog/provider-keys.ts';
import { providerStatusOf } from './provider-error.ts';
import { mixHashes } from './session-hash.ts';

/**
 * Why a backend cools down: the statuses 429, 401 and 402. Credentials that cannot be used count as a refused
 * key.
 */
export type CoolingReason = 'rate_limited' | 'key_refused' | 'payment_required';

/** One endpoint of a provider with one of its keys, or with its credentials. */
export class Backend {
  readonly id: string;
  /** The environment variable of the key, or of the secret of the credentials. */
  readonly keyEnv: string | undefined;
  /** All environment variables that a call needs. */
  readonly envs: readonly string[];
  /** Undefined for the provider's own address. */
  readonly baseUrl: string | undefined;
  readonly weight: number;
  /** Its bit in sets of the pool's backends. A pool has at most 30 (`maxKeysAtEndpoints`). */
  readonly bit: number;
  readonly hash: number;
  readonly state: BackendState;

  constructor({ keyEnv, envs, baseUrl, weight }: KeyAtEndpoint, bit: number, state: BackendState) {
    this.id = backendId({ keyEnv, baseUrl });
    this.keyEnv = keyEnv;
    this.envs = envs;
    this.baseUrl = baseUrl;
    this.weight = weight;
    this.bit = bit;
    this.hash = hashText(this.id);
    this.state = state;
  }

  /** Counts a call that begins; `release` ends it. */
  occupy(): void {
    this.state.outstanding += 1;
    this.state.calls += 1;
  }

  release(): void {
    this.state.outstanding -= 1;
  }
}

interface Cooling {
  reason: CoolingReason;
  sinceMs: number;
  untilMs: number;
  /** The value of the key or secret that was limited or refused. */
  secret: string | undefined;
}

/** The counts and the cool-down of a backend. They outlive a change of the models file. */
export class BackendState {
  outstanding = 0;
  calls = 0;
  failures = 0;
  /** Cool-downs in a row, without a successful call in between. */
  strikes = 0;
  cooling: Cooling | undefined;
  /** The score by which equally loaded backends take turns (smooth weighted round robin). */
  turn = 0;
}

/** What an operator sees of a backend. Names the key's environment variable, never the key. */
export interface BackendReport {
  provider: string;
  keyEnv: string | undefined;
  /** Whether the key is set, or none is needed. */
  hasKey: boolean;
  baseUrl: string | undefined;
  weight: number;
  outstanding: number;
  calls: number;
  failures: number;
  cooling: { reason: CoolingReason; restMs: number } | undefined;
}

export interface Backends {
  poolOf(entry: ProviderEntry): BackendPool;
  /** The backend with the id; without such a backend, the first whose key is set. */
  find(entry: ProviderEntry, id: string | undefined): Backend;
}

interface BackendsOptions {
  env: { get(key: string): string | undefined };
  clock: Pick<Clock, 'monotonicMs'>;
}

// Cool-downs double with each one in a row.
const limitedMs = { first: 1_000, longest: 60_000 };
const refusedMs = { first: 60_000, longest: 600_000 };
// A provider may request hours; the key is tried again sooner.
const longestRetryAfterMs = 300_000;
// A session leaves its backend when that has more than this multiple of its weighted share of the
// calls.
const loadFactor = 1.25;
// Below this many calls a session stays, however small the share of its backend is.
const minimumLimit = 4;
// A new models file may add states. When they are cleared, the pools in use keep their states; only
// the pools of the next models file start without the earlier counts and cool-downs.
const maximumStates = 1_000;

export function createBackends({ env, clock }: BackendsOptions): Backends {
  const pools = new WeakMap<ProviderEntry, BackendPool>();
  const states = new Map<string, BackendState>();

  function stateOf(key: string): BackendState {
    let state = states.get(key);
    if (state === undefined) {
      if (states.size >= maximumStates) states.clear();
      state = new BackendState();
      states.set(key, state);
    }
    return state;
  }

  function poolOf(entry: ProviderEntry): BackendPool {
    let pool = pools.get(entry);
    if (pool === undefined) {
      const backends = keysAtEndpoints(entry).map(
        (keyAtEndpoint, index) =>
          new Backend(keyAtEndpoint, 1 << index, stateOf(`${entry.id} ${backendId(keyAtEndpoint)}`)),
      );
      pool = new BackendPool(entry.id, backends, { env, clock });
      pools.set(entry, pool);
    }
    return pool;
  }

  return {
    poolOf,
    find(entry, id) {
      const pool = poolOf(entry);
      return pool.backends.find((backend) => backend.id === id) ?? pool.firstUsable();
    },
  };
}

function backendId({ keyEnv = '', baseUrl = '' }: Pick<KeyAtEndpoint, 'keyEnv' | 'baseUrl'>): string {
  return `${keyEnv} ${baseUrl}`;
}

export class BackendPool {
  readonly backends: readonly Backend[];
  /** Whether calls are shared between several backends. A single backend never cools down. */
  readonly isShared: boolean;
  readonly #provider: string;
  readonly #env: BackendsOptions['env'];
  readonly #clock: BackendsOptions['clock'];

  constructor(provider: string, backends: readonly Backend[], { env, clock }: BackendsOptions) {
    this.#provider = provider;
    this.backends = backends;
    this.isShared = backends.length > 1;
    this.#env = env;
    this.#clock = clock;
  }

  /**
   * A backend that is ready and not among `excludedBits`; undefined when there is none.
   * Allocates nothing: one multiplication and one logarithm for each backend.
   */
  choose(session: number | undefined, excludedBits: number): Backend | undefined {
    let readyBits = 0;
    let weights = 0;
    // The call itself counts too.
    let outstanding = 1;
    for (const backend of this.backends) {
      if ((backend.bit & excludedBits) !== 0 || !this.#isReady(backend)) continue;
      readyBits |= backend.bit;
      weights += backend.weight;
      outstanding += backend.state.outstanding;
    }
    if (readyBits === 0) return undefined;
    return session === undefined
      ? this.#leastLoaded(readyBits)
      : this.#ofSession(session, readyBits, (outstanding * loadFactor) / weights);
  }

  hasReady(excludedBits: number): boolean {
    return this.backends.some((backend) => (backend.bit & excludedBits) === 0 && this.#isReady(backend));
  }

  /** The backend whose cool-down ends first, for a call that has no other choice. */
  soonest(excludedBits: number): Backend | undefined {
    let soonestBackend: Backend | undefined;
    for (const backend of this.backends) {
      if ((backend.bit & excludedBits) !== 0 || !this.hasKey(backend)) continue;
      if (soonestBackend === undefined || coolingEndMs(backend) < coolingEndMs(soonestBackend))
        soonestBackend = backend;
    }
    return soonestBackend;
  }

  /**
   * The first backend whose key is set, for requests that are not balanced, such as a check of the
   * provider.
   */
  firstUsable(): Backend {
    return this.backends.find((backend) => this.hasKey(backend)) ?? (this.backends[0] as Backend);
  }

  /** The bits of all backends at the same endpoint. */
  endpointBits({ baseUrl }: Backend): number {
    return this.backends.reduce(
      (bits, backend) => (backend.baseUrl === baseUrl ? bits | backend.bit : bits),
      0,
    );
  }

  hasReadyElsewhere({ baseUrl }: Backend): boolean {
    return this.backends.some((backend) => backend.baseUrl !== baseUrl && this.#isReady(backend));
  }

  /** Time to the end of the first cool-down. */
  restMs(): number {
    const soonestBackend = this.soonest(0);
    return soonestBackend === undefined
      ? 0
      : Math.max(coolingEndMs(soonestBackend) - this.#clock.monotonicMs(), 0);
  }

  /**
   * Ends the cool-down, unless the successful call was sent before the cool-down began: such a call
   * does not show that the key works again.
   */
  recordSuccess({ state }: Backend, sentMs = this.#clock.monotonicMs()): void {
    if (state.cooling !== undefined && sentMs < state.cooling.sinceMs) return;
    state.strikes = 0;
    state.cooling = undefined;
  }

  /** Counts the failure, and lets the backend cool down when its key is limited or refused. */
  recordFailure(backend: Backend, failure: Problem, sentMs = this.#clock.monotonicMs()): void {
    backend.state.failures += 1;
    const reason = this.isShared ? coolingReason(failure) : undefined;
    if (reason === undefined) return;
    const isLimited = reason === 'rate_limited';
    // A refused key is refused at every endpoint; limits are often those of one endpoint.
    const cooledKey = isLimited ? undefined : backend.keyEnv;
    for (const otherBackend of this.backends)
      if (otherBackend === backend || (cooledKey !== undefined && otherBackend.keyEnv === cooledKey))
        this.#cool(otherBackend, { reason, failure, sentMs });
  }

  /**
   * Starts a cool-down. A call that was sent before the current cool-down began, and fails only
   * now, hit the same limit or refusal: it is not a further strike, and can extend the current
   * cool-down but not shorten it.
   */
  #cool(
    { state, keyEnv }: Backend,
    { reason, failure, sentMs }: { reason: CoolingReason; failure: Problem; sentMs: number },
  ): void {
    const nowMs = this.#clock.monotonicMs();
    const secret = keyEnv === undefined ? undefined : this.#env.get(keyEnv);
    const { cooling } = state;
    const isNew = cooling === undefined || sentMs >= cooling.sinceMs;
    if (isNew) state.strikes += 1;
    const untilMs = nowMs + coolingMs(reason, state.strikes, failure);
    if (isNew) state.cooling = { reason, sinceMs: nowMs, untilMs, secret };
    else if (untilMs > cooling.untilMs) state.cooling = { ...cooling, reason, untilMs, secret };
    else state.cooling = { ...cooling, secret };
  }

  reports(): BackendReport[] {
    return this.backends.map((backend) => {
      const { keyEnv, baseUrl, weight, state } = backend;
      const { outstanding, calls, failures, cooling } = state;
      return {
        provider: this.#provider,
        keyEnv,
        hasKey: this.hasKey(backend),
        baseUrl,
        weight,
        outstanding,
        calls,
        failures,
        cooling:
          cooling === undefined || !this.#isCooling(backend)
            ? undefined
            : { reason: cooling.reason, restMs: cooling.untilMs - this.#clock.monotonicMs() },
      };
    });
  }

  hasKey({ envs }: Backend): boolean {
    for (const name of envs) if (!isSet(name, this.#env)) return false;
    return true;
  }

  #isReady(backend: Backend): boolean {
    return this.hasKey(backend) && !this.#isCooling(backend);
  }

  #isCooling({ keyEnv, state: { cooling } }: Backend): boolean {
    if (cooling === undefined || this.#clock.monotonicMs() >= cooling.untilMs) return false;
    // A new key in the same variable does not inherit the cool-down of the former key.
    return keyEnv === undefined || this.#env.get(keyEnv) === cooling.secret;
  }

  /**
   * The backend with the fewest outstanding calls per weight; equally loaded backends take turns.
   */
  #leastLoaded(readyBits: number): Backend {
    let leastLoad = Infinity;
    for (const backend of this.backends)
      if ((backend.bit & readyBits) !== 0) leastLoad = Math.min(leastLoad, loadOf(backend));
    let next: Backend | undefined;
    let weights = 0;
    for (const backend of this.backends) {
      if ((backend.bit & readyBits) === 0 || loadOf(backend) > leastLoad) continue;
      weights += backend.weight;
      backend.state.turn += backend.weight;
      if (next === undefined || backend.state.turn > next.state.turn) next = backend;
    }
    (next as Backend).state.turn -= weights;
    return next as Backend;
  }

  /**
   * The backend with the session's highest score among the backends below their limits. The limits
   * add up to more than all calls, so there always is one.
   */
  #ofSession(session: number, readyBits: number, callsPerWeight: number): Backend {
    let bestBackend: Backend | undefined;
    let highestScore = -1;
    for (const backend of this.backends) {
      if ((backend.bit & readyBits) === 0) continue;
      const limit = Math.max(Math.ceil(callsPerWeight * backend.weight), minimumLimit);
      if (backend.state.outstanding >= limit) continue;
      const score = -backend.weight / Math.log((mixHashes(session, backend.hash) + 0.5) / 2 ** 32);
      if (score > highestScore) {
        highestScore = score;
        bestBackend = backend;
      }
    }
    return bestBackend as Backend;
  }
}

function loadOf({ state, weight }: Backend): number {
  return state.outstanding / weight;
}

/** When the backend's cool-down ends; 0 when it has none. */
function coolingEndMs({ state }: Backend): number {
  return state.cooling?.untilMs ?? 0;
}

const reasonOfStatus: Readonly<Record<number, CoolingReason>> = {
  401: 'key_refused',
  402: 'payment_required',
  429: 'rate_limited',
};

/** Undefined for a failure that another key would not change. */
export function coolingReason(failure: Problem): CoolingReason | undefined {
  const status = providerStatusOf(failure);
  const reason = status === undefined ? undefined : reasonOfStatus[status];
  // Credentials that the gateway cannot use, or that their token endpoint refuses (400), are
  // refused for every call. A 403 can be due to the content of this call.
  const isRefused = failure.code === 'provider_credentials' && status !== 403;
  return reason ?? (isRefused ? 'key_refused' : undefined);
}

/** `strikes` is the number of cool-downs in a row, including this one. */
function coolingMs(reason: CoolingReason, strikes: number, failure: Problem): number {
  const { retryAfterMs } = (failure.cause ?? {}) as { retryAfterMs?: unknown };
  if (reason === 'rate_limited' && typeof retryAfterMs === 'number')
    return Math.min(Math.max(retryAfterMs, limitedMs.first), longestRetryAfterMs);
  const { first, longest } = reason === 'rate_limited' ? limitedMs : refusedMs;
  return Math.min(first * 2 ** Math.min(strikes - 1, 20), longest);
}
