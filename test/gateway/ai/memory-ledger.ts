// A ledger in memory, for worlds without a database: it keeps the promises of the real one for one process, and tells
// what was held and charged. What the database adds (crashes, replicas) is the matter of the tests of credits.
import type { FreeCall, Hold, Ledger, PaidCall } from '../../../src/gateway/credits/index.ts';
import type { UsageFacts } from '../../../src/gateway/usage/index.ts';
import { Problem } from '../../../src/kernel/problem.ts';

export interface Charge {
  call: PaidCall | FreeCall;
  /** The hold as it was at last; null for a call that nobody pays for. */
  held: bigint | null;
  charged: bigint;
  /** What the house had to bear. */
  overrun: bigint;
  facts: UsageFacts;
}

export interface MemoryLedger extends Ledger {
  balance: bigint;
  /** What is held now, over all calls. */
  held(): bigint;
  /** Settled calls, in order. */
  readonly charges: Charge[];
  /** The last settled call; throws when there is none. */
  last(): Charge;
  /** Resolves to the settled call once there are so many. */
  until(count: number, deadlineMs?: number): Promise<Charge>;
  /** The last checkpoint of each open call. */
  readonly checkpoints: { credits: bigint; outputTokens: number }[];
  reset(balance?: bigint): void;
}

const rich = 1_000_000_000_000n;

export function memoryLedger(start = rich): MemoryLedger {
  let balance = start;
  let held = 0n;
  let count = 0;
  const charges: Charge[] = [];
  const checkpoints: MemoryLedger['checkpoints'] = [];
  const open = new Map<string, Hold>();
  const watchers = new Set<() => void>();

  function settled(charge: Charge): void {
    charges.push(charge);
    for (const watcher of watchers) watcher();
  }

  function refuse(needed: bigint): never {
    throw new Problem(
      'insufficient_credits',
      'insufficient_credits',
      `This call may cost ${needed} credits, and ${balance - held} are available.`,
    );
  }

  return {
    async hold(call, wanted) {
      if (wanted > 0n && balance - held < wanted) refuse(wanted);
      held += wanted;
      count += 1;
      let amount = wanted;
      let settlement: Promise<{ charged: bigint }> | undefined;
      const hold: Hold = {
        holdId: `hld_${count}`,
        get amount() {
          return amount;
        },
        async raise(more) {
          if (more <= amount) return;
          if (balance - held < more - amount) refuse(more);
          held += more - amount;
          amount = more;
        },
        checkpoint(credits, _facts, outputTokens) {
          checkpoints.push({ credits, outputTokens });
        },
        settle(credits, facts, alongside) {
          settlement ??= (async () => {
            if (alongside !== undefined && 'work' in alongside) await alongside.work(undefined as never);
            const available = balance - held;
            const charged = credits < amount + available ? credits : amount + available;
            balance -= charged;
            held -= amount;
            open.delete(hold.holdId);
            settled({ call, held: amount, charged, overrun: credits - charged, facts });
            return { charged };
          })();
          return settlement;
        },
      };
      open.set(hold.holdId, hold);
      return hold;
    },
    canSkipHoldWait: (_call, amount) => amount * 2n <= balance - held,
    available: async () => balance - held,
    async record(call, facts) {
      settled({ call, held: null, charged: 0n, overrun: 0n, facts });
    },
    resume: async (holdId) => open.get(holdId) ?? null,
    get balance() {
      return balance;
    },
    held: () => held,
    charges,
    checkpoints,
    last() {
      const last = charges.at(-1);
      if (last === undefined) throw new Error('Nothing was charged.');
      return last;
    },
    until(wanted, deadlineMs = 5_000) {
      return new Promise((resolve, reject) => {
        const timer = setTimeout(
          () => done(() => reject(new Error(`Of ${wanted} calls ${charges.length} were settled in time.`))),
          deadlineMs,
        );
        const done = (act: () => void) => {
          clearTimeout(timer);
          watchers.delete(look);
          act();
        };
        const look = () => {
          const charge = charges[wanted - 1];
          if (charge !== undefined) done(() => resolve(charge));
        };
        watchers.add(look);
        look();
      });
    },
    reset(fresh = rich) {
      balance = fresh;
      held = 0n;
      charges.length = 0;
      checkpoints.length = 0;
    },
  };
}
