// One call over a chain of models: the one that was asked for, tried again where that can help, then its fallbacks in
// order. All of it happens before the first byte of an answer; once a model has begun to answer, it is the one.
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

/** One try, or one that was not made: `outcome` is `answered`, `breaker_open`, or the code of the error. */
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
  /** Pays in advance for what the model may cost, before it is asked anything. Throws a 402, which ends the call. */
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
  /** Throws the Problem of the last model that was tried; its headers tell of the attempts. */
  run<T>(task: Task<T>): Promise<RunResult<T>>;
  /** How the breaker of each model that was called stands, by the id under which it was called first. */
  breakers(): { model: string; provider: string; isOpen: boolean }[];
  /** Counts against the model that its answer broke off after it had begun. */
  recordStreamFailure(model: CatalogModel, error: unknown): void;
}

/** Follows one call of a model, for whoever counts them; gives back, and throws, what the call does. */
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

  /** The retries of one model: its answer, or the failure after which the next model has its turn. */
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
      // A provider that refuses a request is well; one that limits them, or was not asked at all, proves nothing.
      else if (failure.code === 'upstream_refused') permit.recordSuccess();
      else permit.release();
      if (!isTransient(failure)) throw failure;
      const waitMs = delayMs(failure, count, { settings: retry, random });
      // Nobody waits long for a model while another could answer.
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
      // Of the requested model even when it is not the one that runs.
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

// A refused key is the operator's fault and stays until it is mended; the provider is there and answers. A model in
// this process has no provider to spare, and one user's failures (@fail) must not close it for the others.
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

/** What every answer that has no member for it says in its headers. */
export function attemptHeaders({
  model,
  attempts,
}: Pick<RunResult<unknown>, 'model' | 'attempts'>): Record<string, string> {
  return { 'x-townhall-model': model.id, 'x-townhall-attempts': attemptsHeader(attempts) };
}
