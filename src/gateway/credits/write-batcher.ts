// Group commit for the ledger: operations queue up while a batch runs, and each batch is one round
// trip and one commit. A queue runs one batch at a time. All operations of an account go to the
// same queue, so batches of this process never wait for each other's account locks, and a busy
// account delays only its own queue.
import type { Clock } from '../../kernel/clock.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { hashText } from '../../kernel/hash-text.ts';
import type { Problem } from '../../kernel/problem.ts';
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
  /** Monotonic. After an outage of the database, operations are rejected at once until then. */
  pausedUntilMs: number;
}

// 200 rows share the cost of a commit; larger batches would hold account locks longer.
const maximumBatch = 200;
const pauseAfterOutageMs = 250;

export function createWriteBatcher(options: WriteBatcherOptions): WriteBatcher {
  const { concurrentBatches } = options;
  const queues = Array.from({ length: concurrentBatches }, (): BatchQueue => ({
    waiting: [],
    running: null,
    pausedUntilMs: 0,
  }));

  return {
    run(operation, work) {
      // The hash of the account, so that its operations always go to the same queue.
      const queue = queues[hashText(operation.accountId) % concurrentBatches] as BatchQueue;
      if (isPaused(options, queue)) return Promise.reject(outageProblem());
      return new Promise((resolve, reject) => {
        queue.waiting.push({ operation, work, resolve, reject });
        queue.running ??= drain(options, queue);
      });
    },
    async waitForIdle() {
      for (const queue of queues) while (queue.running !== null) await queue.running;
    },
  };
}

function isPaused({ clock }: WriteBatcherOptions, { pausedUntilMs }: BatchQueue): boolean {
  return clock.monotonicMs() < pausedUntilMs;
}

function outageProblem(): Problem {
  return databaseUnavailable('The database is unavailable at the moment.');
}

async function drain(options: WriteBatcherOptions, queue: BatchQueue): Promise<void> {
  // Operations of the same event loop turn join the batch.
  await new Promise((resolve) => setImmediate(resolve));
  while (queue.waiting.length > 0) await runBatch(options, queue, queue.waiting.splice(0, maximumBatch));
  queue.running = null;
}

async function runBatch(
  options: WriteBatcherOptions,
  queue: BatchQueue,
  batch: readonly PendingOperation[],
): Promise<void> {
  const { store, clock, leaseMs, onDatabaseAnswer } = options;
  try {
    const verdicts = await applyBatch(store, batch, leaseMs);
    onDatabaseAnswer();
    for (const [index, pending] of batch.entries()) pending.resolve(verdicts[index] as Verdict);
  } catch (error) {
    if (isDatabaseUnavailable(error)) {
      queue.pausedUntilMs = clock.monotonicMs() + pauseAfterOutageMs;
      // Reject waiting operations too: each would run into the same timeout.
      for (const pending of [...batch, ...queue.waiting.splice(0)]) pending.reject(error);
    } else if (batch.length > 1) {
      // One operation failed the batch. Run each operation alone, so that the others still succeed.
      for (const pending of batch) {
        // An outage since then rejects the rest: each would run into the same timeout.
        if (isPaused(options, queue)) pending.reject(outageProblem());
        else await runBatch(options, queue, [pending]);
      }
    } else {
      for (const pending of batch) pending.reject(error);
    }
  }
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
