// The meter of one call, the same for every wire: a hold before anything is answered, the price of what came so far
// while it comes, and one settlement before the caller hears the end. Which end costs what is one table, in
// docs/guides/what-a-call-costs.md; this file is where it is kept.
import type { Clock } from '../../../kernel/clock.ts';
import type { Tx } from '../../../kernel/data/database.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { FreeCall, Hold, Ledger, PaidCall } from '../../credits/index.ts';
import type { Identity } from '../../identity.ts';
import type { UsageFacts, UsageOutcome } from '../../usage/index.ts';
import type { Attempts, Ran, Task } from '../attempts.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import { affordableOutput, type Bound, boundOf, type Demand, leastOutput, longestOutput, tooDear } from './bound.ts';
import { noTokens, priceOf, type Tokens, type Units } from './price.ts';
import { type Claim, isAbsurd, tokensOfPiece, tokensSent } from './token-count.ts';

/** What is metered. */
export interface Metered {
  requestId: string;
  identity: Extract<Identity, { kind: 'user' | 'admin' }>;
  action: string;
  signal: AbortSignal;
  log: Log;
  demand: Demand;
}

/** What keeps the answer of a call with an Idempotency-Key, in the transaction that charges for it. */
export type Alongside = (tx: Tx) => Promise<void>;

export interface Meter {
  /** Runs the call over its models, each of them paid for before it is asked; a call that fails costs nothing. */
  run<T>(attempts: Attempts, task: Omit<Task<T>, 'reserve'>): Promise<Ran<T>>;
  /** Ends what goes on at the provider: the caller is gone, or the credits that the call began with were refused. */
  readonly signal: AbortSignal;
  /** The output limit to send where the caller sent none; undefined where none is needed. */
  limit(model: CatalogModel): number | undefined;
  /** Tells what limit is really going out; resolves to the one that may. Throws 402. */
  limitSent(model: CatalogModel, tokens: number): Promise<number>;
  /** A piece of the answer has come: so many bytes of text of the kind. */
  produced(kind: 'output' | 'reasoning', bytes: number): void;
  /** The provider says what was used. A later word replaces an earlier one. */
  claims(claim: Claim | undefined): void;
  /** So much of a medium was used. */
  uses(units: Units, options?: { estimated?: boolean }): void;
  /** Whether the model's answer has begun to reach the caller, so that no other will be asked. */
  readonly isAccepted: boolean;
  /** What its caller pays for the call if it ends well now; nothing for an administrator's. */
  price(): bigint;
  /** Ends the call, once; later calls answer as the first. Resolves to what was charged. */
  settle(outcome: UsageOutcome, alongside?: Alongside): Promise<number>;
}

export interface Metering {
  open(call: Metered): Meter;
  /** Resolves when every call that was opened is settled. */
  settled(): Promise<void>;
}

export interface MeteringNeeds {
  ledger: Pick<Ledger, 'hold' | 'isSure' | 'available' | 'record'>;
  clock: Pick<Clock, 'monotonicMs'>;
}

// Others spend the same credits meanwhile; whoever loses so often in a row is told that there are none.
const mostTries = 4;

export function createMetering({ ledger, clock }: MeteringNeeds): Metering {
  const open = new Set<Promise<unknown>>();
  return {
    open: (call) => openMeter(call, { ledger, clock, track: (ending) => void open.add(ending.finally(() => open.delete(ending)).catch(() => {})) }),
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
  /** Ends what was begun. */
  cut: AbortController;
  /** Why there is no hold; what goes on at the provider is over then. */
  refusal: unknown;
}

interface MeterNeeds extends MeteringNeeds {
  track(ending: Promise<unknown>): void;
}

function openMeter(call: Metered, { ledger, clock, track }: MeterNeeds): Meter {
  const { identity, demand, signal, log, action } = call;
  const startedMs = clock.monotonicMs();
  let hold: Hold | undefined;
  let coming: Coming | undefined;
  let cap = Number.MAX_SAFE_INTEGER;
  let ran: CatalogModel | undefined;
  let bound: Bound | undefined;
  let isSent = false;
  let isSentOnce = false;
  let isAccepted = false;
  let made: { output: number; reasoning: number; firstMs: number | null } = { output: 0, reasoning: 0, firstMs: null };
  let claimed: Claim | undefined;
  let used: { units: Units; estimated: boolean } = { units: {}, estimated: false };
  let settlement: Promise<number> | undefined;
  signal.addEventListener('abort', gone, { once: true });

  function gone(): void {
    coming?.cut.abort(signal.reason);
    // Before anything is held there is nothing to end.
    if (isSent) settle('client_closed').catch((error: unknown) => log.error({ err: error }, 'a call could not be settled'));
  }

  const isLimited = demand.limit !== undefined || demand.hasOutput === false || demand.size === undefined;

  function limit(model: CatalogModel): number | undefined {
    if (isLimited || model.rates === null || !canLimit(model)) return undefined;
    return Math.min(cap, longestOutput(model));
  }

  const boundFor = (model: CatalogModel) => boundOf(model, demand, limit(model));

  async function reserve(model: CatalogModel, chain: readonly CatalogModel[]): Promise<void> {
    if (identity.kind === 'user') {
      if (hold === undefined && coming === undefined) await held(identity, model, chain.slice(chain.indexOf(model) + 1));
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
    if (!isFree && !ledger.isSure(paid, amount)) {
      hold = await firstHold(paid, model, others);
      return;
    }
    const begun: Coming = { hold: ledger.hold(paid, amount), amount, isFree, cut: new AbortController(), refusal: undefined };
    begun.hold.catch((thrown: unknown) => {
      if (isFree) return;
      if (isInsufficient(thrown)) log.warn({ model: model.id }, 'a call was begun, and then its credits were refused: others have spent them');
      begun.refusal = thrown;
      begun.cut.abort(thrown);
    });
    coming = begun;
    if (signal.aborted) begun.cut.abort(signal.reason);
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
    return { requestId: call.requestId, userId, bureauId, tokenId, action, model: model.id, provider: model.provider };
  }

  const dearest = (models: readonly CatalogModel[]) => models.reduce((most, one) => larger(most, boundFor(one).credits), 0n);

  // For the dearest of the models that may come to run; where that is too much, for this one alone.
  async function firstHold(paid: PaidCall, model: CatalogModel, others: readonly CatalogModel[]): Promise<Hold> {
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
      if (isLimited || !canLimit(model) || affordable < leastOutput) throw tooDear(demand, affordable, needed, held.amount, thrown);
      cap = Math.min(cap, affordable);
    }
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
      throw tooDear({ ...demand, limit: undefined, limitMember: undefined }, -1, needed, hold.amount, thrown);
    }
    bound = { ...boundFor(model), output: tokens, credits: needed };
    return tokens;
  }

  function counted(outcome: UsageOutcome): { tokens: Tokens; units: Units; estimated: boolean; isDoubted: boolean } {
    const local = (): Tokens => ({ ...noTokens, input: demand.size === undefined ? 0 : tokensSent(demand.size), output: made.output, reasoning: made.reasoning });
    const result = (tokens: Tokens, estimated: boolean, isDoubted = false) => ({ tokens, units: used.units, estimated: estimated || used.estimated, isDoubted });
    if (!isSent || outcome === 'rejected') return { ...result(noTokens, false), units: {} };
    if (demand.size === undefined) return result(noTokens, false);
    if (claimed === undefined) return result(local(), true);
    if (claimed === 'faulty' || (bound !== undefined && isAbsurd(claimed.tokens, { input: bound.input, output: bound.output * bound.choices }))) return result(local(), true, true);
    if (claimed.isFinal) return result(claimed.tokens, false);
    // What it began with is known, what it had come to is not.
    return result({ ...claimed.tokens, output: Math.max(claimed.tokens.output, made.output), reasoning: made.reasoning }, true);
  }

  function facts(outcome: UsageOutcome, { tokens, units, estimated }: ReturnType<typeof counted>): UsageFacts {
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

  const priced = (count: ReturnType<typeof counted>) => (ran === undefined ? 0n : priceOf(ran, count));

  function settle(outcome: UsageOutcome, alongside?: Alongside): Promise<number> {
    if (settlement === undefined) {
      signal.removeEventListener('abort', gone);
      settlement = settleNow(outcome, alongside);
      track(settlement);
    }
    return settlement;
  }

  async function settleNow(outcome: UsageOutcome, alongside?: Alongside): Promise<number> {
    const count = counted(outcome);
    if (count.isDoubted) {
      log.error({ alarm: 'unbelievable_usage', model: ran?.id, provider: ran?.provider, claimed, held: String(amountHeld()) }, 'a provider told a usage that cannot be; our own count is charged');
    }
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
        const free: FreeCall = { requestId: call.requestId, userId: null, bureauId: null, tokenId: identity.tokenId, action, model: known.model, provider: known.provider };
        await ledger.record(free, known);
      }
      return 0;
    }
    const price = priced(count);
    const { charged } = await hold.settle(count.isDoubted && price > hold.amount ? hold.amount : price, known, alongside);
    return Number(charged);
  }

  return {
    get signal() {
      return coming?.cut.signal ?? signal;
    },
    limit,
    limitSent,
    get isAccepted() {
      return isAccepted;
    },
    async run(attempts, task) {
      try {
        const done = await attempts.run({ ...task, reserve: (model) => reserve(model, task.chain), prepare: (model, effort) => sending(task.prepare(model, effort)) });
        isAccepted = true;
        return done;
      } catch (thrown) {
        if (coming?.refusal !== undefined) withoutHold();
        const outcome = signal.aborted ? 'client_closed' : isSentOnce ? 'upstream_failed' : 'rejected';
        if (hold !== undefined || coming !== undefined || (ran !== undefined && isSentOnce)) await settle(outcome);
        signal.removeEventListener('abort', gone);
        throw thrown;
      }
    },
    produced(kind, bytes) {
      const tokens = tokensOfPiece(bytes);
      made[kind] += tokens;
      made.firstMs ??= clock.monotonicMs();
      if (hold === undefined || ran === undefined || hold.amount === 0n || settlement !== undefined) return;
      const count = counted('completed');
      hold.checkpoint(priced(count), facts('client_closed', count), made.output + made.reasoning);
    },
    claims(claim) {
      if (claim !== undefined) claimed = claim;
    },
    uses(units, { estimated = false } = {}) {
      made.firstMs ??= clock.monotonicMs();
      used = { units: { ...used.units, ...units }, estimated: used.estimated || estimated };
    },
    price() {
      if (hold === undefined && coming === undefined) return 0n;
      const count = counted('completed');
      const price = priced(count);
      return count.isDoubted && price > amountHeld() ? amountHeld() : price;
    },
    settle,
  };

  // Each attempt begins anew; one that failed has used nothing that anybody pays for.
  function sending<T>(send: (firstMs: number) => Promise<T>): (firstMs: number) => Promise<T> {
    return async (firstMs) => {
      made = { output: 0, reasoning: 0, firstMs: null };
      claimed = undefined;
      used = { units: {}, estimated: false };
      isSent = true;
      isSentOnce = true;
      try {
        const answer = await send(firstMs);
        await standing();
        return answer;
      } catch (thrown) {
        if (!signal.aborted) isSent = false;
        // What the provider's adapter makes of being cut off is not why.
        throw coming?.refusal ?? thrown;
      }
    };
  }
}

// Whether the model's provider takes a limit that we add.
function canLimit({ by }: Pick<CatalogModel, 'by'>): boolean {
  return by.kind === 'local' || by.output_limit_member !== undefined;
}

function isInsufficient(thrown: unknown): boolean {
  return thrown instanceof Problem && thrown.kind === 'insufficient_credits';
}

function larger(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}
