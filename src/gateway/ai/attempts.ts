// Runs one call over a chain of models: the requested model with retries, then its fallbacks in order. Retries and
// fallbacks end with the first byte of an answer.
import type { Clock } from '../../kernel/clock.ts';
import { Problem } from '../../kernel/problem.ts';
import type { CatalogModel } from './catalog/catalog.ts';
import {
  type Breaker,
  type BreakerSettings,
  createBreaker,
  defaultBreakerSettings,
} from './upstream/breaker.ts';
import {
  createRetryBudget,
  defaultRetrySettings,
  delayMs,
  isTransient,
  type RetryBudget,
  type RetrySettings,
} from './upstream/retry.ts';

/** One attempt, sent or skipped: `outcome` is `answered`, `breaker_open`, or the code of the error. */
export interface Attempt {
  model: string;
  outcome: string;
}

/** What a model is asked to do, up to the first byte of its answer. */
export interface Task<T> {
  /** The model asked for, then its fallbacks; never empty. */
  chain: readonly CatalogModel[];
  signal: AbortSignal;
  /** For all attempts together, to the first byte. */
  deadlineMs: number;
  /** Throws a 422 when the model cannot take what the call brings along; the next one may. */
  fits: (model: CatalogModel) => void;
  /** The effort to send. Throws a 422, which ends the call: an effort is never dropped. */
  effort: (model: CatalogModel) => string | undefined;
  /** Reserves the maximum price on this model before the request is sent. Throws a 402, which ends the call. */
  reserve?: (model: CatalogModel) => Promise<void>;
  /**
   * Makes the call ready; what it throws is the caller's fault and ends the call. What it returns is run for each
   * attempt with what is left to the first byte, and throws what happens before that.
   */
  prepare: (model: CatalogModel, effort: string | undefined) => (firstMs: number) => Promise<T>;
}

export interface RunResult<T> {
  answer: T;
  model: CatalogModel;
  attempts: Attempt[];
}

export interface Attempts {
  /** Throws the Problem of the last attempt; its headers list the attempts. */
  run<T>(task: Task<T>): Promise<RunResult<T>>;
  /** State of the circuit breaker of each model that was called, by the id of its first call. */
  breakers(): { model: string; provider: string; isOpen: boolean }[];
  /** Records with the model's circuit breaker that a stream failed after it had begun. */
  recordStreamFailure(model: CatalogModel, error: unknown): void;
}

/** Wraps one call of a model for tracing and metrics; returns and throws as the call does. */
export type WatchAttempt = <T>(
  attempt: { model: string; provider: string; retry: number },
  call: () => Promise<T>,
) => Promise<T>;

export interface AttemptsOptions {
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  watch?: WatchAttempt | undefined;
  random?: () => number;
  retry?: Partial<RetrySettings>;
  breaker?: Partial<BreakerSettings>;
}

interface Health {
  model: string;
  provider: string;
  breaker: Breaker;
  budget: RetryBudget;
}

export function createAttempts({
  clock,
  random = Math.random,
  watch = (_attempt, call) => call(),
  ...overrides
}: AttemptsOptions): Attempts {
  const retry = { ...defaultRetrySettings, ...overrides.retry };
  const breaker = { ...defaultBreakerSettings, ...overrides.breaker };
  const healths = new Map<string, Health>();

  function healthOf({ id, provider, upstream_model: name }: CatalogModel): Health {
    const key = `${provider} ${name}`;
    const health = healths.get(key) ?? {
      model: id,
      provider,
      breaker: createBreaker({ clock, settings: breaker }),
      budget: createRetryBudget({ clock, settings: retry }),
    };
    healths.set(key, health);
    return health;
  }

  /** Calls one model with retries. Returns its answer, or the failure after which the next model is tried. */
  async function tryModel<T>(
    task: Task<T>,
    model: CatalogModel,
    { endsMs, isLast, attempts }: ChainPosition,
  ): Promise<{ answer: T } | { failure: Problem }> {
    const call = task.prepare(model, task.effort(model));
    await task.reserve?.(model);
    const health = healthOf(model);
    health.budget.recordCall();
    for (let count = 0; ; count += 1) {
      const permit = health.breaker.tryAcquire();
      if (permit === undefined) {
        attempts.push({ model: model.id, outcome: 'breaker_open' });
        return { failure: breakerOpenProblem(health.breaker.waitMs()) };
      }
      let failure: Problem;
      try {
        const answer = await watch({ model: model.id, provider: model.provider, retry: count }, () =>
          call(Math.max(endsMs - clock.monotonicMs(), 1)),
        );
        permit.recordSuccess();
        attempts.push({ model: model.id, outcome: 'answered' });
        return { answer };
      } catch (error) {
        if (task.signal.aborted || !(error instanceof Problem)) {
          permit.release();
          throw error;
        }
        failure = error;
      }
      attempts.push({ model: model.id, outcome: failure.code });
      if (countsAsFailure(failure, model)) permit.recordFailure();
      // A refused request proves that the provider works. A rate limit, or a request that was never sent, proves nothing.
      else if (failure.code === 'upstream_refused') permit.recordSuccess();
      else permit.release();
      if (!isTransient(failure)) throw failure;
      const waitMs = delayMs(failure, count, { settings: retry, random });
      // Skip a long retry delay while a fallback could answer.
      const tooLong = clock.monotonicMs() + waitMs >= endsMs || (!isLast && waitMs > retry.longestDelayMs);
      if (count >= retry.retries || tooLong || health.breaker.waitMs() > 0 || !health.budget.take())
        return { failure };
      await clock.sleep(waitMs, task.signal);
    }
  }

  async function run<T>(task: Task<T>): Promise<RunResult<T>> {
    const { chain, signal } = task;
    const [requested] = chain;
    const attempts: Attempt[] = [];
    const endsMs = clock.monotonicMs() + task.deadlineMs;
    let failure: Problem | undefined;
    let misfit: Problem | undefined;
    try {
      // Check the effort of the requested model even if a fallback runs.
      if (requested !== undefined) task.effort(requested);
      for (const [position, model] of chain.entries()) {
        signal.throwIfAborted();
        const unfit = findMisfit(task, model);
        if (unfit !== undefined) {
          attempts.push({ model: model.id, outcome: unfit.code });
          misfit ??= unfit;
          continue;
        }
        const outcome = await tryModel(task, model, {
          endsMs,
          isLast: position === chain.length - 1,
          attempts,
        });
        if ('answer' in outcome) return { answer: outcome.answer, model, attempts };
        failure = outcome.failure;
      }
      throw failure ?? misfit ?? new Error('A call without a model was made.');
    } catch (error) {
      if (error instanceof Problem && attempts.length > 0)
        error.headers['x-townhall-attempts'] = attemptsHeader(attempts);
      throw error;
    }
  }

  return {
    run,
    breakers: () =>
      [...healths.values()].map(({ model, provider, breaker: circuit }) => ({
        model,
        provider,
        isOpen: circuit.waitMs() > 0,
      })),
    recordStreamFailure(model, error) {
      const isFailure =
        error instanceof Problem && (error.kind === 'upstream_failed' || error.kind === 'upstream_timeout');
      if (isFailure && model.providerEntry.kind !== 'local') healthOf(model).breaker.recordLateFailure();
    },
  };
}

interface ChainPosition {
  endsMs: number;
  isLast: boolean;
  attempts: Attempt[];
}

function findMisfit<T>(task: Task<T>, model: CatalogModel): Problem | undefined {
  try {
    task.fits(model);
    return undefined;
  } catch (error) {
    if (error instanceof Problem && error.code === 'unsupported_by_model') return error;
    throw error;
  }
}

// A refused key is a configuration error, not an outage. Local models have no provider to protect, and one user's
// scripted failures (@fail) must not open the breaker for the others.
function countsAsFailure(problem: Problem, model: CatalogModel): boolean {
  if (model.providerEntry.kind === 'local') return false;
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
    {
      headers: { 'retry-after': String(Math.max(Math.ceil(waitMs / 1000), 1)) },
    },
  );
}

function attemptsHeader(attempts: readonly Attempt[]): string {
  return attempts.map(({ model, outcome }) => `${model};${outcome}`).join(', ');
}

/** Headers that name the model and the attempts. */
export function attemptHeaders({
  model,
  attempts,
}: Pick<RunResult<unknown>, 'model' | 'attempts'>): Record<string, string> {
  return { 'x-townhall-model': model.id, 'x-townhall-attempts': attemptsHeader(attempts) };
}
