// Work that outlives a request, and the only file that knows pg-boss. A job that was enqueued is run, on
// this process or another, until its handler has returned once: it survives a restart, so handlers must
// bear being started again after a crash.
import { randomUUID } from 'node:crypto';
import { PgBoss } from 'pg-boss';
import type { Database, Sql, Tx } from './database.ts';
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
  /** Aborted when the attempt expires and when the process stops before the handler is done. */
  signal: AbortSignal;
}

export interface EnqueueOptions {
  /** While a job of this name and key is waiting or running, another is not taken. */
  key?: string;
  delaySeconds?: number;
  /** The job exists if and only if the transaction commits. */
  tx?: Tx;
}

export interface Jobs {
  /** Before `start`. The handler's throw is a failed attempt. */
  define<Data extends object>(
    name: string,
    policy: JobPolicy,
    handler: (data: Data, context: JobContext) => Promise<void>,
  ): void;
  /** Before `start`. Enqueues the job by a five-member cron expression in UTC, once over all replicas. */
  schedule(name: string, cron: string, data: object): void;
  /** Returns at once; the tables are made and the handlers begin in the background, tried again until it works. */
  start(): void;
  /** Resolves once jobs are taken and run. */
  ready(): Promise<void>;
  /**
   * The job's id, or null when one with its key is there already. Waits for `ready`, except with `tx`, where
   * waiting could be for ourselves: then it throws a Problem until jobs are ready.
   */
  enqueue(name: string, data: object, options?: EnqueueOptions): Promise<string | null>;
  /** Takes no more jobs and waits for the running ones; those not done in time are aborted and run again later. */
  stop(options: { timeoutMs: number }): Promise<void>;
}

export interface JobsOptions {
  schema: string;
  log: Log;
  /** How long finished jobs can be looked at; 30 days when absent. */
  keepDays?: number;
  /** How often a handler looks for jobs that other processes enqueued; its own it hears of at once. 2 when absent, at least 0.5. */
  pollSeconds?: number;
}

interface Definition {
  policy: JobPolicy;
  handler: (data: never, context: JobContext) => Promise<void>;
}

// A process that dies stops beating, and its jobs are taken up by another start after this.
const heartbeatSeconds = 30;
const statementDeadlineMs = 60_000;
const firstRetryMs = 500;
const longestRetryMs = 10_000;
const afterAbortMs = 3_000;

/** Nothing is opened before `start`. `stop` must come before the database is closed. */
export function createJobs(
  database: Database,
  { schema, log, keepDays = 30, pollSeconds = 2 }: JobsOptions,
): Jobs {
  const definitions = new Map<string, Definition>();
  const schedules: { name: string; cron: string; data: object }[] = [];
  const workers = new Map<string, string>();
  const running = new Set<Promise<void>>();
  const ready = Promise.withResolvers<PgBoss>();
  // Whoever waits is told; a stop before anybody waited is no fault.
  ready.promise.catch(() => undefined);
  const stopping = new AbortController();
  let session: ReturnType<Database['session']> | undefined;
  let boss: PgBoss | undefined;
  let started: Promise<void> | undefined;

  async function startUntilItWorks(): Promise<void> {
    for (let waitMs = firstRetryMs; !stopping.signal.aborted; waitMs = Math.min(waitMs * 2, longestRetryMs)) {
      try {
        boss = await startBoss();
        ready.resolve(boss);
        return;
      } catch (error) {
        log.warn({ error }, 'jobs could not be started yet');
        await pause(waitMs, stopping.signal);
      }
    }
  }

  async function startBoss(): Promise<PgBoss> {
    session ??= database.session({ deadlineMs: statementDeadlineMs });
    const starting = new PgBoss({
      db: { executeSql: oneByOne(session.sql) },
      backend: database.engine === 'embedded' ? 'pglite' : 'postgres',
      schema,
      schedule: schedules.length > 0,
      monitorIntervalSeconds: heartbeatSeconds,
      superviseIntervalSeconds: heartbeatSeconds,
    });
    starting.on('error', (error) => log.error({ error }, 'jobs'));
    starting.on('warning', (warning) => log.warn({ warning }, 'jobs'));
    try {
      await starting.start();
      for (const [name, definition] of definitions) await startQueue(starting, name, definition);
      for (const { name, cron, data } of schedules) await starting.schedule(name, cron, data);
      return starting;
    } catch (error) {
      await starting.stop({ graceful: false }).catch(() => undefined);
      throw error;
    }
  }

  async function startQueue(starting: PgBoss, name: string, { policy, handler }: Definition): Promise<void> {
    const options = {
      retryLimit: policy.retries ?? 2,
      // Seconds, doubled each time.
      retryDelay: 1,
      retryBackoff: true,
      expireInSeconds: policy.expireSeconds ?? 900,
      heartbeatSeconds,
      deleteAfterSeconds: keepDays * 86_400,
    };
    // `exclusive` is one job a key among the waiting and the running; a job without a key gets one of its own.
    await starting.createQueue(name, { policy: 'exclusive', ...options });
    await starting.updateQueue(name, options);
    const worker = await starting.work(
      name,
      { batchSize: 1, pollingIntervalSeconds: pollSeconds, localConcurrency: policy.concurrency ?? 1 },
      async (batch: { id: string; data: unknown; signal: AbortSignal }[]) => {
        for (const job of batch) {
          const attempt = run(name, handler, job);
          running.add(attempt);
          await attempt.finally(() => running.delete(attempt));
        }
      },
    );
    workers.set(name, worker);
    // pg-boss reads a queue's record when it is first used, on its own connection. Within a transaction of
    // the embedded engine that would wait for itself, so it is read now.
    await starting.findJobs(name, { id: '00000000-0000-0000-0000-000000000000' });
  }

  async function run(
    name: string,
    handler: Definition['handler'],
    job: { id: string; data: unknown; signal: AbortSignal },
  ): Promise<void> {
    try {
      await handler(job.data as never, { id: job.id, signal: job.signal });
    } catch (error) {
      log.warn({ job: name, jobId: job.id, error }, 'a job failed');
      throw error;
    }
  }

  return {
    define(name, policy, handler) {
      if (started) throw new Error(`The job "${name}" is defined after jobs were started.`);
      definitions.set(name, { policy, handler });
    },
    schedule(name, cron, data) {
      if (started) throw new Error(`The job "${name}" is scheduled after jobs were started.`);
      schedules.push({ name, cron, data });
    },
    start() {
      started ??= startUntilItWorks();
    },
    async ready() {
      await ready.promise;
    },
    async enqueue(name, data, { key, delaySeconds, tx } = {}) {
      if (!definitions.has(name)) throw new Error(`No job is named "${name}".`);
      if (tx && !boss) {
        throw new Problem('unavailable', 'not_ready', 'The server is still starting.', {
          headers: { 'retry-after': '1' },
        });
      }
      const target = boss ?? (await ready.promise);
      const id = await target.send(name, data, {
        singletonKey: key ?? randomUUID(),
        ...(delaySeconds === undefined ? {} : { startAfter: delaySeconds }),
        ...(tx ? { db: { executeSql: executor(tx) } } : {}),
      });
      const worker = workers.get(name);
      // Not within a transaction, whose job nobody can see yet.
      if (worker && !tx && !delaySeconds) target.notifyWorker(worker);
      return id;
    },
    async stop({ timeoutMs }) {
      stopping.abort();
      ready.reject(
        new Problem('unavailable', 'draining', 'The server is stopping.', {
          headers: { 'retry-after': '1' },
        }),
      );
      await started;
      await boss?.stop({ graceful: true, timeout: timeoutMs });
      // What was aborted has still to leave things in order, for which the caller's database must be open.
      await withinMs(Promise.allSettled(running), afterAbortMs);
      await session?.close();
    },
  };
}

type ExecuteSql = (text: string, values?: unknown[]) => Promise<{ rows: Record<string, unknown>[] }>;

/**
 * For pg-boss's own statements, among them blocks with their own BEGIN and COMMIT. They share one connection,
 * so they run one after the other, and a block that failed is rolled back before the next.
 */
function oneByOne(sql: Sql): ExecuteSql {
  const execute = executor(sql);
  let last: Promise<unknown> = Promise.resolve();
  return (text, values) => {
    const run = async () => {
      try {
        return await execute(text, values);
      } catch (error) {
        await sql.unsafe('rollback').catch(() => undefined);
        throw error;
      }
    };
    const result = last.then(run);
    last = result.catch(() => undefined);
    return result;
  };
}

function executor(sql: Sql): ExecuteSql {
  return async (text, values = []) => {
    // pg-boss makes most JSON itself, and postgres.js would do it once more for a parameter of a json type. What goes
    // into a json column without a cast, as a schedule's data and options, is an object: that is left to postgres.js.
    const asText = new Set<number>();
    const statement = text.replaceAll(/\$(\d+)::(jsonb?)\b/g, (_, place: string, type: string) => {
      asText.add(Number(place));
      return `$${place}::text::${type}`;
    });
    const parameters = values.map((value, index) =>
      asText.has(index + 1) && isPlainObject(value) ? JSON.stringify(value) : value,
    );
    const result = await sql.unsafe<Record<string, unknown>[]>(statement, parameters as never[]);
    // Several statements in one text give a list of results.
    const rows = result.some((row) => Array.isArray(row))
      ? (result as unknown as Record<string, unknown>[][]).flat()
      : [...result];
    return { rows: rows.map(withoutBigints) };
  };
}

function isPlainObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}

/** pg-boss expects int8 as its own driver gives it, as text. */
function withoutBigints(row: Record<string, unknown>): Record<string, unknown> {
  for (const [name, value] of Object.entries(row)) if (typeof value === 'bigint') row[name] = String(value);
  return row;
}

/** Waits for the work, but not longer than that. */
async function withinMs(work: Promise<unknown>, ms: number): Promise<void> {
  const late = new AbortController();
  await Promise.race([work, pause(ms, late.signal)]);
  late.abort();
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      'abort',
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}
