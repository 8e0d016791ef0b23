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
  createRetryBudget,
  defaultRetrySettings,
  delayMs,
  isTransient,
  type RetryBudget,
  type RetrySettings,
} from './retry.ts';

/** One attempt, sent or skipped: `outcome` is `answered`, `breaker_open`, or the code of the error. */
export interface Attempt {
  model: string;
  outcome: string;
}

/** Wraps one call of a model for tracing and metrics; returns the call's result and rethrows its error. */
export type WatchAttempt = <T>(
  attempt: { model: string; provider: string; retry: number },
  call: () => Promise<T>,
) => Promise<T>;

/** Shares the state of circuit breakers between the processes of one machine. */
export interface BreakerChannel {
  /** `breaker` names a model of a provider, in all processes alike. */
  publish(breaker: string, isOpen: boolean): void;
  /** Called for each change in another process. */
  onChange(listener: (breaker: string, isOpen: boolean) => void): void;
}

export interface ModelHealthOptions {
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  watch?: WatchAttempt | undefined;
  random?: () => number;
  retry?: Partial<RetrySettings>;
  breaker?: Partial<BreakerSettings>;
  breakerChannel?: BreakerChannel | undefined;
}

export interface RetryingCall<T> {
  model: CatalogModel;
  /** The caller's. */
  signal: AbortSignal;
  /** The deadline of the first byte, by the monotonic clock. */
  endsMs: number;
  /** Whether no fallback follows, so that a long wait is worth it. */
  isLast: boolean;
  /** Receives each attempt. */
  attempts: Attempt[];
  /** Sends one attempt; `firstMs` is the time left to the first byte. */
  send: (firstMs: number) => Promise<T>;
}

export interface ModelHealth {
  /**
   * Calls the model, and again after transient failures. Returns its answer, or the
   * failure after which a fallback may answer; throws a failure that ends the call.
   */
  retrying<T>(call: RetryingCall<T>): Promise<{ answer: T } | { failure: Problem }>;
  /** State of the circuit breaker of each model that was called, by the id of its first call. */
  breakers(): { model: string; provider: string; isOpen: boolean }[];
  /** Records with the model's circuit breaker that a stream failed after it had begun. */
  recordStreamFailure(model: CatalogModel, error: unknown): void;
}

interface Health {
  model: string;
  provider: string;
  breaker: Breaker;
  budget: RetryBudget;
}

interface HealthContext extends ModelHealthOptions {
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
    random: options.random ?? Math.random,
    watch: options.watch ?? ((_attempt, call) => call()),
    settings,
  };
  const healths = new Map<string, Health>();
  // Breakers that are open in another process, for models that this one has not
  // called yet; at most one for each model.
  const openElsewhere = new Set<string>();

  function healthOf({ id, provider, upstream_model: name }: CatalogModel): Health {
    const key = `${provider} ${name}`;
    let health = healths.get(key);
    if (health === undefined) {
      const breaker = createBreaker({
        clock,
        settings: breakerSettings,
        onChange: (isOpen) => options.breakerChannel?.publish(key, isOpen),
      });
      if (openElsewhere.has(key)) breaker.follow(true);
      health = { model: id, provider, breaker, budget: createRetryBudget({ clock, settings }) };
      healths.set(key, health);
    }
    return health;
  }

  options.breakerChannel?.onChange((key, isOpen) => {
    if (isOpen) openElsewhere.add(key);
    else openElsewhere.delete(key);
    healths.get(key)?.breaker.follow(isOpen);
  });

  return {
    retrying: (call) => retryingCall(context, healthOf(call.model), call),
    breakers: () =>
      [...healths.values()].map(({ model, provider, breaker }) => ({
        model,
        provider,
        isOpen: breaker.waitMs() > 0,
      })),
    recordStreamFailure(model, error) {
      const isFailure =
        error instanceof Problem && (error.kind === 'upstream_failed' || error.kind === 'upstream_timeout');
      if (isFailure && adapterOf(model).isLocal !== true) healthOf(model).breaker.recordLateFailure();
    },
  };
}

async function retryingCall<T>(
  context: HealthContext,
  health: Health,
  call: RetryingCall<T>,
): Promise<{ answer: T } | { failure: Problem }> {
  const { model, attempts, signal } = call;
  health.budget.recordCall();
  for (let retry = 0; ; retry += 1) {
    const permit = health.breaker.tryAcquire();
    if (permit === undefined) {
      attempts.push({ model: model.id, outcome: 'breaker_open' });
      return { failure: breakerOpenProblem(health.breaker.waitMs()) };
    }
    const outcome = await attemptOnce(context, permit, { ...call, retry });
    if ('answer' in outcome) return outcome;
    const waitMs = retryDelayMs(context, health, { ...call, ...outcome, retry });
    if (waitMs === undefined) return outcome;
    await context.clock.sleep(waitMs, signal);
  }
}

/** Runs one attempt and reports its outcome to the breaker. Throws a failure that no retry can fix. */
async function attemptOnce<T>(
  { watch, clock }: HealthContext,
  permit: Permit,
  { model, signal, endsMs, attempts, send, retry }: RetryingCall<T> & { retry: number },
): Promise<{ answer: T } | { failure: Problem }> {
  let failure: Problem;
  try {
    const answer = await watch({ model: model.id, provider: model.provider, retry }, () =>
      send(Math.max(endsMs - clock.monotonicMs(), 1)),
    );
    permit.recordSuccess();
    attempts.push({ model: model.id, outcome: 'answered' });
    return { answer };
  } catch (error) {
    if (signal.aborted || !(error instanceof Problem)) {
      permit.release();
      throw error;
    }
    failure = error;
  }
  attempts.push({ model: model.id, outcome: failure.code });
  recordOutcome(permit, failure, model);
  if (!isTransient(failure)) throw failure;
  return { failure };
}

// A rejected request shows that the provider works. A rate limit, or a request that
// was never sent, shows nothing.
function recordOutcome(permit: Permit, failure: Problem, model: CatalogModel): void {
  if (countsAsFailure(failure, model)) permit.recordFailure();
  else if (failure.code === 'upstream_refused') permit.recordSuccess();
  else permit.release();
}

/** How long to wait before the next attempt, in milliseconds; undefined where there is none. */
function retryDelayMs<T>(
  { clock, settings, random }: HealthContext,
  { breaker, budget }: Health,
  { failure, retry, endsMs, isLast }: RetryingCall<T> & { failure: Problem; retry: number },
): number | undefined {
  if (retry >= settings.retries) return undefined;
  const waitMs = delayMs(failure, retry, { settings, random });
  // Skip a long retry delay while a fallback could answer.
  const isTooLong = clock.monotonicMs() + waitMs >= endsMs || (!isLast && waitMs > settings.longestDelayMs);
  return isTooLong || breaker.waitMs() > 0 || !budget.take() ? undefined : waitMs;
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

function breakerOpenProblem(waitMs: number): Problem {
  return new Problem(
    'upstream_failed',
    'upstream_failed',
    'The model provider has failed too often just now; it is left alone for a moment.',
    { headers: { 'retry-after': String(Math.max(Math.ceil(waitMs / 1000), 1)) } },
  );
}
