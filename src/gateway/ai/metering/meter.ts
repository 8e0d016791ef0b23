// The meter of one call, the same for every wire: a hold before anything is answered, the price of what came so far
// while it comes, and one settlement before the caller hears the end. Which end costs what is one table, in
// docs/guides/what-a-call-costs.md; this file is where it is kept.
import type { Clock } from '../../../kernel/clock.ts';
import type { Remember } from '../../../kernel/data/idempotency.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Alongside, FreeCall, Hold, Ledger, PaidCall } from '../../credits/index.ts';
import type { Identity } from '../../identity.ts';
import type { UsageFacts, UsageOutcome } from '../../usage/index.ts';
import type { Attempts, Ran, Task } from '../attempts.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import {
  affordableOutput,
  type Bound,
  boundOf,
  type Demand,
  leastOutput,
  longestOutput,
  tooDear,
} from './bound.ts';
import { noTokens, priceOf, type Tokens, type Units } from './price.ts';
import { type Claim, isAbsurd, isBeyondLimit, tokensOfRequest, tokensOfText } from './token-count.ts';
import { createUsageAlarms, type UsageAlarmCounts, type UsageAlarms } from './usage-alarms.ts';

/** What is metered. */
export interface Metered {
  requestId: string;
  identity: Extract<Identity, { kind: 'user' | 'admin' }>;
  action: string;
  signal: AbortSignal;
  log: Log;
  demand: Demand;
  /** Of a call with an Idempotency-Key: what is charged without an answer is not done again either. */
  remember?: Remember;
}

export interface Meter {
  /** Runs the call over its models, each of them paid for before it is asked; a call that fails costs nothing. */
  run<T>(attempts: Attempts, task: Omit<Task<T>, 'reserve'>): Promise<Ran<T>>;
  /**
   * Ends the request to the provider: the caller has left, or the credits that the call began with were refused. Where
   * the provider may still send its usage, it comes up to 2 s after the caller has left.
   */
  readonly signal: AbortSignal;
  /** The output limit to send where the caller sent none; undefined where none is needed. */
  limit(model: CatalogModel): number | undefined;
  /** Tells what limit is really going out; resolves to the one that may. Throws 402. */
  limitSent(model: CatalogModel, tokens: number): Promise<number>;
  /** A piece of the answer has come: so many bytes of text of the kind. */
  produced(kind: 'output' | 'reasoning', bytes: number): void;
  /** The answer, or a part of it, is complete; only the usage and the end of the stream may follow. */
  completed(): void;
  /** Whether the caller has left and the provider may still send its usage, so that its answer is read on. */
  readonly awaitsUsage: boolean;
  /** The provider says what was used. A later word replaces an earlier one. */
  claims(claim: Claim | undefined): void;
  /** So much of a medium was used. */
  uses(units: Units, options?: { estimated?: boolean }): void;
  /** Counts an alarm of the user: the provider claims a usage that cannot be. Repeated alarms stop paid calls. */
  reportAlarm(): void;
  /** Whether the model's answer has begun to reach the caller, so that no other will be asked. */
  readonly isAccepted: boolean;
  /** What its caller pays for the call if it ends well now; nothing for an administrator's. */
  price(): bigint;
  /** Ends the call, once; later calls answer as the first. Resolves to what was charged. */
  settle(outcome: UsageOutcome, alongside?: Alongside): Promise<number>;
}

export interface Metering {
  open(call: Metered): Meter;
  /** Throws a 403 for a user whose paid calls are stopped after repeated alarms. */
  requirePayer(identity: Identity): void;
  alarms(): UsageAlarmCounts;
  /** Resolves when every call that was opened is settled. */
  settled(): Promise<void>;
}

export interface MeteringNeeds {
  ledger: Pick<Ledger, 'hold' | 'canSkipHoldWait' | 'available' | 'record'>;
  clock: Pick<Clock, 'monotonicMs'>;
  /** How many alarms within an hour stop the paid calls of a user; 3 by default. */
  alarmsToStop?: number | undefined;
}

// Others spend the same credits meanwhile; whoever loses so often in a row is told that there are none.
const mostTries = 4;

/** What a call has used. */
interface Count {
  tokens: Tokens;
  units: Units;
  estimated: boolean;
  /** Whether all tokens are by our own count. */
  isOwn: boolean;
  /** Why the provider's usage is not taken: it is no count, or it is far above the bound. */
  doubt: 'faulty' | 'absurd' | undefined;
}

export function createMetering({ ledger, clock, alarmsToStop }: MeteringNeeds): Metering {
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

/** A hold that is being written down while the call has begun. */
interface Coming {
  hold: Promise<Hold>;
  amount: bigint;
  isFree: boolean;
  /** Why there is no hold; what goes on at the provider is over then. */
  refusal: unknown;
}

// How long an answer is read on after the caller has left, where the provider's usage may follow.
const usageWaitMs = 2_000;

interface MeterNeeds extends MeteringNeeds {
  alarms: UsageAlarms;
  track(ending: Promise<unknown>): void;
}

function openMeter(call: Metered, { ledger, clock, alarms, track }: MeterNeeds): Meter {
  const { identity, demand, signal, log, action } = call;
  const startedMs = clock.monotonicMs();
  /** Ends the request to the provider. */
  const cut = new AbortController();
  let hold: Hold | undefined;
  let coming: Coming | undefined;
  let cap = Number.MAX_SAFE_INTEGER;
  let ran: CatalogModel | undefined;
  let bound: Bound | undefined;
  let isSent = false;
  let isSentOnce = false;
  let isAccepted = false;
  /** Bytes of text by kind. They are counted as tokens all together, so that the size of the pieces changes nothing. */
  let made: { output: number; reasoning: number; firstMs: number | null } = {
    output: 0,
    reasoning: 0,
    firstMs: null,
  };
  let isComplete = false;
  let claimed: Claim | undefined;
  let used: { units: Units; estimated: boolean } = { units: {}, estimated: false };
  let settlement: Promise<number> | undefined;
  let usageWait: { timer: NodeJS.Timeout; end: () => void } | undefined;
  if (signal.aborted) cut.abort(signal.reason);
  signal.addEventListener('abort', gone, { once: true });

  function gone(): void {
    // A call that this server ends has a Problem as its reason, and ends at once.
    if (!mayGetUsage() || signal.reason instanceof Problem) return leave();
    const { promise, resolve } = Promise.withResolvers<void>();
    track(promise);
    usageWait = { timer: setTimeout(leave, usageWaitMs), end: resolve };
  }

  function leave(): void {
    endUsageWait();
    cut.abort(signal.reason);
    // Before anything is held there is nothing to end.
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

  // Of a complete answer the usage follows at once. Of media our own count is rough, so it is worth a short wait.
  function mayGetUsage(): boolean {
    if (!isSent || settlement !== undefined || demand.size === undefined || claimed === 'faulty')
      return false;
    return claimed === undefined ? isComplete || demand.size.media > 0 : isComplete && !claimed.isFinal;
  }

  const isLimited = demand.limit !== undefined || demand.hasOutput === false || demand.size === undefined;

  function limit(model: CatalogModel): number | undefined {
    if (isLimited || model.rates === null || !canLimit(model)) return undefined;
    return Math.min(cap, longestOutput(model));
  }

  const boundFor = (model: CatalogModel) => boundOf(model, demand, limit(model));

  async function reserve(model: CatalogModel, chain: readonly CatalogModel[]): Promise<void> {
    if (identity.kind === 'user') {
      if (model.rates !== null) alarms.requireFew(identity.userId);
      if (hold === undefined && coming === undefined)
        await held(identity, model, chain.slice(chain.indexOf(model) + 1));
      else if (boundFor(model).credits > amountHeld()) {
        await standing();
        await raised(model);
      }
    }
    bound = boundFor(model);
    ran = model;
  }

  type Payer = Extract<Identity, { kind: 'user' }>;

  // Nobody waits for what is sure to be granted to be written down: the provider is asked meanwhile, and its answer
  // waits for the hold where there is something to pay. An amount of nothing is always granted.
  async function held(payer: Payer, model: CatalogModel, others: readonly CatalogModel[]): Promise<void> {
    const models = [model, ...others];
    const [paid, amount] = [paidCall(payer, model), dearest(models)];
    const isFree = models.every(({ rates }) => rates === null);
    if (!isFree && !ledger.canSkipHoldWait(paid, amount)) {
      hold = await firstHold(paid, model, others);
      return;
    }
    const pending: Coming = { hold: ledger.hold(paid, amount), amount, isFree, refusal: undefined };
    pending.hold.catch((thrown: unknown) => {
      if (isFree) return;
      if (isInsufficient(thrown))
        log.warn(
          { model: model.id },
          'a call was begun, and then its credits were refused: others have spent them',
        );
      pending.refusal = thrown;
      cut.abort(thrown);
    });
    coming = pending;
  }

  const amountHeld = () => hold?.amount ?? coming?.amount ?? 0n;

  /** Resolves once the call is paid for in advance; throws where that is refused after all. */
  async function standing(): Promise<void> {
    if (hold === undefined && coming?.isFree === false) hold = await coming.hold;
  }

  /** Forgets a hold that never was. */
  function withoutHold(): void {
    [coming, ran, isSentOnce] = [undefined, undefined, false];
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

  const dearest = (models: readonly CatalogModel[]) =>
    models.reduce((most, one) => larger(most, boundFor(one).credits), 0n);

  // For the dearest of the models that may come to run; where that is too much, for this one alone.
  async function firstHold(
    paid: PaidCall,
    model: CatalogModel,
    others: readonly CatalogModel[],
  ): Promise<Hold> {
    const all = [model, ...others];
    let refusal: unknown;
    try {
      return await ledger.hold(paid, dearest(all));
    } catch (thrown) {
      if (!isInsufficient(thrown)) throw thrown;
      refusal = thrown;
    }
    let [available, affordable] = [0n, -1];
    for (let tries = 0; tries < mostTries; tries += 1) {
      available = await ledger.available(paid.userId, paid.tokenId);
      cap = Number.MAX_SAFE_INTEGER;
      const models = [all, [model]].find((some) => fits(some, available));
      affordable = affordableOutput([model], demand, available);
      if (models === undefined) break;
      try {
        return await ledger.hold(paid, dearest(models));
      } catch (thrown) {
        if (!isInsufficient(thrown)) throw thrown;
        refusal = thrown;
      }
    }
    cap = Number.MAX_SAFE_INTEGER;
    throw tooDear(demand, affordable, boundFor(model).credits, available, refusal);

    // Lowers the limit that we add, when that is what makes it fit.
    function fits(models: readonly CatalogModel[], credits: bigint): boolean {
      if (dearest(models) <= credits) return true;
      if (isLimited || !models.every((one) => one.rates === null || canLimit(one))) return false;
      const most = affordableOutput(models, demand, credits);
      if (most < leastOutput) return false;
      cap = most;
      return dearest(models) <= credits;
    }
  }

  async function raised(model: CatalogModel): Promise<void> {
    const held = hold as Hold;
    const needed = boundFor(model).credits;
    try {
      await held.raise(needed);
    } catch (thrown) {
      if (!isInsufficient(thrown)) throw thrown;
      // What is held already can be enough for a shorter answer.
      const affordable = affordableOutput([model], demand, held.amount);
      if (isLimited || !canLimit(model) || affordable < leastOutput) {
        const available = await availableWith(held);
        throw tooDear(demand, affordableOutput([model], demand, available), needed, available, thrown);
      }
      cap = Math.min(cap, affordable);
    }
  }

  /** What the call may cost at most: its own hold, and what is available beside it. */
  async function availableWith(held: Hold): Promise<bigint> {
    return (
      held.amount +
      (identity.kind === 'user' ? await ledger.available(identity.userId, identity.tokenId) : 0n)
    );
  }

  async function limitSent(model: CatalogModel, tokens: number): Promise<number> {
    const expected = bound?.output ?? 0;
    if (tokens <= expected || model.rates === null) return tokens;
    await standing();
    if (hold === undefined) return tokens;
    const needed = boundOf(model, { ...demand, limit: { tokens, member: '' } }).credits;
    try {
      await hold.raise(needed);
    } catch (thrown) {
      if (!isInsufficient(thrown)) throw thrown;
      // Ours may be lowered as far as the thinking that the effort asks for leaves room for an answer.
      const thinking = tokens - expected;
      if (!isLimited && expected - thinking >= leastOutput) return expected;
      throw tooDear(
        { ...demand, limit: undefined, limitMember: undefined },
        -1,
        needed,
        await availableWith(hold),
        thrown,
      );
    }
    bound = { ...boundFor(model), output: tokens, credits: needed };
    return tokens;
  }

  /** Our own count. The limit of the answer is a limit here too, so it is never above the bound of the call. */
  function ownTokens(): Tokens {
    const limit = outputLimit();
    const output = Math.min(tokensOfText(made.output), limit);
    const input = demand.size === undefined ? 0 : tokensOfRequest(demand.size, demand.repeatedBytes);
    return {
      ...noTokens,
      input: Math.min(input, bound?.input ?? 0),
      output,
      reasoning: Math.min(tokensOfText(made.reasoning), limit - output),
    };
  }

  const outputLimit = () => (bound === undefined ? 0 : bound.output * bound.choices);

  function counted(outcome: UsageOutcome): Count {
    const result = (tokens: Tokens, estimated: boolean, more: Partial<Count> = {}): Count => ({
      tokens,
      units: used.units,
      estimated: estimated || used.estimated,
      isOwn: false,
      doubt: undefined,
      ...more,
    });
    if (!isSent || outcome === 'rejected') return { ...result(noTokens, false), units: {} };
    if (demand.size === undefined) return result(noTokens, false);
    if (claimed === undefined) return result(ownTokens(), true, { isOwn: true });
    if (claimed === 'faulty') return result(ownTokens(), true, { isOwn: true, doubt: 'faulty' });
    if (bound !== undefined && isAbsurd(claimed.tokens, { input: bound.input, output: outputLimit() })) {
      return result({ ...noTokens, input: bound.input, output: outputLimit() }, true, { doubt: 'absurd' });
    }
    if (claimed.isFinal) return result(claimed.tokens, false);
    // What it began with is known, what it had come to is not.
    const { output, reasoning } = ownTokens();
    return result({ ...claimed.tokens, output: Math.max(claimed.tokens.output, output), reasoning }, true);
  }

  function facts(outcome: UsageOutcome, { tokens, units, estimated }: Count): UsageFacts {
    return {
      action,
      model: ran?.id ?? null,
      provider: ran?.provider ?? null,
      tokens,
      units,
      outcome,
      estimated,
      ttftMs: made.firstMs === null ? null : Math.round(made.firstMs - startedMs),
      durationMs: Math.round(clock.monotonicMs() - startedMs),
    };
  }

  // A usage that cannot be is charged at the bound: the request may have cost what the provider claims.
  function priced(count: Count): bigint {
    if (ran === undefined) return 0n;
    if (count.doubt === 'absurd') return smaller(bound?.credits ?? 0n, amountHeld());
    const price = priceOf(ran, count);
    return count.isOwn ? smaller(price, amountHeld()) : price;
  }

  function raiseAlarms({ doubt, isOwn }: Count): void {
    if (doubt !== undefined) {
      const charged = doubt === 'absurd' ? 'the bound of the call is charged' : 'our own count is charged';
      log.error(
        {
          alarm: 'unbelievable_usage',
          model: ran?.id,
          provider: ran?.provider,
          claimed,
          held: String(amountHeld()),
        },
        `a provider told a usage that cannot be; ${charged}`,
      );
    }
    if (doubt === 'absurd') reportAlarm();
    const output = tokensOfText(made.output) + tokensOfText(made.reasoning);
    if (isOwn && isBeyondLimit(output, outputLimit())) {
      log.error(
        {
          alarm: 'output_beyond_limit',
          model: ran?.id,
          provider: ran?.provider,
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
      signal.removeEventListener('abort', gone);
      // Of an answer that was read on for its usage, the caller has heard no end.
      settlement = settleNow(
        usageWait === undefined || outcome === 'rejected' ? outcome : 'client_closed',
        alongside,
      );
      track(settlement);
      endUsageWait();
      if (signal.aborted) cut.abort(signal.reason);
    }
    return settlement;
  }

  async function settleNow(outcome: UsageOutcome, alongside?: Alongside): Promise<number> {
    const count = counted(outcome);
    raiseAlarms(count);
    const known = facts(outcome, count);
    if (coming !== undefined && hold === undefined) {
      try {
        hold = await coming.hold;
      } catch (thrown) {
        // Nothing of it was handed on, so only an answer that is about to be has anything to say.
        if (outcome === 'completed' || coming.isFree) throw thrown;
        return 0;
      }
    }
    if (hold === undefined) {
      if (identity.kind === 'admin' && ran !== undefined) {
        const free: FreeCall = {
          requestId: call.requestId,
          userId: null,
          bureauId: null,
          tokenId: identity.tokenId,
          action,
          model: known.model,
          provider: known.provider,
        };
        await ledger.record(free, known);
      }
      return 0;
    }
    const price = priced(count);
    const { charged } = await hold.settle(
      price,
      known,
      alongside ?? (price > 0n ? withoutAnswer() : undefined),
    );
    return Number(charged);
  }

  function withoutAnswer(): Alongside | undefined {
    const answer = call.remember?.inSettlement(null);
    return answer && { answer };
  }

  return {
    signal: cut.signal,
    limit,
    limitSent,
    get isAccepted() {
      return isAccepted;
    },
    async run(attempts, task) {
      try {
        const done = await attempts.run({
          ...task,
          reserve: (model) => reserve(model, task.chain),
          prepare: (model, effort) => sending(task.prepare(model, effort)),
        });
        isAccepted = true;
        return done;
      } catch (thrown) {
        if (coming?.refusal !== undefined) withoutHold();
        const outcome = signal.aborted ? 'client_closed' : isSentOnce ? 'upstream_failed' : 'rejected';
        if (hold !== undefined || coming !== undefined || (ran !== undefined && isSentOnce))
          await settle(outcome);
        signal.removeEventListener('abort', gone);
        throw thrown;
      }
    },
    produced(kind, bytes) {
      made[kind] += bytes;
      made.firstMs ??= clock.monotonicMs();
      if (hold === undefined || ran === undefined || hold.amount === 0n || settlement !== undefined) return;
      const count = counted('completed');
      hold.checkpoint(
        priced(count),
        facts('client_closed', count),
        tokensOfText(made.output + made.reasoning),
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
      if (claim !== undefined) claimed = claim;
    },
    uses(units, { estimated = false } = {}) {
      made.firstMs ??= clock.monotonicMs();
      used = { units: { ...used.units, ...units }, estimated: used.estimated || estimated };
    },
    price() {
      return hold === undefined && coming === undefined ? 0n : priced(counted('completed'));
    },
    settle,
  };

  // Each attempt begins anew; one that failed has used nothing that anybody pays for.
  function sending<T>(send: (firstMs: number) => Promise<T>): (firstMs: number) => Promise<T> {
    return async (firstMs) => {
      made = { output: 0, reasoning: 0, firstMs: null };
      isComplete = false;
      claimed = undefined;
      used = { units: {}, estimated: false };
      isSent = true;
      isSentOnce = true;
      try {
        const answer = await send(firstMs);
        await standing();
        return answer;
      } catch (thrown) {
        // An attempt that failed by itself has used nothing, though the caller may have left meanwhile.
        if (!signal.aborted || !cut.signal.aborted) isSent = false;
        // What the provider's adapter makes of being cut off is not why.
        throw coming?.refusal ?? thrown;
      }
    };
  }
}

// Whether the model's provider takes a limit that we add.
function canLimit({ providerEntry: by }: Pick<CatalogModel, 'providerEntry'>): boolean {
  return by.kind === 'local' || by.output_limit_member !== undefined;
}

function isInsufficient(thrown: unknown): boolean {
  return thrown instanceof Problem && thrown.kind === 'insufficient_credits';
}

function smaller(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

function larger(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}
