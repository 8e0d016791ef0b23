// The health of each model at its provider: a circuit breaker and a retry budget, and
// the retries of one call that they allow. Retries end with the first byte of an answer.
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import { adapterOf } from '../providers/adapters.ts';
import {
  type Breaker,
  type BreakerSettings,
  createBreaker,
  defaultBreakerSettings,
  type Permit,
} from './breaker.ts';
import {
  BackendSelection,
  type EndpointBreakers,
  type PermittedBackend,
  type SelectionCall,
} from './backend-selection.ts';
import { type Backend, type Backends, coolingReason, createBackends } from './backends.ts';
import {
  createRetryBudget,
  defaultRetrySettings,
  delayMs,
  isTransient,
  type RetryBudget,
  type RetrySettings,
} from './retry.ts';

/**
 * One attempt, sent or skipped: `outcome` is `answered`, `breaker_open`, `keys_cooling`, or the
 * code of the error.
 */
export interface Attempt {
  model: string;
  outcome: string;
}

/**
 * Wraps one call of a model for tracing and metrics; returns the call's result
 * and rethrows its error.
 */
export type WatchAttempt = <T>(
  attempt: { model: string; provider: string; retry: number; key?: string | undefined },
  call: () => Promise<T>,
) => Promise<T>;

/** Shares the state of circuit breakers between the processes of one machine. */
export interface BreakerChannel {
  /** `breaker` identifies the breaker in all processes: a model of a provider at an endpoint. */
  publish(breaker: string, isOpen: boolean): void;
  /** Called for each change in another process. */
  onChange(listener: (breaker: string, isOpen: boolean) => void): void;
}

export interface ModelHealthOptions {
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  /** The keys and endpoints of the providers, shared with the code that sends the calls. */
  backends?: Backends;
  watch?: WatchAttempt | undefined;
  random?: () => number;
  retry?: Partial<RetrySettings>;
  breaker?: Partial<BreakerSettings>;
  breakerChannel?: BreakerChannel | undefined;
}

export interface RetryingCall<T> extends SelectionCall {
  /** Aborted when the caller disconnects. */
  signal: AbortSignal;
  /** The deadline of the first byte, by the monotonic clock. */
  endsMs: number;
  /** Receives each attempt. */
  attempts: Attempt[];
  /** Sends one attempt. */
  send: (target: AttemptTarget) => Promise<T>;
}

export interface AttemptTarget {
  backend: Backend;
  /** Time left until the first byte must arrive. */
  firstMs: number;
  /**
   * Limit on the time to a stream's first content, if another backend or model could then take
   * over.
   */
  firstContentMs?: number | undefined;
}

/** An answer and its backend, which counts the call as outstanding until `backend.release()`. */
export type RetryingOutcome<T> = { answer: T; backend: Backend } | { failure: Problem };

export interface ModelHealth {
  /**
   * Calls the model, and retries after transient failures. Returns its answer, or the failure after
   * which a fallback may be tried; throws a failure that ends the call.
   */
  retrying<T>(call: RetryingCall<T>): Promise<RetryingOutcome<T>>;
  /** Whether a breaker is open, for each model that was called, by the id that was called first. */
  breakers(): { model: string; provider: string; isOpen: boolean }[];
  /**
   * Records in the model's circuit breaker at the backend's endpoint that a stream failed after it
   * had begun.
   */
  recordStreamFailure(call: { model: CatalogModel; backend?: Backend | undefined }, error: unknown): void;
}

interface Health extends EndpointBreakers {
  model: string;
  provider: string;
  budget: RetryBudget;
  /** The breakers by base URL; the key undefined is the provider's own address. */
  breakers: Map<string | undefined, Breaker>;
}

interface HealthContext extends ModelHealthOptions {
  backends: Backends;
  random: () => number;
  watch: WatchAttempt;
  settings: RetrySettings;
}

export function createModelHealth(options: ModelHealthOptions): ModelHealth {
  const { clock } = options;
  const settings = { ...defaultRetrySettings, ...options.retry };
  const breakerSettings = { ...defaultBreakerSettings, ...options.breaker };
  const context: HealthContext = {
    ...options,
    backends: options.backends ?? createBackends({ env: new Map<string, string>(), clock }),
    random: options.random ?? Math.random,
    watch: options.watch ?? ((_attempt, call) => call()),
    settings,
  };
  const createSharedBreaker = breakerFactory({
    clock,
    settings: breakerSettings,
    channel: options.breakerChannel,
  });
  const healths = new Map<string, Health>();

  function healthOf(model: CatalogModel): Health {
    const key = breakerKey(model.provider, model.upstream_model, undefined);
    let health = healths.get(key);
    if (health === undefined) {
      health = createHealth(model, { budget: createRetryBudget({ clock, settings }), createSharedBreaker });
      healths.set(key, health);
    }
    return health;
  }

  return {
    retrying: (call) => callWithRetries(context, healthOf(call.model), call),
    breakers: () =>
      [...healths.values()].map(({ model, provider, breakers }) => ({
        model,
        provider,
        isOpen: [...breakers.values()].some((breaker) => breaker.waitMs() > 0),
      })),
    recordStreamFailure({ model, backend }, error) {
      const isFailure =
        error instanceof Problem && (error.kind === 'upstream_failed' || error.kind === 'upstream_timeout');
      if (isFailure && adapterOf(model).isLocal !== true)
        healthOf(model)
          .breakerOf(backend ?? ownEndpoint)
          .recordLateFailure();
    },
  };
}

const ownEndpoint = { baseUrl: undefined };

/** Returns a function that creates a breaker which follows the same breaker in other processes. */
function breakerFactory({
  clock,
  settings,
  channel,
}: {
  clock: Pick<Clock, 'monotonicMs'>;
  settings: BreakerSettings;
  channel: BreakerChannel | undefined;
}): (key: string) => Breaker {
  const breakersByKey = new Map<string, Breaker>();
  // Keys of breakers that are open in another process. A model that this process has not called yet
  // has no breaker here; it gets one that is open.
  const openElsewhere = new Set<string>();
  channel?.onChange((key, isOpen) => {
    if (isOpen) openElsewhere.add(key);
    else openElsewhere.delete(key);
    breakersByKey.get(key)?.follow(isOpen);
  });
  return (key) => {
    const breaker = createBreaker({
      clock,
      settings,
      onChange: (isOpen) => channel?.publish(key, isOpen),
    });
    if (openElsewhere.has(key)) breaker.follow(true);
    breakersByKey.set(key, breaker);
    return breaker;
  };
}

function createHealth(
  { id, provider, upstream_model: name }: CatalogModel,
  { budget, createSharedBreaker }: { budget: RetryBudget; createSharedBreaker: (key: string) => Breaker },
): Health {
  const breakers = new Map<string | undefined, Breaker>();
  return {
    model: id,
    provider,
    budget,
    breakers,
    breakerOf({ baseUrl }) {
      let breaker = breakers.get(baseUrl);
      if (breaker === undefined) {
        breaker = createSharedBreaker(breakerKey(provider, name, baseUrl));
        breakers.set(baseUrl, breaker);
      }
      return breaker;
    },
  };
}

/** The name of a breaker in all processes: a model of a provider, at one of its endpoints. */
function breakerKey(provider: string, name: string, baseUrl: string | undefined): string {
  return baseUrl === undefined ? `${provider} ${name}` : `${provider} ${name} ${baseUrl}`;
}

async function callWithRetries<T>(
  context: HealthContext,
  health: Health,
  call: RetryingCall<T>,
): Promise<RetryingOutcome<T>> {
  const { model, attempts, signal } = call;
  const selection = new BackendSelection(context.backends.poolOf(model.providerEntry), health, call);
  health.budget.recordCall();
  let permit = selection.next();
  for (let attempt = 0, delays = 0; ; attempt += 1) {
    if ('problem' in permit) {
      attempts.push({ model: model.id, outcome: permit.outcome });
      return { failure: permit.problem };
    }
    const firstContentMs = selection.firstContentMs(permit.backend);
    const outcome = await attemptOnce(context, permit, { ...call, attempt, firstContentMs });
    if ('answer' in outcome) return outcome;
    const { failure } = outcome;
    const isSlow = isSlowStart(failure, firstContentMs);
    selection.recordFailure(permit.backend);
    const mayMoveOn = isSlow || coolingReason(failure) !== undefined;
    const otherChoice =
      mayMoveOn && context.clock.monotonicMs() < call.endsMs ? selection.other() : undefined;
    if (otherChoice !== undefined) {
      permit = otherChoice;
      continue;
    }
    // Another attempt at the same backend would be as slow.
    if (isSlow) return outcome;
    const waitMs = retryDelayMs(context, health, { ...call, ...outcome, ...permit, retry: delays });
    if (waitMs === undefined) return outcome;
    delays += 1;
    await context.clock.sleep(waitMs, signal);
    permit = selection.next();
  }
}

/**
 * Runs one attempt and reports its outcome to the breaker and the backend. Throws a
 * failure that no retry can fix.
 */
async function attemptOnce<T>(
  { watch, clock }: HealthContext,
  { pool, backend, permit }: PermittedBackend,
  call: RetryingCall<T> & { attempt: number; firstContentMs: number | undefined },
): Promise<RetryingOutcome<T>> {
  const sentMs = clock.monotonicMs();
  const { model, signal, endsMs, attempts, send, attempt, firstContentMs } = call;
  let failure: Problem;
  backend.occupy();
  try {
    const key = pool.isShared ? backend.keyEnv : undefined;
    const answer = await watch({ model: model.id, provider: model.provider, retry: attempt, key }, () =>
      send({ backend, firstMs: firstByteMs(endsMs - clock.monotonicMs(), firstContentMs), firstContentMs }),
    );
    permit.recordSuccess();
    pool.recordSuccess(backend, sentMs);
    attempts.push({ model: model.id, outcome: 'answered' });
    return { answer, backend };
  } catch (error) {
    backend.release();
    if (signal.aborted || !(error instanceof Problem)) {
      permit.release();
      throw error;
    }
    failure = error;
  }
  attempts.push({ model: model.id, outcome: failure.code });
  const isKeyFailure = pool.isShared && coolingReason(failure) !== undefined;
  pool.recordFailure(backend, failure, sentMs);
  if (isKeyFailure) permit.release();
  else recordOutcome(permit, failure, model);
  if (!isTransient(failure) && !isKeyFailure && !isSlowStart(failure, firstContentMs)) throw failure;
  return { failure };
}

function firstByteMs(leftMs: number, firstContentMs = Infinity): number {
  return Math.max(Math.min(leftMs, firstContentMs), 1);
}

function isSlowStart({ kind }: Problem, firstContentMs: number | undefined): boolean {
  return firstContentMs !== undefined && kind === 'upstream_timeout';
}

// A rejected request shows that the provider works. A rate limit, or a request that
// was never sent, shows nothing.
function recordOutcome(permit: Permit, failure: Problem, model: CatalogModel): void {
  if (countsAsFailure(failure, model)) permit.recordFailure();
  else if (failure.code === 'upstream_refused') permit.recordSuccess();
  else permit.release();
}

/** The delay before the next attempt; undefined if the call must not be retried. */
function retryDelayMs<T>(
  { clock, settings, random }: HealthContext,
  { budget, breakerOf }: Health,
  call: RetryingCall<T> & PermittedBackend & { failure: Problem; retry: number },
): number | undefined {
  const { failure, retry, endsMs, isLast, pool, backend } = call;
  if (retry >= settings.retries || !isTransient(failure)) return undefined;
  // Without a fallback the call waits even for a key that cools down.
  if (!isLast && pool.isShared && !pool.hasReady(0)) return undefined;
  const waitMs = delayMs(failure, retry, { settings, random });
  // A delay beyond the deadline is useless, and a long one is skipped while a fallback could answer.
  const isTooLong = clock.monotonicMs() + waitMs >= endsMs || (!isLast && waitMs > settings.longestDelayMs);
  if (isTooLong) return undefined;
  const isOpen = breakerOf(backend).waitMs() > 0 && !pool.hasReadyElsewhere(backend);
  return isOpen || !budget.take() ? undefined : waitMs;
}

// A refused key is a configuration error, not an outage. Local models have no provider to
// protect, and one user's scripted failures (@fail) must not open the breaker for the others.
function countsAsFailure(problem: Problem, model: CatalogModel): boolean {
  if (adapterOf(model).isLocal === true) return false;
  return (
    problem.code === 'upstream_failed' ||
    problem.code === 'upstream_truncated' ||
    problem.kind === 'upstream_timeout'
  );
}
