// An in-memory ledger for worlds without a database. It behaves like the real ledger within one
// process and exposes its holds and charges. The tests of credits cover crashes and replicas.
import type { FreeCall, Hold, Ledger, PaidCall, Reservation } from '../../../src/gateway/credits/index.ts';
import type { UsageFacts } from '../../../src/gateway/usage/index.ts';
import { Problem } from '../../../src/kernel/problem.ts';

export interface Charge {
  call: PaidCall | FreeCall;
  /** The last amount of the hold; null for a free call. */
  held: bigint | null;
  charged: bigint;
  /** Credits above the available amount, which the operator absorbs. */
  overrun: bigint;
  facts: UsageFacts;
}

export interface MemoryLedger extends Ledger {
  balance: bigint;
  /** Credits held now, over all calls. */
  held(): bigint;
  /** The settled calls in order. */
  readonly charges: Charge[];
  /** The last settled call; throws when there is none. */
  last(): Charge;
  /** Resolves to the settled call once there are `count` of them. */
  until(count: number, deadlineMs?: number): Promise<Charge>;
  /** The checkpoints of all calls, in order. */
  readonly checkpoints: { credits: bigint; outputTokens: number }[];
  /** The attempts that were marked as sent, in order. */
  readonly sent: Parameters<Reservation['markSent']>[0][];
  /** Forgets all charges. No credits may be held, since a later settlement would subtract them again. */
  reset(balance?: bigint): void;
}

const initialBalance = 1_000_000_000_000n;

export function memoryLedger(startBalance = initialBalance): MemoryLedger {
  let balance = startBalance;
  let heldCredits = 0n;
  let holdCount = 0;
  const charges: Charge[] = [];
  const checkpoints: MemoryLedger['checkpoints'] = [];
  const sentAttempts: MemoryLedger['sent'][number][] = [];
  const openHolds = new Map<string, Hold>();
  const watchers = new Set<() => void>();

  function recordCharge(charge: Charge): void {
    charges.push(charge);
    for (const watcher of watchers) watcher();
  }

  function refuse(price: bigint): never {
    throw new Problem(
      'insufficient_credits',
      'insufficient_credits',
      `This call may cost ${price} credits, and ${balance - heldCredits} are available.`,
    );
  }

  async function reserve(call: PaidCall, requestedAmount: bigint): Promise<Hold> {
    if (requestedAmount > 0n && balance - heldCredits < requestedAmount) refuse(requestedAmount);
    heldCredits += requestedAmount;
    holdCount += 1;
    let amount = requestedAmount;
    let settlement: Promise<{ charged: bigint }> | undefined;
    const hold: Hold = {
      holdId: `hld_${holdCount}`,
      get amount() {
        return amount;
      },
      async raise(newAmount) {
        if (newAmount <= amount) return;
        if (balance - heldCredits < newAmount - amount) refuse(newAmount);
        heldCredits += newAmount - amount;
        amount = newAmount;
      },
      markSent: (attempt) => void sentAttempts.push(attempt),
      checkpoint(credits, _facts, outputTokens) {
        checkpoints.push({ credits, outputTokens });
      },
      settle(credits, facts, work) {
        settlement ??= (async () => {
          if (work !== undefined && 'work' in work) await work.work(undefined as never);
          const availableCredits = balance - heldCredits;
          const chargedCredits = credits < amount + availableCredits ? credits : amount + availableCredits;
          balance -= chargedCredits;
          heldCredits -= amount;
          openHolds.delete(hold.holdId);
          recordCharge({
            call,
            held: amount,
            charged: chargedCredits,
            overrun: credits - chargedCredits,
            facts,
          });
          return { charged: chargedCredits };
        })();
        return settlement;
      },
      release() {
        if (settlement !== undefined) return;
        settlement = Promise.resolve({ charged: 0n });
        heldCredits -= amount;
        openHolds.delete(hold.holdId);
      },
    };
    openHolds.set(hold.holdId, hold);
    return hold;
  }

  return {
    reserve,
    hold: reserve,
    available: async () => balance - heldCredits,
    async record(call, facts) {
      recordCharge({ call, held: null, charged: 0n, overrun: 0n, facts });
    },
    resume: async (holdId) => openHolds.get(holdId) ?? null,
    get balance() {
      return balance;
    },
    held: () => heldCredits,
    charges,
    checkpoints,
    sent: sentAttempts,
    last() {
      const lastCharge = charges.at(-1);
      if (lastCharge === undefined) throw new Error('Nothing was charged.');
      return lastCharge;
    },
    until(settledCount, deadlineMs = 5_000) {
      return new Promise((resolve, reject) => {
        const timer = setTimeout(
          () =>
            finishOnce(() =>
              reject(new Error(`${charges.length} of ${settledCount} calls were settled in time.`)),
            ),
          deadlineMs,
        );
        const finishOnce = (act: () => void) => {
          clearTimeout(timer);
          watchers.delete(checkCharges);
          act();
        };
        const checkCharges = () => {
          const charge = charges[settledCount - 1];
          if (charge !== undefined) finishOnce(() => resolve(charge));
        };
        watchers.add(checkCharges);
        checkCharges();
      });
    },
    reset(newBalance = initialBalance) {
      balance = newBalance;
      heldCredits = 0n;
      charges.length = 0;
      checkpoints.length = 0;
      sentAttempts.length = 0;
    },
  };
}
