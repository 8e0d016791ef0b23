// What the handlers of all formats share: the parts of the service, the bill of a call, and the end of its
// answer.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import { failureNote } from '../../../kernel/contract/failure-note.ts';
import type { CallNote, Handlers } from '../../../kernel/contract/operation.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Remember } from '../../../kernel/data/idempotency.ts';
import { withTypes } from '../../../kernel/error-dialects.ts';
import type { Log } from '../../../kernel/log.ts';
import { asProblem, Problem, renderProblem } from '../../../kernel/problem.ts';
import type { Alongside } from '../../credits/index.ts';
import type { Identity } from '../../identity.ts';
import type { Bill } from '../billing/bill.ts';
import type { Billing } from '../billing/billing.ts';
import type { Catalog, CatalogModel } from '../catalog/catalog.ts';
import type { Passthrough } from '../formats/passthrough/calls.ts';
import type { Demand } from '../metering/bound.ts';
import type { Units } from '../metering/price.ts';
import type { ModelRouter } from './model-router.ts';
import type { ProviderModels } from '../providers/text-models.ts';
import type { Backend, Backends } from '../upstream/backends.ts';
import type { Timeouts } from '../upstream/deadlines.ts';
import type { ModelHealth } from '../upstream/model-health.ts';

/** The parts of the service. */
export interface AiContext {
  catalog: Catalog;
  billing: Billing;
  health: ModelHealth;
  backends: Backends;
  router: ModelRouter;
  providers: ProviderModels;
  passthrough: Passthrough;
  clock: Clock;
  timeouts: Timeouts;
}

export type AiHandlers = Handlers<Operations, 'ai', Identity>;

/** The members of a call that every format uses. */
export interface PaidRequest {
  operationId: string;
  requestId: string;
  /** The caller's headers that the contract names. */
  headers?: object;
  identity: Identity;
  signal: AbortSignal;
  log: Log;
  note(fields: CallNote): void;
  remember: Remember;
}

/**
 * The members of a call that do not depend on its body. A call is a class with getters, so it cannot be
 * spread.
 */
export function callMembers(call: Omit<PaidRequest, 'headers'>): Omit<PaidRequest, 'headers'> {
  const { operationId, requestId, identity, signal, log, note, remember } = call;
  return { operationId, requestId, identity, signal, log, note, remember };
}

/** Time limit of all attempts together, until the first byte of the answer. */
export function firstByteDeadlineMs({ timeouts }: Pick<AiContext, 'timeouts'>, streams: boolean): number {
  return streams ? timeouts.firstByteMs : timeouts.answerMs;
}

export function openBill(
  { billing }: Pick<AiContext, 'billing'>,
  call: Pick<PaidRequest, 'requestId' | 'identity' | 'signal' | 'log' | 'remember'>,
  { action, demand, unitsIfDisconnected }: { action: string; demand: Demand; unitsIfDisconnected?: Units },
): Bill {
  const { requestId, identity, signal, log, remember } = call;
  if (identity.kind === 'guest') throw new Error('A guest cannot pay.');
  return billing.open({ requestId, identity, action, signal, log, demand, unitsIfDisconnected, remember });
}

export type StreamErrorBody = ReturnType<typeof renderProblem>;

/** Renders the error that ends a failed stream; returns undefined when the caller has disconnected. */
export function streamErrorBody(
  { health }: Pick<AiContext, 'health'>,
  call: PaidRequest,
  { error, attempt }: { error: unknown; attempt: { model: CatalogModel; backend?: Backend | undefined } },
): StreamErrorBody | undefined {
  const { signal, log } = call;
  const { model } = attempt;
  if (signal.aborted && !(signal.reason instanceof Problem)) return undefined;
  health.recordStreamFailure(attempt, error);
  const problem = asProblem(signal.aborted ? signal.reason : error);
  if (problem.kind === 'internal') log.error({ err: problem.cause ?? problem }, 'stream failed');
  else
    log.warn(
      { model: model.id, provider: model.provider, code: problem.code, err: problem.cause },
      'stream failed',
    );
  call.note({ model: model.id, provider: model.provider, ...failureNote(problem) });
  const body = renderProblem(problem, call.requestId);
  // Anthropic's clients choose their exception by the type of the error.
  return call.operationId === 'ai.createMessage' ? withTypes(body, problem, 'anthropic') : body;
}

/**
 * The whole answer, to be stored with the charge for a replay under its Idempotency-Key; undefined without
 * a key.
 */
export function answerForReplay(
  { remember }: Pick<PaidRequest, 'remember'>,
  { body, headers }: RenderedAnswer<unknown>,
): Alongside | undefined {
  const answer = remember.inSettlement({ status: 200, body, headers });
  return answer && { answer };
}

/** A whole answer: its body and the handler's own headers. */
export interface RenderedAnswer<T> {
  body: T;
  headers: Record<string, string>;
}

/**
 * Renders the answer, which may contain the price, and settles the bill; the answer for a replay commits
 * with the charge.
 */
export async function settleAndRender<T>(
  call: Pick<PaidRequest, 'remember'>,
  bill: Bill,
  render: (credits: number) => RenderedAnswer<T>,
): Promise<RenderedAnswer<T>> {
  const price = Number(bill.price);
  let answer: RenderedAnswer<T>;
  try {
    answer = render(price);
  } catch (error) {
    // The gateway itself failed to render the answer, so the caller does not pay.
    await bill.settle('rejected');
    throw error;
  }
  const credits = await bill.settle('completed', answerForReplay(call, answer));
  // The charge is below the price only when the operator absorbs the difference. Then the answer is
  // rendered again with the charge.
  return credits === price ? answer : render(credits);
}

/** The price of a whole answer as a header, for formats without a member for it. */
export function creditsHeader(credits: number): Record<string, string> {
  return { 'x-townhall-credits': String(credits) };
}

/** The items as server-sent events. */
export async function* asEvents<T>(
  items: AsyncIterable<T>,
  onError: (error: unknown) => void = () => {},
): AsyncGenerator<{ data: T }> {
  try {
    for await (const data of items) yield { data };
  } catch (error) {
    onError(error);
    throw error;
  }
}
