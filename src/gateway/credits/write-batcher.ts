// The write path of the ledger: operations are collected while a batch is on its way, and each batch is one round
// trip and one commit. A lane has one batch on its way at a time; an account has one lane, so that no batch of
// this process waits for the lock of another one, and a hot account holds up its own lane alone.
import type { Clock } from '../../kernel/clock.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { Problem } from '../../kernel/problem.ts';
import type { CreditsStore, Operation, Verdict } from './store.ts';

/** What another slice does in the transaction of an operation. */
export type Work = (tx: Tx) => Promise<void>;

export interface WriteBatcherOptions {
  store: Pick<CreditsStore, 'apply' | 'tx'>;
  clock: Pick<Clock, 'monotonicMs'>;
  leaseMs: number;
  /** How many batches may be on their way at once. */
  concurrentBatches: number;
  /** Told whenever the database has answered. */
  onDatabaseAnswer(): void;
}

export interface WriteBatcher {
  /** Rejects with 503 `database_unavailable` when the database is away; whether the operation was done is not known then. */
  run(operation: Operation, work?: Work): Promise<Verdict>;
  /** Resolves once nothing is on its way. */
  waitForIdle(): Promise<void>;
}

interface PendingOperation {
  operation: Operation;
  work: Work | undefined;
  resolve(verdict: Verdict): void;
  reject(error: unknown): void;
}

interface BatchQueue {
  waiting: PendingOperation[];
  running: Promise<void> | null;
  /** Until then nothing is tried: the database was away a moment ago. */
  pausedUntilMs: number;
}

// Enough to make a commit cheap, few enough that no account is locked for long.
const maximumBatch = 200;
const pauseMs = 250;

export function createWriteBatcher({
  store,
  clock,
  leaseMs,
  concurrentBatches: count,
  onDatabaseAnswer,
}: WriteBatcherOptions): WriteBatcher {
  const queues = Array.from({ length: count }, (): BatchQueue => ({
    waiting: [],
    running: null,
    pausedUntilMs: 0,
  }));

  async function apply(batch: readonly PendingOperation[]): Promise<Verdict[]> {
    const operations = batch.map(({ operation }) => operation);
    if (batch.every(({ work }) => work === undefined)) return store.apply(operations, leaseMs);
    return store.tx(async (tx) => {
      const verdicts = await store.apply(operations, leaseMs, tx);
      for (const { work } of batch) await work?.(tx);
      return verdicts;
    });
  }

  async function runBatch(queue: BatchQueue, batch: readonly PendingOperation[]): Promise<void> {
    try {
      const verdicts = await apply(batch);
      onDatabaseAnswer();
      // In the order in which the function applies them, so that the newest balance is the last that a caller hears of.
      const answers = batch.map((item, index) => ({ item, verdict: verdicts[index] as Verdict }));
      answers.sort((a, b) => applyOrder(a.item.operation) - applyOrder(b.item.operation));
      for (const { item, verdict } of answers) item.resolve(verdict);
    } catch (error) {
      if (isDatabaseUnavailable(error)) {
        queue.pausedUntilMs = clock.monotonicMs() + pauseMs;
        // Those that wait would wait for the same deadline once more.
        for (const item of [...batch, ...queue.waiting.splice(0)]) item.reject(error);
      } else if (batch.length > 1) {
        // One of them is at fault; the others must not suffer for it.
        for (const item of batch) await runBatch(queue, [item]);
      } else {
        for (const item of batch) item.reject(error);
      }
    }
  }

  async function drain(queue: BatchQueue): Promise<void> {
    // What arrives in the same turn goes along.
    await new Promise((resolve) => setImmediate(resolve));
    while (queue.waiting.length > 0) await runBatch(queue, queue.waiting.splice(0, maximumBatch));
    queue.running = null;
  }

  return {
    run(operation, work) {
      const queue = queues[queueIndex(operation, count)] as BatchQueue;
      if (clock.monotonicMs() < queue.pausedUntilMs) return Promise.reject(databaseUnavailable());
      return new Promise((resolve, reject) => {
        queue.waiting.push({ operation, work, resolve, reject });
        queue.running ??= drain(queue);
      });
    },
    async waitForIdle() {
      for (const queue of queues) while (queue.running !== null) await queue.running;
    },
  };
}

export function isDatabaseUnavailable(error: unknown): boolean {
  return error instanceof Problem && error.code === 'database_unavailable';
}

function databaseUnavailable(): Problem {
  return new Problem('unavailable', 'database_unavailable', 'The database does not answer at the moment.', {
    headers: { 'retry-after': '2' },
  });
}

/** As `credits_apply` orders the operations of one account. */
function applyOrder({ kind }: Operation): number {
  if (kind === 'hold') return 3;
  return kind === 'raise' ? 2 : 1;
}

/** FNV-1a of the account, so that an account has the same lane for good. */
function queueIndex(operation: Operation, count: number): number {
  const text = operation.kind === 'record' ? operation.usageId : operation.accountId;
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1)
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return (hash >>> 0) % count;
}
