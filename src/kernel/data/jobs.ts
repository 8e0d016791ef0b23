// Background jobs that outlive a request, and the only file that knows pg-boss. An
// enqueued job runs, in this process or another, until its handler has returned
// once. It survives a restart, so a handler may be started again after a crash.
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import type { PgBoss } from 'pg-boss';
import { pause, settlesWithin } from '../async.ts';
import type { Database, Tx } from './database.ts';
import { createExecutor, serializedExecutor } from './job-sql.ts';
import type { Log } from '../log.ts';
import { Problem } from '../problem.ts';

export interface JobPolicy {
  /** Further attempts after a failed one; 2 when absent. */
  retries?: number;
  /** An attempt that takes longer is aborted and counts as failed; 900 when absent. */
  expireSeconds?: number;
  /** Jobs of this name at once in this process; 1 when absent. */
  concurrency?: number;
}

export interface JobContext {
  id: string;
  /**
   * Aborted when the attempt expires, and when the process stops before the handler has returned.
   */
  signal: AbortSignal;
}

export interface EnqueueOptions {
  /** While a job of this name and key is queued or running, another is refused. */
  key?: string;
  delaySeconds?: number;
  /** The job exists if and only if the transaction commits. */
  tx?: Tx;
}

export interface Jobs {
  /** Defines a job; works only before `start`. An exception of the handler is a failed attempt. */
  define<Data extends object>(
    name: string,
    policy: JobPolicy,
    handler: (data: Data, context: JobContext) => Promise<void>,
  ): void;
  /**
   * Enqueues the job at the times of a five-field cron expression in UTC, once for all replicas. Works
   * only before `start`.
   */
  schedule(name: string, cron: string, data: object): void;
  /**
   * Returns at once. The tables are created and the workers started in the
   * background, retried until that succeeds.
   */
  start(): void;
  /** Resolves once the workers run. */
  ready(): Promise<void>;
  /**
   * The job's id, or null when one with its key exists already. Waits for `ready`. With `tx` it throws a
   * 503 instead of waiting: on the embedded engine the start needs the session that the transaction holds.
   */
  enqueue(name: string, data: object, options?: EnqueueOptions): Promise<string | null>;
  /**
   * Starts no more jobs and waits for the running jobs. Jobs that still run after `timeoutMs` are aborted and
   * run again later.
   */
  stop(options: { timeoutMs: number }): Promise<void>;
}

export interface JobsOptions {
  schema: string;
  log: Log;
  /** How long finished jobs are kept; 30 days when absent. */
  keepDays?: number;
  /**
   * Poll interval for jobs of other processes; jobs of this process start at once. 2
   * when absent, at least 0.5.
   */
  pollSeconds?: number;
}

interface JobDefinition {
  policy: JobPolicy;
  handler: (data: never, context: JobContext) => Promise<void>;
}

// The jobs of a process that died are started elsewhere after this time without a heartbeat.
const heartbeatSeconds = 30;
const statementDeadlineMs = 60_000;
const firstRetryMs = 500;
const longestRetryMs = 10_000;
// Time for aborted handlers to clean up while the database is still open.
const afterAbortMs = 3_000;

/** Opens nothing before `start`. Call `stop` before the database is closed. */
export function createJobs(database: Database, options: JobsOptions): Jobs {
  const definitions = new Map<string, JobDefinition>();
  const schedules: Schedule[] = [];
  const attempts = createAttempts(options.log);
  const starter = createStarter(database, { definitions, schedules, options, run: attempts.run });

  function requireNotStarted(name: string): void {
    if (starter.hasBegun()) throw new Error(`The job "${name}" must be defined before jobs are started.`);
  }

  return {
    define(name, policy, handler) {
      requireNotStarted(name);
      definitions.set(name, { policy, handler });
    },
    schedule(name, cron, data) {
      requireNotStarted(name);
      schedules.push({ name, cron, data });
    },
    start: starter.begin,
    async ready() {
      await starter.queue();
    },
    async enqueue(name, data, enqueueOptions = {}) {
      if (!definitions.has(name)) throw new Error(`No job is named "${name}".`);
      if (enqueueOptions.tx && !starter.hasStarted()) throw notReady();
      return send(await starter.queue(), { name, data }, enqueueOptions);
    },
    async stop({ timeoutMs }) {
      await starter.stop(timeoutMs);
      await settlesWithin(attempts.settled(), { ms: afterAbortMs });
      await starter.closeSession();
    },
  };
}

/** Runs the handlers and keeps track of the attempts that have not ended. */
function createAttempts(log: Log) {
  const runningAttempts = new Set<Promise<void>>();
  // A request may start the queue, and the jobs would inherit its async context: telemetry would then
  // record them as part of that request.
  const outsideRequests = AsyncLocalStorage.snapshot();
  return {
    settled: () => Promise.allSettled(runningAttempts),
    /** One attempt at a job. Rejects as its handler does, which pg-boss counts as a failed attempt. */
    async run(name: string, { handler }: JobDefinition, job: PgJob): Promise<void> {
      const attempt = outsideRequests(async () =>
        handler(job.data as never, { id: job.id, signal: job.signal }),
      );
      runningAttempts.add(attempt);
      try {
        await attempt;
      } catch (error) {
        log.warn({ job: name, jobId: job.id, err: error }, 'a job failed');
        throw error;
      } finally {
        runningAttempts.delete(attempt);
      }
    },
  };
}

/** Starts pg-boss on a session of its own; retries until that succeeds. */
function createStarter(database: Database, input: QueueInput) {
  const { log } = input.options;
  const startedQueue = Promise.withResolvers<Queue>();
  // `stop` rejects the promise even if no call waits for it.
  startedQueue.promise.catch(() => undefined);
  const stopController = new AbortController();
  let session: ReturnType<Database['session']> | undefined;
  let queue: Queue | undefined;
  let pendingStart: Promise<void> | undefined;

  async function startWithRetries(): Promise<void> {
    let waitMs = firstRetryMs;
    while (!stopController.signal.aborted) {
      try {
        session ??= database.session({ deadlineMs: statementDeadlineMs });
        queue = await startBoss(await createBoss(database, session, input), input);
        startedQueue.resolve(queue);
        return;
      } catch (error) {
        log.warn({ err: error }, 'jobs could not be started yet');
        await pause(waitMs, { signal: stopController.signal });
        waitMs = Math.min(waitMs * 2, longestRetryMs);
      }
    }
  }

  return {
    begin: () => void (pendingStart ??= startWithRetries()),
    hasBegun: () => pendingStart !== undefined,
    hasStarted: () => queue !== undefined,
    /** Resolves once the queue has started. Rejects if `stop` is called before that. */
    queue: () => (queue === undefined ? startedQueue.promise : Promise.resolve(queue)),
    async stop(timeoutMs: number) {
      stopController.abort();
      startedQueue.reject(drainingProblem());
      await pendingStart;
      await queue?.boss.stop({ graceful: true, timeout: timeoutMs });
    },
    closeSession: async () => session?.close(),
  };
}

async function send(
  { boss, workers }: Queue,
  { name, data }: { name: string; data: object },
  { key, delaySeconds, tx }: EnqueueOptions,
): Promise<string | null> {
  const id = await boss.send(name, data, {
    singletonKey: key ?? randomUUID(),
    ...(delaySeconds === undefined ? {} : { startAfter: delaySeconds }),
    ...(tx ? { db: { executeSql: createExecutor(tx) } } : {}),
  });
  const worker = workers.get(name);
  // A job in a transaction is not visible to the worker yet.
  if (worker && !tx && !delaySeconds) boss.notifyWorker(worker);
  return id;
}

interface Schedule {
  name: string;
  cron: string;
  data: object;
}

/** The options with which the queue is started. */
interface QueueInput {
  definitions: ReadonlyMap<string, JobDefinition>;
  schedules: readonly Schedule[];
  options: JobsOptions;
  run(name: string, definition: JobDefinition, job: PgJob): Promise<void>;
}

/** The started queue. */
interface Queue {
  boss: PgBoss;
  /** The ids of the workers by the names of their jobs. */
  workers: ReadonlyMap<string, string>;
}

interface PgJob {
  id: string;
  data: unknown;
  signal: AbortSignal;
}

async function createBoss(
  database: Database,
  session: ReturnType<Database['session']>,
  { schedules, options: { schema, log } }: QueueInput,
): Promise<PgBoss> {
  // pg-boss is loaded on first use: a gateway without media models runs no jobs, and the package
  // with its dependencies is 110 modules.
  const { PgBoss } = await import('pg-boss');
  const boss = new PgBoss({
    db: { executeSql: serializedExecutor(session.sql) },
    backend: database.engine === 'embedded' ? 'pglite' : 'postgres',
    schema,
    schedule: schedules.length > 0,
    monitorIntervalSeconds: heartbeatSeconds,
    superviseIntervalSeconds: heartbeatSeconds,
  });
  boss.on('error', (error) => log.error({ err: error }, 'the job queue reported an error'));
  boss.on('warning', (warning) => log.warn({ warning }, 'the job queue reported a warning'));
  return boss;
}

/**
 * Creates the tables, the queues and their workers. A failed start is stopped, so that it can be tried again.
 */
async function startBoss(boss: PgBoss, input: QueueInput): Promise<Queue> {
  try {
    await boss.start();
    const workers = new Map<string, string>();
    for (const [name, definition] of input.definitions)
      workers.set(name, await startQueue(boss, { name, definition }, input));
    for (const { name, cron, data } of input.schedules) await boss.schedule(name, cron, data);
    return { boss, workers };
  } catch (error) {
    await boss.stop({ graceful: false }).catch(() => undefined);
    throw error;
  }
}

/** Returns the id of the queue's worker. */
async function startQueue(
  boss: PgBoss,
  { name, definition }: { name: string; definition: JobDefinition },
  { options: { keepDays = 30, pollSeconds = 2 }, run }: QueueInput,
): Promise<string> {
  const { retries = 2, expireSeconds = 900, concurrency = 1 } = definition.policy;
  const options = {
    retryLimit: retries,
    // Seconds, doubled each time.
    retryDelay: 1,
    retryBackoff: true,
    expireInSeconds: expireSeconds,
    heartbeatSeconds,
    deleteAfterSeconds: keepDays * 86_400,
  };
  // `exclusive` allows one waiting or running job per key; `send` gives a job without a key a random one.
  await boss.createQueue(name, { policy: 'exclusive', ...options });
  await boss.updateQueue(name, options);
  const worker = await boss.work(
    name,
    { batchSize: 1, pollingIntervalSeconds: pollSeconds, localConcurrency: concurrency },
    async (batch: PgJob[]) => {
      for (const job of batch) await run(name, definition, job);
    },
  );
  // pg-boss reads a queue's record when the queue is first used, on its own connection. During a
  // transaction of the embedded engine that would deadlock, so read it now.
  await boss.findJobs(name, { id: '00000000-0000-0000-0000-000000000000' });
  return worker;
}

function notReady(): Problem {
  return new Problem('unavailable', 'not_ready', 'The server is still starting.', {
    headers: { 'retry-after': '1' },
  });
}

function drainingProblem(): Problem {
  return new Problem('unavailable', 'draining', 'The server is stopping.', {
    headers: { 'retry-after': '1' },
  });
}
