// The bill of one call: a reservation of its highest possible price before the request is
// sent, checkpoints of the price while the answer streams, and one settlement before the end of
// the answer is sent to the caller. docs/guides/what-a-call-costs.md lists the charge of each outcome.
// The state is `open → reserved → sent → streaming → settled | released`, with a method per transition.
import type { Clock } from '../../../kernel/clock.ts';
import type { Remember } from '../../../kernel/data/idempotency.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Alongside, FreeCall, Ledger, PaidCall, Reservation } from '../../credits/index.ts';
import type { Identity } from '../../identity.ts';
import type { UsageFacts, UsageOutcome } from '../../usage/index.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import { type Bound, boundOf, type Demand, minimumOutput } from '../metering/bound.ts';
import { reasonsAt } from '../metering/hidden-reasoning.ts';
import type { Units } from '../metering/price.ts';
import { type Claim, tokensOfText } from '../metering/token-count.ts';
import type { TokenCounter } from '../metering/token-counter.ts';
import { countUsage, inputPrice, nothingUsed, priceToCharge, type UsageCount } from './count.ts';
import { logDoubts } from './doubts.ts';
import { type CallAttempts, usageFacts } from './facts.ts';
import { newProgress, type Progress, takeCheckpoint, type TextKind } from './progress.ts';
import { isUnlimited, termsWithin } from './reservable.ts';
import { isInsufficient, raiseReservation, refuseRaisedLimit, reserveHighest } from './reserve.ts';
import type { RunningCalls } from './running-calls.ts';
import { UpstreamAbort } from './upstream-abort.ts';
import type { UsageAlarms } from './usage-alarms.ts';

/** The call to bill. */
export interface BilledCall {
  requestId: string;
  identity: Extract<Identity, { kind: 'user' | 'admin' }>;
  action: string;
  signal: AbortSignal;
  log: Log;
  demand: Demand;
  /**
   * Units to charge when the caller disconnects before the answer reports them; for
   * calls that are priced only by units.
   */
  unitsIfDisconnected?: Units | undefined;
  /**
   * Stores the answer of a call with an Idempotency-Key. If the call was charged without an answer, a
   * retry with the same key does not execute it again.
   */
  remember?: Remember;
}

export interface BillOptions {
  ledger: Pick<Ledger, 'reserve' | 'hold' | 'available' | 'record'>;
  clock: Pick<Clock, 'monotonicMs'>;
  alarms: UsageAlarms;
  tokenCounter: TokenCounter;
  running: RunningCalls;
  /** Receives promises that must settle before the service closes. */
  track(settlement: Promise<unknown>): void;
}

/** A resource that is occupied until the bill ends, such as a key of the provider. */
export interface Releasable {
  release(): void;
}

/** The called model, its bound, and its reservation; an administrator's call reserves nothing. */
interface Terms {
  model: CatalogModel;
  bound: Bound;
  /** The output limit to add to the request, in tokens. */
  limit: number | undefined;
  reservation: Reservation | undefined;
}

export type BillState =
  | { phase: 'open' }
  /** `wasSent`: an attempt was sent and failed. */
  | (Terms & { phase: 'reserved'; wasSent: boolean })
  | (Terms & { phase: 'sent'; progress: Progress })
  | (Terms & { phase: 'streaming'; progress: Progress })
  | { phase: 'settled'; charge: Promise<number> }
  | { phase: 'released' };

type ActiveState = Extract<BillState, { progress: Progress }>;
type TermedState = Extract<BillState, Terms>;

export class Bill {
  readonly #call: BilledCall;
  readonly #options: BillOptions;
  readonly #upstream: UpstreamAbort;
  readonly #startedMs: number;
  /** The demand of the call. A rejected reservation replaces it with a demand of a tighter bound. */
  #demand: Demand;
  #isRunning = false;
  #backend: Releasable | undefined;
  #attempts: CallAttempts = {};
  #state: BillState = { phase: 'open' };

  constructor(call: BilledCall, options: BillOptions) {
    this.#call = call;
    this.#demand = call.demand;
    this.#options = options;
    this.#startedMs = options.clock.monotonicMs();
    this.#upstream = new UpstreamAbort(call.signal, {
      mayGetUsage: () => this.#mayGetUsage(),
      onAbort: () => this.#settleAbandoned(),
      track: (wait) => options.track(wait),
    });
  }

  get phase(): BillState['phase'] {
    return this.#state.phase;
  }

  /**
   * Aborts the upstream request when the caller disconnects, up to 2 s later if the
   * provider may still send its usage.
   */
  get signal(): AbortSignal {
    return this.#upstream.signal;
  }

  /** Whether the caller has disconnected and the answer is still read for the provider's usage. */
  get awaitsUsage(): boolean {
    return this.#upstream.isWaiting && this.#mayGetUsage();
  }

  /**
   * open | reserved → reserved. Reserves the highest price of the model and its
   * fallbacks, or of the model alone when the credits do not cover that. Throws a
   * 402, a 403 after repeated alarms, and the 503 of the ledger.
   */
  async reserve(model: CatalogModel, fallbacks: readonly CatalogModel[]): Promise<void> {
    const state = this.#state;
    if (state.phase !== 'open' && state.phase !== 'reserved') throw unexpectedPhase(state, 'reserve');
    const reservation = await this.#reservationFor(state, model, fallbacks);
    const demand = this.#demand;
    this.#state = {
      phase: 'reserved',
      model,
      ...termsWithin(model, demand, reservation?.amount),
      reservation,
      wasSent: state.phase === 'reserved' && state.wasSent,
    };
  }

  async #reservationFor(
    state: Extract<BillState, { phase: 'open' | 'reserved' }>,
    model: CatalogModel,
    fallbacks: readonly CatalogModel[],
  ): Promise<Reservation | undefined> {
    const { identity } = this.#call;
    const demand = this.#demand;
    if (identity.kind === 'admin') return undefined;
    if (model.rates !== null) this.#options.alarms.requireFew(identity.userId);
    const { ledger, tokenCounter } = this.#options;
    if (state.phase === 'open' || state.reservation === undefined) {
      const models = [model, ...fallbacks];
      if (models.some(({ rates }) => rates !== null)) this.#begin(identity.userId);
      const result = await reserveHighest(this.#paidCall(identity, model), {
        ledger,
        models,
        demand,
        isKeyed: this.#isKeyed(),
        isAlone: () => this.#options.running.count(identity.userId) <= 1,
        tokenCounter,
      });
      this.#demand = result.demand;
      return result.reservation;
    }
    await raiseReservation(state.reservation, { ledger, model, demand, payer: identity });
    return state.reservation;
  }

  #begin(userId: string): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#options.running.begin(userId);
  }

  #end(): void {
    const { identity } = this.#call;
    if (this.#isRunning && identity.kind === 'user') this.#options.running.end(identity.userId);
    this.#isRunning = false;
    this.#backend?.release();
    this.#backend = undefined;
    this.#upstream.end();
  }

  /**
   * reserved → sent. Call it before each attempt, with the attempt's effort. Throws
   * a 503 when the lease on the credits has expired.
   */
  markSent(effort?: string): void {
    const state = this.#state;
    if (state.phase !== 'reserved') throw unexpectedPhase(state, 'markSent');
    const { model, bound, limit, reservation } = state;
    reservation?.markSent({
      model: model.id,
      provider: model.provider,
      inputCredits: inputPrice(model, this.#demand, bound),
      facts: { action: this.#call.action, model: model.id, provider: model.provider },
    });
    const reasoningSinceMs = reasonsAt(model, effort) ? this.#options.clock.monotonicMs() : undefined;
    const progress = newProgress(reasoningSinceMs);
    this.#state = { phase: 'sent', model, bound, limit, reservation, progress };
  }

  /**
   * sent → reserved. A failed attempt is not charged. An attempt that was aborted
   * because the caller disconnected stays sent: the provider has read its input.
   */
  failAttempt(): void {
    const state = this.#state;
    if (state.phase !== 'sent') return;
    if (this.#call.signal.aborted && this.#upstream.signal.aborted) return;
    const { model, bound, limit, reservation } = state;
    this.#state = { phase: 'reserved', model, bound, limit, reservation, wasSent: true };
  }

  /**
   * sent → streaming. The answer has begun in the last of `attempts` attempts: it is charged from here
   * on, and no retry or fallback follows. The backend is released when the bill ends.
   */
  follow(attempts: number, backend?: Releasable): void {
    this.#attempts = { attempts };
    const state = this.#state;
    if (state.phase === 'settled' || state.phase === 'released') backend?.release();
    else this.#backend = backend;
    if (state.phase !== 'sent') return;
    const streaming = { ...state, phase: 'streaming' as const };
    this.#state = streaming;
    const { progress } = streaming;
    // The first text of a stream was counted before this point, when the attempt could still be retried,
    // so its checkpoint is taken now.
    if (progress.firstMs !== null && takeCheckpoint(progress, progress.firstMs)) this.#checkpoint(streaming);
  }

  /** Keeps the code of the error that ended the answer, for the usage record. */
  noteFailure(error: unknown): void {
    if (error instanceof Problem) this.#attempts = { ...this.#attempts, failureCode: error.code };
  }

  /**
   * open | reserved → released; sent, or reserved after a failed attempt → settled. Ends the bill of a call
   * without an answer in `attempts` attempts. Never throws.
   */
  async close(error: unknown, attempts: number): Promise<void> {
    this.#attempts = { attempts };
    this.noteFailure(error);
    const state = this.#state;
    if (state.phase === 'settled') await state.charge.catch(() => undefined);
    else if (state.phase === 'sent' || (state.phase === 'reserved' && state.wasSent))
      await this.#settleFailed();
    else this.#release(state);
  }

  #release(state: BillState): void {
    if (state.phase === 'reserved') state.reservation?.release();
    this.#state = { phase: 'released' };
    this.#end();
  }

  async #settleFailed(): Promise<void> {
    try {
      await this.settle(this.#call.signal.aborted ? 'client_closed' : 'upstream_failed');
    } catch (error) {
      this.#logUnsettled(error);
    }
  }

  /**
   * reserved | sent | streaming → settled. Charges once, in credits; a later call returns the
   * first result. `alongside` is stored with the charge. Throws the 503 of a ledger
   * that could not store the charge.
   */
  settle(outcome: UsageOutcome, alongside?: Alongside): Promise<number> {
    const state = this.#state;
    if (state.phase === 'settled') return state.charge;
    if (state.phase === 'open' || state.phase === 'released') throw unexpectedPhase(state, 'settle');
    // While the bill waits for the usage, the caller has already disconnected.
    const hasDisconnected = this.#upstream.isWaiting && outcome !== 'rejected';
    const charge = this.#charge(state, hasDisconnected ? 'client_closed' : outcome, alongside);
    this.#state = { phase: 'settled', charge };
    this.#options.track(charge);
    this.#end();
    return charge;
  }

  /**
   * The output limit to send when the caller sent none, in tokens; undefined when none is needed.
   */
  get outputLimit(): number | undefined {
    return 'limit' in this.#state ? this.#state.limit : undefined;
  }

  /**
   * Returns the allowed output limit when an SDK package raises it for reasoning:
   * the raised limit, once it is reserved, or the lower reserved one. Throws a 402.
   */
  async approveOutputLimit(tokens: number): Promise<number> {
    const state = this.#state;
    if (!('bound' in state)) return tokens;
    const { model, bound, reservation } = state;
    if (tokens <= bound.output || model.rates === null || reservation === undefined) return tokens;
    const { identity } = this.#call;
    const demand = this.#demand;
    // Only the bound uses this demand, so the limit needs no name of a member.
    const raisedBound = boundOf(model, { ...demand, limit: { tokens, member: '' } });
    try {
      await reservation.raise(raisedBound.credits);
    } catch (error) {
      if (!isInsufficient(error) || identity.kind !== 'user') throw error;
      // A limit that the gateway added itself can stay lower, if reasoning leaves room for an answer.
      const reasoningTokens = tokens - bound.output;
      if (isUnlimited(demand) && bound.output - reasoningTokens >= minimumOutput) return bound.output;
      throw await refuseRaisedLimit(error, {
        ledger: this.#options.ledger,
        payer: identity,
        reserved: reservation.amount,
        demand,
        price: raisedBound.credits,
      });
    }
    if (this.#state === state) this.#state = { ...state, bound: raisedBound };
    return tokens;
  }

  /** Counts bytes of the answer's text. */
  countText(kind: TextKind, bytes: number): void {
    const state = this.#state;
    if (!isActive(state)) return;
    const { progress } = state;
    const nowMs = this.#options.clock.monotonicMs();
    progress.bytes[kind] += bytes;
    progress.firstMs ??= nowMs;
    if (state.phase === 'streaming' && takeCheckpoint(progress, nowMs)) this.#checkpoint(state);
  }

  /** The bytes of text that have been counted. */
  get textBytes(): number {
    if (!isActive(this.#state)) return 0;
    const { output, reasoning } = this.#state.progress.bytes;
    return output + reasoning;
  }

  #checkpoint(state: ActiveState): void {
    const { reservation, progress } = state;
    if (reservation === undefined || reservation.amount === 0n) return;
    const count = countUsage('completed', { ...state, demand: this.#demand });
    // If this process dies, the recovery of the call replaces the outcome in these facts.
    reservation.checkpoint(
      this.#priceOf(state, count),
      this.#facts(state, 'client_closed', count),
      tokensOfText(progress.bytes.output + progress.bytes.reasoning),
    );
  }

  /** Marks the answer as complete; only its usage and the end of the stream may follow. */
  markComplete(): void {
    if (isActive(this.#state)) this.#state.progress.isComplete = true;
  }

  /** Records the usage that the provider reports. A later report replaces an earlier one. */
  recordUsage(claim: Claim | undefined): void {
    if (claim !== undefined && isActive(this.#state)) this.#state.progress.claim = claim;
  }

  /** Records used units of media. */
  recordUnits(units: Units, { estimated = false }: { estimated?: boolean } = {}): void {
    if (!isActive(this.#state)) return;
    const { progress } = this.#state;
    progress.firstMs ??= this.#options.clock.monotonicMs();
    progress.media = {
      units: { ...progress.media.units, ...units },
      estimated: progress.media.estimated || estimated,
    };
  }

  /**
   * Counts an alarm for the user because the provider reported an impossible usage. Repeated alarms
   * stop the user's paid calls.
   */
  reportAlarm(): void {
    const { identity } = this.#call;
    if (identity.kind === 'user') this.#options.alarms.report(identity.userId);
  }

  /** The price in credits if the call completes now; 0 for administrators. */
  get price(): bigint {
    const state = this.#state;
    if (!isActive(state) || state.reservation === undefined) return 0n;
    return this.#priceOf(state, countUsage('completed', { ...state, demand: this.#demand }));
  }

  async #charge(state: TermedState, outcome: UsageOutcome, alongside?: Alongside): Promise<number> {
    const { reservation } = state;
    const count = this.#finalCount(state, outcome);
    const facts = this.#facts(state, outcome, count);
    if (reservation === undefined) {
      await this.#recordFree(facts);
      return 0;
    }
    const price = this.#priceOf(state, count);
    const replay = alongside ?? (price > 0n ? this.#replayWithoutAnswer() : undefined);
    const { charged } = await reservation.settle(price, facts, replay);
    return Number(charged);
  }

  #finalCount(state: TermedState, outcome: UsageOutcome): UsageCount {
    if (!isActive(state)) return nothingUsed;
    const disconnectedMs = outcome === 'client_closed' ? this.#options.clock.monotonicMs() : undefined;
    const { unitsIfDisconnected } = this.#call;
    const input = { ...state, demand: this.#demand, disconnectedMs, unitsIfDisconnected };
    const count = countUsage(outcome, input);
    logDoubts(this.#call.log, count, { ...input, reserved: state.reservation?.amount ?? 0n });
    if (count.doubt === 'absurd') this.reportAlarm();
    return count;
  }

  #priceOf({ model, bound, reservation }: Terms, count: UsageCount): bigint {
    return priceToCharge(model, count, { bound, reserved: reservation?.amount ?? 0n });
  }

  #facts(state: TermedState, outcome: UsageOutcome, count: UsageCount): UsageFacts {
    const call = { action: this.#call.action, model: state.model, attempts: this.#attemptsOf(outcome) };
    return usageFacts(call, outcome, count, {
      startedMs: this.#startedMs,
      firstMs: isActive(state) ? state.progress.firstMs : null,
      nowMs: this.#options.clock.monotonicMs(),
    });
  }

  #attemptsOf(outcome: UsageOutcome): CallAttempts {
    const { failureCode, ...attempts } = this.#attempts;
    if (outcome === 'completed' || outcome === 'client_closed') return attempts;
    return { ...attempts, failureCode: failureCode ?? usualCodes[outcome] };
  }

  async #recordFree(facts: UsageFacts): Promise<void> {
    const { requestId, identity, action } = this.#call;
    const { model, provider } = facts;
    const { tokenId } = identity;
    const call: FreeCall = { requestId, userId: null, bureauId: null, tokenId, action, model, provider };
    await this.#options.ledger.record(call, facts);
  }

  #paidCall(
    { userId, bureauId, tokenId }: Extract<Identity, { kind: 'user' }>,
    { id, provider }: CatalogModel,
  ): PaidCall {
    const { requestId, action } = this.#call;
    return { requestId, userId, bureauId, tokenId, action, model: id, provider };
  }

  #isKeyed(): boolean {
    return this.#replayWithoutAnswer() !== undefined;
  }

  #replayWithoutAnswer(): Alongside | undefined {
    const answer = this.#call.remember?.inSettlement(null);
    return answer && { answer };
  }

  // The provider sends its usage right after a complete answer. A call with media waits for it even when
  // the answer is incomplete, because the gateway's own estimate is rough.
  #mayGetUsage(): boolean {
    const { size } = this.#demand;
    if (!isActive(this.#state) || size === undefined) return false;
    const { claim, isComplete } = this.#state.progress;
    if (claim === 'faulty') return false;
    return claim === undefined ? isComplete || size.media > 0 : isComplete && !claim.isFinal;
  }

  // Settles a sent call whose caller disconnected. A call that was not sent is released by `close`.
  #settleAbandoned(): void {
    if (isActive(this.#state))
      this.settle('client_closed').catch((error: unknown) => this.#logUnsettled(error));
  }

  #logUnsettled(error: unknown): void {
    this.#call.log.error({ err: error }, 'a call could not be settled');
  }
}

// The failure codes of calls that ended without a Problem.
const usualCodes = { upstream_failed: 'upstream_failed', rejected: 'internal_error' };

function isActive(state: BillState): state is ActiveState {
  return state.phase === 'sent' || state.phase === 'streaming';
}

function unexpectedPhase({ phase }: BillState, transition: string): Error {
  return new Error(`A bill cannot ${transition} in the phase ${phase}.`);
}
