// One model call. Tries the requested model and its fallbacks, in order or as the router sorts them: checks
// the model, reserves credits, and sends the request with retries. The end of the answer settles the bill.
// docs/architecture.md walks through this file.
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Bill } from '../billing/bill.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { ModelRouter } from './model-router.ts';
import type { Backend } from '../upstream/backends.ts';
import type { Attempt, AttemptTarget, ModelHealth } from '../upstream/model-health.ts';

/**
 * What `callModel` needs of a format: how to check a model of the chain and how to send the call to it.
 * `T` is the type of the answer.
 */
export interface ModelRequest<T, Content = undefined> {
  /** The requested model, then its fallbacks; never empty. */
  chain: readonly CatalogModel[];
  /** The caller's signal. */
  signal: AbortSignal;
  /** Time limit of all attempts together, until the first byte of the answer. */
  deadlineMs: number;
  /** Whether the answer is streamed; `first_content_s` of a model applies then. */
  streams?: boolean;
  /** Returns the hash of the caller's session. Calls of one session go to the same key of the provider. */
  session?: (() => number | undefined) | undefined;
  /**
   * Throws a Problem when the model cannot execute the call. After `unsupported_by_model` the next
   * model is tried.
   */
  check: (model: CatalogModel) => void;
  /** The effort to send. Throws a 422, which ends the call: an effort is never dropped. */
  effort?: (model: CatalogModel) => string | undefined;
  /**
   * The content to send when it depends on the model. Throws a 400 or 422 for members that must not
   * reach its provider, which ends the call, and `unsupported_by_model` like `check`.
   */
  content?: (model: CatalogModel, effort: string | undefined) => Content;
  /**
   * Sends one attempt. Resolves at the first byte of a stream, or at the end of a whole answer.
   * Throws `unsupported_by_model`, like `check`, when the call cannot be translated for the model.
   */
  send: (attempt: ModelAttempt<Content>) => Promise<T>;
}

/** The request for one model. */
interface Plan<Content> {
  model: CatalogModel;
  effort: string | undefined;
  content: Content;
}

export interface ModelAttempt<Content = unknown> extends Plan<Content> {
  /** Time left until the first byte, in milliseconds. */
  firstMs: number;
  /** Time limit for the first content of a stream; set only if another backend or model can take over. */
  firstContentMs?: number | undefined;
  /** The key and the endpoint of the provider. */
  backend: Backend;
}

export interface ModelResult<T> {
  answer: T;
  model: CatalogModel;
  backend: Backend;
  attempts: readonly Attempt[];
}

export interface CallOptions {
  health: ModelHealth;
  /** Absent: the models are tried in the order of the chain. */
  router?: ModelRouter;
  clock: Pick<Clock, 'monotonicMs'>;
  /** Absent for jobs, which have their own hold. */
  bill?: Bill | undefined;
}

/**
 * Resolves when the answer begins. Throws the Problem of the last attempt, with all attempts in its
 * headers; a call that fails before its answer begins is not charged unless the caller aborted it.
 */
export async function callModel<T, Content>(
  request: ModelRequest<T, Content>,
  options: CallOptions,
): Promise<ModelResult<T>> {
  const { signal, deadlineMs, session, streams } = request;
  const { health, router, clock, bill } = options;
  const chain = router?.order(request.chain, session) ?? request.chain;
  const endsMs = clock.monotonicMs() + deadlineMs;
  const attempts: Attempt[] = [];
  let mismatch: Problem | undefined;
  let failure: Problem | undefined;
  try {
    requireEffort(request);
    for (const [index, model] of chain.entries()) {
      signal.throwIfAborted();
      const plan = planFor(model, request);
      if (plan instanceof Problem) {
        attempts.push({ model: model.id, outcome: plan.code });
        mismatch ??= plan;
        continue;
      }
      const fallbacks = chain.slice(index + 1);
      await bill?.reserve(model, fallbacks);
      const send = (target: AttemptTarget) => sendAttempt(request, { ...plan, ...target }, bill);
      const isLast = fallbacks.length === 0;
      const startedMs = clock.monotonicMs();
      const outcome = await health
        .retrying({ model, signal, endsMs, isLast, attempts, streams, session, send })
        .catch(requireMismatch);
      if (outcome instanceof Problem) {
        mismatch ??= outcome;
        continue;
      }
      if ('answer' in outcome) {
        router?.record(model, clock.monotonicMs() - startedMs);
        return followAnswer({ ...outcome, model, attempts }, bill);
      }
      router?.record(model, undefined);
      failure = outcome.failure;
    }
    throw failure ?? mismatch ?? new Error('The chain of a model call is empty.');
  } catch (error) {
    await bill?.close(error, attempts.length);
    if (error instanceof Problem && attempts.length > 0)
      error.headers['x-townhall-attempts'] = attemptsHeader(attempts);
    throw error;
  }
}

/** Hands the backend to the bill, which releases it when the answer ends. */
function followAnswer<T>(result: ModelResult<T>, bill: Bill | undefined): ModelResult<T> {
  if (bill === undefined) result.backend.release();
  else bill.follow(result.attempts.length, result.backend);
  return result;
}

/** Throws the 422 for an effort that the requested model lacks, even if only a fallback would be called. */
function requireEffort<T, Content>({ chain: [requested], effort }: ModelRequest<T, Content>): void {
  if (requested !== undefined) effort?.(requested);
}

/**
 * The request for the model, or the 422 of a model that does not support the call. Other errors are
 * thrown.
 */
function planFor<T, Content>(
  model: CatalogModel,
  request: ModelRequest<T, Content>,
): Plan<Content> | Problem {
  try {
    request.check(model);
    const effort = request.effort?.(model);
    return { model, effort, content: request.content?.(model, effort) as Content };
  } catch (error) {
    return requireMismatch(error);
  }
}

/** Returns the 422 of a model that does not support the call, to try the next one. Throws other errors. */
function requireMismatch(error: unknown): Problem {
  if (error instanceof Problem && error.code === 'unsupported_by_model') return error;
  throw error;
}

/** Sends one attempt, and tells the bill before it is sent and when it fails. */
async function sendAttempt<T, Content>(
  request: ModelRequest<T, Content>,
  attempt: ModelAttempt<Content>,
  bill: Bill | undefined,
): Promise<T> {
  // A caller that disconnected before the request was sent does not pay.
  request.signal.throwIfAborted();
  bill?.markSent(attempt.effort);
  try {
    return await request.send(attempt);
  } catch (error) {
    bill?.failAttempt();
    throw error;
  }
}

function attemptsHeader(attempts: readonly Attempt[]): string {
  return attempts.map(({ model, outcome }) => `${model};${outcome}`).join(', ');
}

/** Headers that name the model and the attempts. */
export function attemptHeaders({
  model,
  attempts,
}: Pick<ModelResult<unknown>, 'model' | 'attempts'>): Record<string, string> {
  return { 'x-townhall-model': model.id, 'x-townhall-attempts': attemptsHeader(attempts) };
}
