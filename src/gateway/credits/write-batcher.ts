// The write path of the ledger: operations are collected while a batch is on its way, and each batch is one round
// trip and one commit. A lane has one batch on its way at a time; an account has one lane, so that no batch of
// this process waits for the lock of another one, and a hot account holds up its own lane alone.
import type { Clock } from '../../kernel/clock.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { Problem } from '../../kernel/problem.ts';
import type { CreditsStore, Operation, Verdict } from './store.ts';

/** What another slice does in the transaction of an operation. */
export type Work = (tx: Tx) => Promise<void>;

export interface LanesNeeds {
  store: Pick<CreditsStore, 'apply' | 'tx'>;
  clock: Pick<Clock, 'monotonicMs'>;
  leaseMs: number;
  /** How many batches may be on their way at once. */
  lanes: number;
  /** Told whenever the database has answered. */
  onReached(): void;
}

export interface Lanes {
  /** Rejects with 503 `database_unavailable` when the database is away; whether the operation was done is not known then. */
  run(operation: Operation, work?: Work): Promise<Verdict>;
  /** Resolves once nothing is on its way. */
  settled(): Promise<void>;
}

interface Item {
  operation: Operation;
  work: Work | undefined;
  resolve(verdict: Verdict): void;
  reject(error: unknown): void;
}

interface Lane {
  waiting: Item[];
  running: Promise<void> | null;
  /** Until then nothing is tried: the database was away a moment ago. */
  pausedUntilMs: number;
}

// Enough to make a commit cheap, few enough that no account is locked for long.
const maximumBatch = 200;
const pauseMs = 250;

export function createLanes({ store, clock, leaseMs, lanes: count, onReached }: LanesNeeds): Lanes {
  const lanes = Array.from({ length: count }, (): Lane => ({ waiting: [], running: null, pausedUntilMs: 0 }));

  async function apply(batch: readonly Item[]): Promise<Verdict[]> {
    const operations = batch.map(({ operation }) => operation);
    if (batch.every(({ work }) => work === undefined)) return store.apply(operations, leaseMs);
    return store.tx(async (tx) => {
      const verdicts = await store.apply(operations, leaseMs, tx);
      for (const { work } of batch) await work?.(tx);
      return verdicts;
    });
  }

  async function runBatch(lane: Lane, batch: readonly Item[]): Promise<void> {
    try {
      const verdicts = await apply(batch);
      onReached();
      // In the order in which the function applies them, so that the newest balance is the last that a caller hears of.
      const answers = batch.map((item, index) => ({ item, verdict: verdicts[index] as Verdict }));
      answers.sort((a, b) => rankOf(a.item.operation) - rankOf(b.item.operation));
      for (const { item, verdict } of answers) item.resolve(verdict);
    } catch (error) {
      if (isAway(error)) {
        lane.pausedUntilMs = clock.monotonicMs() + pauseMs;
        // Those that wait would wait for the same deadline once more.
        for (const item of [...batch, ...lane.waiting.splice(0)]) item.reject(error);
      } else if (batch.length > 1) {
        // One of them is at fault; the others must not suffer for it.
        for (const item of batch) await runBatch(lane, [item]);
      } else {
        for (const item of batch) item.reject(error);
      }
    }
  }

  async function drain(lane: Lane): Promise<void> {
    // What arrives in the same turn goes along.
    await new Promise((resolve) => setImmediate(resolve));
    while (lane.waiting.length > 0) await runBatch(lane, lane.waiting.splice(0, maximumBatch));
    lane.running = null;
  }

  return {
    run(operation, work) {
      const lane = lanes[laneOf(operation, count)] as Lane;
      if (clock.monotonicMs() < lane.pausedUntilMs) return Promise.reject(away());
      return new Promise((resolve, reject) => {
        lane.waiting.push({ operation, work, resolve, reject });
        lane.running ??= drain(lane);
      });
    },
    async settled() {
      for (const lane of lanes) while (lane.running !== null) await lane.running;
    },
  };
}

export function isAway(error: unknown): boolean {
  return error instanceof Problem && error.code === 'database_unavailable';
}

function away(): Problem {
  return new Problem('unavailable', 'database_unavailable', 'The database does not answer at the moment.', {
    headers: { 'retry-after': '2' },
  });
}

/** As `credits_apply` orders the operations of one account. */
function rankOf({ kind }: Operation): number {
  if (kind === 'hold') return 3;
  return kind === 'raise' ? 2 : 1;
}

/** FNV-1a of the account, so that an account has the same lane for good. */
function laneOf(operation: Operation, count: number): number {
  const text = operation.kind === 'record' ? operation.usageId : operation.accountId;
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1)
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return (hash >>> 0) % count;
}
