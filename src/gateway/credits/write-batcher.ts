// Group commit for the ledger: operations queue up while a batch runs, and each batch is one round
// trip and one commit. A queue runs one batch at a time. All operations of an account go to the
// same queue, so batches of this process never wait for each other's account locks, and a busy
// account delays only its own queue.
import type { Clock } from '../../kernel/clock.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { hashText } from '../../kernel/hash-text.ts';
import { databaseUnavailable, isDatabaseUnavailable } from './allotments/problems.ts';
import type { CreditsStore, Operation, Verdict } from './core/store.ts';

/** Statements of another slice that run in the transaction of an operation. */
export type Work = (tx: Tx) => Promise<void>;

export interface WriteBatcherOptions {
  store: Pick<CreditsStore, 'apply' | 'tx'>;
  clock: Pick<Clock, 'monotonicMs'>;
  leaseMs: number;
  /** Batches that may run at once; each takes a connection. */
  concurrentBatches: number;
  /** Called after each response of the database. */
  onDatabaseAnswer(): void;
}

export interface WriteBatcher {
  /**
   * Rejects with 503 `database_unavailable` during an outage; the operation may have
   * been committed nevertheless.
   */
  run(operation: Operation, work?: Work): Promise<Verdict>;
  /** Resolves once no batch runs or waits. */
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
  /** Operations fail fast until then, after a timeout of the database. */
  pausedUntilMs: number;
}

// 200 rows share the cost of a commit; larger batches would hold account locks longer.
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

  async function runBatch(queue: BatchQueue, batch: readonly PendingOperation[]): Promise<void> {
    try {
      const verdicts = await applyBatch(store, batch, leaseMs);
      onDatabaseAnswer();
      resolveInOrder(batch, verdicts);
    } catch (error) {
      if (isDatabaseUnavailable(error)) {
        queue.pausedUntilMs = clock.monotonicMs() + pauseMs;
        // Reject waiting operations too: each would run into the same timeout.
        for (const item of [...batch, ...queue.waiting.splice(0)]) item.reject(error);
      } else if (batch.length > 1) {
        // One operation failed the batch. Run each alone, so that the others still succeed.
        for (const item of batch) await runBatch(queue, [item]);
      } else {
        for (const item of batch) item.reject(error);
      }
    }
  }

  async function drain(queue: BatchQueue): Promise<void> {
    // Operations of the same event loop turn join the batch.
    await new Promise((resolve) => setImmediate(resolve));
    while (queue.waiting.length > 0) await runBatch(queue, queue.waiting.splice(0, maximumBatch));
    queue.running = null;
  }

  return {
    run(operation, work) {
      // The hash of the account, so that its operations always go to the same queue.
      const queue = queues[hashText(operation.accountId) % count] as BatchQueue;
      if (clock.monotonicMs() < queue.pausedUntilMs)
        return Promise.reject(databaseUnavailable('The database does not answer at the moment.'));
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

async function applyBatch(
  store: WriteBatcherOptions['store'],
  batch: readonly PendingOperation[],
  leaseMs: number,
): Promise<Verdict[]> {
  const operations = batch.map(({ operation }) => operation);
  if (batch.every(({ work }) => work === undefined)) return store.apply(operations, leaseMs);
  return store.tx(async (tx) => {
    const verdicts = await store.apply(operations, leaseMs, tx);
    for (const { work } of batch) await work?.(tx);
    return verdicts;
  });
}

/**
 * Resolves in the order in which `credits_apply` ran, so that the newest
 * balance reaches the cache last.
 */
function resolveInOrder(batch: readonly PendingOperation[], verdicts: readonly Verdict[]): void {
  const answers = batch.map((item, index) => ({ item, verdict: verdicts[index] as Verdict }));
  answers.sort((a, b) => applyOrder(a.item.operation) - applyOrder(b.item.operation));
  for (const { item, verdict } of answers) item.resolve(verdict);
}

/** The order in which `credits_apply` runs the operations of one account. */
function applyOrder({ kind }: Operation): number {
  if (kind === 'hold') return 3;
  return kind === 'raise' ? 2 : 1;
}
