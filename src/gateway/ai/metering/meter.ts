// Meters one call in any format: a hold before the answer, checkpoints of the price while the answer streams, and one
// settlement before its end is sent. docs/guides/what-a-call-costs.md lists the price of each outcome.
import type { Clock } from '../../../kernel/clock.ts';
import type { Remember } from '../../../kernel/data/idempotency.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Alongside, FreeCall, Hold, Ledger, PaidCall } from '../../credits/index.ts';
import type { Identity } from '../../identity.ts';
import type { UsageFacts, UsageOutcome } from '../../usage/index.ts';
import type { Attempts, RunResult, Task } from '../attempts.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import {
  affordableOutput,
  type Bound,
  boundOf,
  type Demand,
  minimumOutput,
  longestOutput,
  insufficientCredits,
} from './bound.ts';
import { noTokens, priceOf, type Tokens, type Units } from './price.ts';
import { type Claim, isAbsurd, isBeyondLimit, tokensOfRequest, tokensOfText } from './token-count.ts';
import { createUsageAlarms, type UsageAlarmCounts, type UsageAlarms } from './usage-alarms.ts';

/** The call to meter. */
export interface MeteredCall {
  requestId: string;
  identity: Extract<Identity, { kind: 'user' | 'admin' }>;
  action: string;
  signal: AbortSignal;
  log: Log;
  demand: Demand;
  /** For calls with an Idempotency-Key: a call charged without an answer is not repeated either. */
  remember?: Remember;
}

export interface Meter {
  /** Runs the call over its models and holds the maximum price of each beforehand. A failed call costs nothing. */
  run<T>(attempts: Attempts, task: Omit<Task<T>, 'reserve'>): Promise<RunResult<T>>;
  /**
   * Aborts the upstream request when the caller disconnects or the hold is refused. If the provider may still send its
   * usage, the abort comes up to 2 s after the disconnect.
   */
  readonly signal: AbortSignal;
  /** The output limit to send where the caller sent none; undefined where none is needed. */
  limit(model: CatalogModel): number | undefined;
  /** Approves the output limit that is about to be sent, or returns a lower one. Throws 402. */
  limitSent(model: CatalogModel, tokens: number): Promise<number>;
  /** Counts bytes of text of the answer. */
  produced(kind: 'output' | 'reasoning', bytes: number): void;
  /** Marks the answer as complete; only its usage and the end of the stream may follow. */
  completed(): void;
  /** Whether the caller has disconnected and the stream is still read for the provider's usage. */
  readonly awaitsUsage: boolean;
  /** Records the usage that the provider reports. A later report replaces an earlier one. */
  claims(claim: Claim | undefined): void;
  /** Records used units of media. */
  uses(units: Units, options?: { estimated?: boolean }): void;
  /** Counts an alarm of the user: the provider claims a usage that cannot be. Repeated alarms stop paid calls. */
  reportAlarm(): void;
  /** Whether a model has begun to answer, so that no fallback can run. */
  readonly isAccepted: boolean;
  /** The price if the call completes now; 0 for administrators. */
  price(): bigint;
  /** Settles the call once; later calls return the first result. Resolves to the charged credits. */
  settle(outcome: UsageOutcome, alongside?: Alongside): Promise<number>;
}

export interface Metering {
  open(call: MeteredCall): Meter;
  /** Throws a 403 for a user whose paid calls are stopped after repeated alarms. */
  requirePayer(identity: Identity): void;
  alarms(): UsageAlarmCounts;
  /** Resolves when every call that was opened is settled. */
  settled(): Promise<void>;
}

export interface MeteringOptions {
  ledger: Pick<Ledger, 'hold' | 'canSkipHoldWait' | 'available' | 'record'>;
  clock: Pick<Clock, 'monotonicMs'>;
  /** How many alarms within an hour stop the paid calls of a user; 3 by default. */
  alarmsToStop?: number | undefined;
}

// Concurrent calls may take the balance between read and hold. Give up with 402 after four lost races.
const maximumHoldTries = 4;

/** Usage of a call. */
interface UsageCount {
  tokens: Tokens;
  units: Units;
  estimated: boolean;
  /** Whether all tokens are the gateway's own estimate. */
  isOwnCount: boolean;
  /** Why the provider's usage is rejected: not a count, or far above the bound. */
  doubt: 'faulty' | 'absurd' | undefined;
}

export function createMetering({ ledger, clock, alarmsToStop }: MeteringOptions): Metering {
  const open = new Set<Promise<unknown>>();
  const alarms = createUsageAlarms({ clock, alarmsToStop });
  return {
    open: (call) =>
      openMeter(call, {
        ledger,
        clock,
        alarms,
        track: (ending) => void open.add(ending.finally(() => open.delete(ending)).catch(() => {})),
      }),
    requirePayer(identity) {
      if (identity.kind === 'user') alarms.requireFew(identity.userId);
    },
    alarms: alarms.counts,
    async settled() {
      await Promise.allSettled(open);
    },
  };
}

/** A hold that is being written while the upstream request already runs. */
interface PendingHold {
  hold: Promise<Hold>;
  amount: bigint;
  isFree: boolean;
  /** The error that refused the hold; the upstream request is aborted then. */
  refusal: unknown;
}

// How long to read the stream for its usage after the caller has disconnected.
const usageWaitMs = 2_000;

interface MeterOptions extends MeteringOptions {
  alarms: UsageAlarms;
  track(ending: Promise<unknown>): void;
}

function openMeter(call: MeteredCall, { ledger, clock, alarms, track }: MeterOptions): Meter {
  const { identity, demand, signal, log, action } = call;
  const startedMs = clock.monotonicMs();
  const upstreamAbort = new AbortController();
  let hold: Hold | undefined;
  let pendingHold: PendingHold | undefined;
  let outputCap = Number.MAX_SAFE_INTEGER;
  let currentModel: CatalogModel | undefined;
  let bound: Bound | undefined;
  let isSent = false;
  let isSentOnce = false;
  let isAccepted = false;
  /** Bytes of text by kind, converted to tokens in total: rounding each chunk would depend on the chunk size. */
  let progress: { output: number; reasoning: number; firstMs: number | null } = {
    output: 0,
    reasoning: 0,
    firstMs: null,
  };
  let isComplete = false;
  let lastClaim: Claim | undefined;
  let mediaUsage: { units: Units; estimated: boolean } = { units: {}, estimated: false };
  let settlement: Promise<number> | undefined;
  let usageWait: { timer: NodeJS.Timeout; end: () => void } | undefined;
  if (signal.aborted) upstreamAbort.abort(signal.reason);
  signal.addEventListener('abort', onCallerAbort, { once: true });

  function onCallerAbort(): void {
    // An abort by this server carries a Problem as its reason and does not wait for usage.
    if (!mayGetUsage() || signal.reason instanceof Problem) return endUpstream();
    const { promise, resolve } = Promise.withResolvers<void>();
    track(promise);
    usageWait = { timer: setTimeout(endUpstream, usageWaitMs), end: resolve };
  }

  function endUpstream(): void {
    endUsageWait();
    upstreamAbort.abort(signal.reason);
    // Nothing was sent, so there is nothing to settle.
    if (isSent)
      settle('client_closed').catch((error: unknown) =>
        log.error({ err: error }, 'a call could not be settled'),
      );
  }

  function endUsageWait(): void {
    clearTimeout(usageWait?.timer);
    usageWait?.end();
    usageWait = undefined;
  }

  // The usage follows a complete answer at once. For media the own estimate is rough, so a short wait pays off.
  function mayGetUsage(): boolean {
    if (!isSent || settlement !== undefined || demand.size === undefined || lastClaim === 'faulty')
      return false;
    return lastClaim === undefined ? isComplete || demand.size.media > 0 : isComplete && !lastClaim.isFinal;
  }

  const isLimited = demand.limit !== undefined || demand.hasOutput === false || demand.size === undefined;

  function limit(model: CatalogModel): number | undefined {
    if (isLimited || model.rates === null || !canLimit(model)) return undefined;
    return Math.min(outputCap, longestOutput(model));
  }

  const boundFor = (model: CatalogModel) => boundOf(model, demand, limit(model));

  async function reserve(model: CatalogModel, chain: readonly CatalogModel[]): Promise<void> {
    if (identity.kind === 'user') {
      if (model.rates !== null) alarms.requireFew(identity.userId);
      if (hold === undefined && pendingHold === undefined)
        await startHold(identity, model, chain.slice(chain.indexOf(model) + 1));
      else if (boundFor(model).credits > reservedAmount()) {
        await waitForHold();
        await raiseHold(model);
      }
    }
    bound = boundFor(model);
    currentModel = model;
  }

  type Payer = Extract<Identity, { kind: 'user' }>;

  // Overlap the hold with the upstream request when the cached balance covers it twice. The answer still waits for the
  // hold (docs/decisions/2026-11-21-first-byte.md). Free calls never wait.
  async function startHold(
    payer: Payer,
    model: CatalogModel,
    others: readonly CatalogModel[],
  ): Promise<void> {
    const models = [model, ...others];
    const [paid, amount] = [paidCall(payer, model), highestBound(models)];
    const isFree = models.every(({ rates }) => rates === null);
    if (!isFree && !ledger.canSkipHoldWait(paid, amount)) {
      hold = await firstHold(paid, model, others);
      return;
    }
    const pending: PendingHold = { hold: ledger.hold(paid, amount), amount, isFree, refusal: undefined };
    pending.hold.catch((error: unknown) => {
      if (isFree) return;
      if (isInsufficient(error))
        log.warn(
          { model: model.id },
          'a call was begun, and then its credits were refused: others have spent them',
        );
      pending.refusal = error;
      upstreamAbort.abort(error);
    });
    pendingHold = pending;
  }

  const reservedAmount = () => hold?.amount ?? pendingHold?.amount ?? 0n;

  /** Resolves once the hold is written; throws if it is refused. */
  async function waitForHold(): Promise<void> {
    if (hold === undefined && pendingHold?.isFree === false) hold = await pendingHold.hold;
  }

  /** Forgets a hold that was refused. */
  function discardHold(): void {
    [pendingHold, currentModel, isSentOnce] = [undefined, undefined, false];
  }

  function paidCall({ userId, bureauId, tokenId }: Payer, model: CatalogModel): PaidCall {
    return {
      requestId: call.requestId,
      userId,
      bureauId,
      tokenId,
      action,
      model: model.id,
      provider: model.provider,
    };
  }

  const highestBound = (models: readonly CatalogModel[]) =>
    models.reduce((most, one) => larger(most, boundFor(one).credits), 0n);

  // Hold the highest price of all models in the chain; if unaffordable, that of this model alone.
  async function firstHold(
    paid: PaidCall,
    model: CatalogModel,
    others: readonly CatalogModel[],
  ): Promise<Hold> {
    const all = [model, ...others];
    let refusal: unknown;
    try {
      return await ledger.hold(paid, highestBound(all));
    } catch (error) {
      if (!isInsufficient(error)) throw error;
      refusal = error;
    }
    let [available, affordable] = [0n, -1];
    for (let tries = 0; tries < maximumHoldTries; tries += 1) {
      available = await ledger.available(paid.userId, paid.tokenId);
      outputCap = Number.MAX_SAFE_INTEGER;
      const models = [all, [model]].find((some) => fits(some, available));
      affordable = affordableOutput([model], demand, available);
      if (models === undefined) break;
      try {
        return await ledger.hold(paid, highestBound(models));
      } catch (error) {
        if (!isInsufficient(error)) throw error;
        refusal = error;
      }
    }
    outputCap = Number.MAX_SAFE_INTEGER;
    throw insufficientCredits(demand, affordable, boundFor(model).credits, available, refusal);

    // Lowers the output limit that the gateway adds, if that makes the price affordable.
    function fits(models: readonly CatalogModel[], credits: bigint): boolean {
      if (highestBound(models) <= credits) return true;
      if (isLimited || !models.every((one) => one.rates === null || canLimit(one))) return false;
      const most = affordableOutput(models, demand, credits);
      if (most < minimumOutput) return false;
      outputCap = most;
      return highestBound(models) <= credits;
    }
  }

  async function raiseHold(model: CatalogModel): Promise<void> {
    const currentHold = hold as Hold;
    const price = boundFor(model).credits;
    try {
      await currentHold.raise(price);
    } catch (error) {
      if (!isInsufficient(error)) throw error;
      // The current hold may cover a shorter answer.
      const affordable = affordableOutput([model], demand, currentHold.amount);
      if (isLimited || !canLimit(model) || affordable < minimumOutput) {
        const available = await availableIncludingHold(currentHold);
        throw insufficientCredits(
          demand,
          affordableOutput([model], demand, available),
          price,
          available,
          error,
        );
      }
      outputCap = Math.min(outputCap, affordable);
    }
  }

  /** Credits that the call can use: its hold and the available balance. */
  async function availableIncludingHold(currentHold: Hold): Promise<bigint> {
    return (
      currentHold.amount +
      (identity.kind === 'user' ? await ledger.available(identity.userId, identity.tokenId) : 0n)
    );
  }

  async function limitSent(model: CatalogModel, tokens: number): Promise<number> {
    const expected = bound?.output ?? 0;
    if (tokens <= expected || model.rates === null) return tokens;
    await waitForHold();
    if (hold === undefined) return tokens;
    const price = boundOf(model, { ...demand, limit: { tokens, member: '' } }).credits;
    try {
      await hold.raise(price);
    } catch (error) {
      if (!isInsufficient(error)) throw error;
      // An added limit may stay lower if reasoning still leaves room for an answer.
      const thinking = tokens - expected;
      if (!isLimited && expected - thinking >= minimumOutput) return expected;
      throw insufficientCredits(
        { ...demand, limit: undefined, limitMember: undefined },
        -1,
        price,
        await availableIncludingHold(hold),
        error,
      );
    }
    bound = { ...boundFor(model), output: tokens, credits: price };
    return tokens;
  }

  /** The gateway's own token estimate, capped by the output limit and thereby by the bound of the call. */
  function estimateTokens(): Tokens {
    const limit = outputLimit();
    const output = Math.min(tokensOfText(progress.output), limit);
    const input = demand.size === undefined ? 0 : tokensOfRequest(demand.size, demand.repeatedBytes);
    return {
      ...noTokens,
      input: Math.min(input, bound?.input ?? 0),
      output,
      reasoning: Math.min(tokensOfText(progress.reasoning), limit - output),
    };
  }

  const outputLimit = () => (bound === undefined ? 0 : bound.output * bound.choices);

  function countUsage(outcome: UsageOutcome): UsageCount {
    const result = (tokens: Tokens, estimated: boolean, more: Partial<UsageCount> = {}): UsageCount => ({
      tokens,
      units: mediaUsage.units,
      estimated: estimated || mediaUsage.estimated,
      isOwnCount: false,
      doubt: undefined,
      ...more,
    });
    if (!isSent || outcome === 'rejected') return { ...result(noTokens, false), units: {} };
    if (demand.size === undefined) return result(noTokens, false);
    if (lastClaim === undefined) return result(estimateTokens(), true, { isOwnCount: true });
    if (lastClaim === 'faulty') return result(estimateTokens(), true, { isOwnCount: true, doubt: 'faulty' });
    if (bound !== undefined && isAbsurd(lastClaim.tokens, { input: bound.input, output: outputLimit() })) {
      return result({ ...noTokens, input: bound.input, output: outputLimit() }, true, { doubt: 'absurd' });
    }
    if (lastClaim.isFinal) return result(lastClaim.tokens, false);
    // The provider reported its usage at the start of the stream only: estimate the output.
    const { output, reasoning } = estimateTokens();
    return result(
      { ...lastClaim.tokens, output: Math.max(lastClaim.tokens.output, output), reasoning },
      true,
    );
  }

  function buildFacts(outcome: UsageOutcome, { tokens, units, estimated }: UsageCount): UsageFacts {
    return {
      action,
      model: currentModel?.id ?? null,
      provider: currentModel?.provider ?? null,
      tokens,
      units,
      outcome,
      estimated,
      ttftMs: progress.firstMs === null ? null : Math.round(progress.firstMs - startedMs),
      durationMs: Math.round(clock.monotonicMs() - startedMs),
    };
  }

  // Charge an impossible usage at the bound: the request may have cost what the provider claims.
  function priceToCharge(count: UsageCount): bigint {
    if (currentModel === undefined) return 0n;
    if (count.doubt === 'absurd') return smaller(bound?.credits ?? 0n, reservedAmount());
    const price = priceOf(currentModel, count);
    return count.isOwnCount ? smaller(price, reservedAmount()) : price;
  }

  function raiseAlarms({ doubt, isOwnCount }: UsageCount): void {
    if (doubt !== undefined) {
      const charged = doubt === 'absurd' ? 'the bound of the call is charged' : 'our own count is charged';
      log.error(
        {
          alarm: 'unbelievable_usage',
          model: currentModel?.id,
          provider: currentModel?.provider,
          claimed: lastClaim,
          held: String(reservedAmount()),
        },
        `a provider told a usage that cannot be; ${charged}`,
      );
    }
    if (doubt === 'absurd') reportAlarm();
    const output = tokensOfText(progress.output) + tokensOfText(progress.reasoning);
    if (isOwnCount && isBeyondLimit(output, outputLimit())) {
      log.error(
        {
          alarm: 'output_beyond_limit',
          model: currentModel?.id,
          provider: currentModel?.provider,
          output,
          limit: outputLimit(),
        },
        'a provider sent far more than the limit of the answer; the limit is charged',
      );
    }
  }

  function reportAlarm(): void {
    if (identity.kind === 'user') alarms.report(identity.userId);
  }

  function settle(outcome: UsageOutcome, alongside?: Alongside): Promise<number> {
    if (settlement === undefined) {
      signal.removeEventListener('abort', onCallerAbort);
      // The caller disconnected before the end if the stream was only read for its usage.
      settlement = settleNow(
        usageWait === undefined || outcome === 'rejected' ? outcome : 'client_closed',
        alongside,
      );
      track(settlement);
      endUsageWait();
      if (signal.aborted) upstreamAbort.abort(signal.reason);
    }
    return settlement;
  }

  async function settleNow(outcome: UsageOutcome, alongside?: Alongside): Promise<number> {
    const count = countUsage(outcome);
    raiseAlarms(count);
    const usageFacts = buildFacts(outcome, count);
    if (pendingHold !== undefined && hold === undefined) {
      try {
        hold = await pendingHold.hold;
      } catch (error) {
        // No part of the answer was sent, so only a completed call has to report the refusal.
        if (outcome === 'completed' || pendingHold.isFree) throw error;
        return 0;
      }
    }
    if (hold === undefined) {
      if (identity.kind === 'admin' && currentModel !== undefined) {
        const free: FreeCall = {
          requestId: call.requestId,
          userId: null,
          bureauId: null,
          tokenId: identity.tokenId,
          action,
          model: usageFacts.model,
          provider: usageFacts.provider,
        };
        await ledger.record(free, usageFacts);
      }
      return 0;
    }
    const price = priceToCharge(count);
    const { charged } = await hold.settle(
      price,
      usageFacts,
      alongside ?? (price > 0n ? replayWithoutAnswer() : undefined),
    );
    return Number(charged);
  }

  function replayWithoutAnswer(): Alongside | undefined {
    const answer = call.remember?.inSettlement(null);
    return answer && { answer };
  }

  return {
    signal: upstreamAbort.signal,
    limit,
    limitSent,
    get isAccepted() {
      return isAccepted;
    },
    async run(attempts, task) {
      try {
        const result = await attempts.run({
          ...task,
          reserve: (model) => reserve(model, task.chain),
          prepare: (model, effort) => wrapAttempt(task.prepare(model, effort)),
        });
        isAccepted = true;
        return result;
      } catch (error) {
        if (pendingHold?.refusal !== undefined) discardHold();
        const outcome = signal.aborted ? 'client_closed' : isSentOnce ? 'upstream_failed' : 'rejected';
        if (hold !== undefined || pendingHold !== undefined || (currentModel !== undefined && isSentOnce))
          await settle(outcome);
        signal.removeEventListener('abort', onCallerAbort);
        throw error;
      }
    },
    produced(kind, bytes) {
      progress[kind] += bytes;
      progress.firstMs ??= clock.monotonicMs();
      if (hold === undefined || currentModel === undefined || hold.amount === 0n || settlement !== undefined)
        return;
      const count = countUsage('completed');
      hold.checkpoint(
        priceToCharge(count),
        buildFacts('client_closed', count),
        tokensOfText(progress.output + progress.reasoning),
      );
    },
    completed() {
      isComplete = true;
    },
    get awaitsUsage() {
      return usageWait !== undefined && mayGetUsage();
    },
    reportAlarm,
    claims(claim) {
      if (claim !== undefined) lastClaim = claim;
    },
    uses(units, { estimated = false } = {}) {
      progress.firstMs ??= clock.monotonicMs();
      mediaUsage = { units: { ...mediaUsage.units, ...units }, estimated: mediaUsage.estimated || estimated };
    },
    price() {
      return hold === undefined && pendingHold === undefined ? 0n : priceToCharge(countUsage('completed'));
    },
    settle,
  };

  // Reset the counts for each attempt; a failed attempt is not charged.
  function wrapAttempt<T>(send: (firstMs: number) => Promise<T>): (firstMs: number) => Promise<T> {
    return async (firstMs) => {
      progress = { output: 0, reasoning: 0, firstMs: null };
      isComplete = false;
      lastClaim = undefined;
      mediaUsage = { units: {}, estimated: false };
      isSent = true;
      isSentOnce = true;
      try {
        const answer = await send(firstMs);
        await waitForHold();
        return answer;
      } catch (error) {
        // An attempt that failed by itself is not charged, even if the caller disconnected meanwhile.
        if (!signal.aborted || !upstreamAbort.signal.aborted) isSent = false;
        // Report the refused hold rather than the abort error of the provider adapter.
        throw pendingHold?.refusal ?? error;
      }
    };
  }
}

// Whether the provider accepts an output limit that the gateway adds.
function canLimit({ providerEntry: by }: Pick<CatalogModel, 'providerEntry'>): boolean {
  return by.kind === 'local' || by.output_limit_member !== undefined;
}

function isInsufficient(error: unknown): boolean {
  return error instanceof Problem && error.kind === 'insufficient_credits';
}

function smaller(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

function larger(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}
