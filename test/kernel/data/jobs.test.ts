// The job queue on both engines: each job runs once, even across restarts.
import { AsyncLocalStorage } from 'node:async_hooks';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { connect, type Database } from '../../../src/kernel/data/database.ts';
import { createJobs, type Jobs } from '../../../src/kernel/data/jobs.ts';
import { silentLog, makeDatabase, type DatabasePlace } from '../../support/databases.ts';

let place: DatabasePlace;
let database: Database;
let jobs: Jobs;
const executions: { data: unknown; id: string }[] = [];

beforeEach(async () => {
  executions.length = 0;
  place = await makeDatabase({ isEmpty: true });
  database = await connect(place.options, { log: silentLog });
  jobs = makeJobs(database);
});

afterEach(async () => {
  await jobs.stop({ timeoutMs: 1_000 });
  await database.close();
  await place.remove();
});

describe('jobs', () => {
  it('run once each without blocking the caller', async () => {
    // start() returns no promise; calls before its end wait for it.
    expect(jobs.start()).toBeUndefined();
    const ids = await Promise.all([1, 2, 3, 4, 5].map((n) => jobs.enqueue('note', { n, text: 'ü"\\' })));
    await waitForJobs(5);
    expect(executions.map(({ data }) => data)).toEqual(
      expect.arrayContaining([1, 2, 3, 4, 5].map((n) => ({ n, text: 'ü"\\' }))),
    );
    expect(new Set(executions.map(({ id }) => id))).toEqual(new Set(ids));
    expect(await readStates()).toEqual({ completed: 5 });
    expect(executions).toHaveLength(5);
  });

  it('run outside of the request that starts the queue', async () => {
    const requests = new AsyncLocalStorage<string>();
    const { promise: request, resolve } = Promise.withResolvers<string | undefined>();
    jobs.define('check', { retries: 0 }, async () => resolve(requests.getStore()));
    await requests.run('a request', async () => {
      jobs.start();
      await jobs.enqueue('check', {});
    });
    expect(await request).toBeUndefined();
  });

  it('store their schedule', async () => {
    jobs.schedule('note', '*/10 * * * *', { n: 1, text: 'ü"\\' });
    jobs.start();
    await jobs.ready();
    expect(
      await database.sql`select data, jsonb_typeof(options::jsonb) as options from pgboss.schedule`,
    ).toEqual([{ data: { n: 1, text: 'ü"\\' }, options: 'object' }]);
  });

  it('are refused while a job with their key waits', async () => {
    jobs.start();
    await jobs.ready();
    const firstJob = await jobs.enqueue('note', { n: 1 }, { key: 'same', delaySeconds: 60 });
    expect(firstJob).toMatch(/^[0-9a-f-]{36}$/);
    expect(await jobs.enqueue('note', { n: 2 }, { key: 'same' })).toBeNull();
    expect(await jobs.enqueue('note', { n: 3 }, { key: 'other', delaySeconds: 60 })).not.toBeNull();
    expect(await jobs.enqueue('note', { n: 4 }, { delaySeconds: 60 })).not.toBeNull();
    expect(await jobs.enqueue('note', { n: 5 }, { delaySeconds: 60 })).not.toBeNull();
    expect(await readStates()).toEqual({ created: 4 });
  });

  it('are refused while a job with their key runs', async () => {
    const { promise: firstStart, resolve: reportStart } = Promise.withResolvers<void>();
    const { promise: firstEnd, resolve: endFirst } = Promise.withResolvers<void>();
    jobs.define('long', {}, async () => {
      reportStart();
      await firstEnd;
    });
    jobs.start();
    await jobs.enqueue('long', {}, { key: 'same' });
    await firstStart;
    expect(await jobs.enqueue('long', {}, { key: 'same' })).toBeNull();
    endFirst();
    await expect.poll(() => readStates(), { timeout: 40_000 }).toEqual({ completed: 1 });
    expect(await jobs.enqueue('long', {}, { key: 'same' })).not.toBeNull();
  });

  it('exist if and only if their transaction commits', async () => {
    jobs.start();
    await jobs.ready();
    await database.sql`create table facts (v int)`;
    await expect(
      database.tx(async (tx) => {
        await tx`insert into facts values (1)`;
        await jobs.enqueue('note', { n: 1 }, { tx });
        throw new Error('no');
      }),
    ).rejects.toThrow('no');
    await database.tx(async (tx) => {
      await tx`insert into facts values (2)`;
      await jobs.enqueue('note', { n: 2 }, { tx });
    });
    await waitForJobs(1);
    expect(executions.map(({ data }) => data)).toEqual([{ n: 2 }]);
    expect(await readStates()).toEqual({ completed: 1 });
  });

  it('are refused within a transaction until ready', async () => {
    await expect(database.tx((tx) => jobs.enqueue('note', { n: 1 }, { tx }))).rejects.toMatchObject({
      status: 503,
      code: 'not_ready',
    });
  });

  it('run once across a restart', async () => {
    jobs.start();
    await jobs.enqueue('note', { n: 1 });
    await waitForJobs(1);
    await jobs.enqueue('note', { n: 2 }, { delaySeconds: 1 });
    await jobs.stop({ timeoutMs: 1_000 });
    await database.close();

    database = await connect(place.options, { log: silentLog });
    jobs = makeJobs(database);
    jobs.start();
    await waitForJobs(2);
    expect(executions.map(({ data }) => data)).toEqual([{ n: 1 }, { n: 2 }]);
    expect(await readStates()).toEqual({ completed: 2 });
  });

  it('are aborted by a stop and run again', { timeout: 120_000 }, async () => {
    let attempts = 0;
    const firstStart = Promise.withResolvers<void>();
    const define = (instance: Jobs): void =>
      instance.define('long', { retries: 3 }, async (_data, { signal }) => {
        attempts += 1;
        firstStart.resolve();
        if (attempts === 1)
          await new Promise((_resolve, reject) =>
            signal.addEventListener('abort', () => reject(signal.reason)),
          );
      });
    define(jobs);
    jobs.start();
    await jobs.enqueue('long', {});
    await firstStart.promise;
    await jobs.stop({ timeoutMs: 1_000 });
    jobs = makeJobs(database);
    define(jobs);
    jobs.start();
    await expect.poll(() => readStates(), { timeout: 90_000 }).toEqual({ completed: 1 });
    expect(attempts).toBe(2);
  });

  it('are retried on failure and then marked failed', { timeout: 120_000 }, async () => {
    let attempts = 0;
    jobs.define('failing', { retries: 1 }, async () => {
      attempts += 1;
      throw new Error('never works');
    });
    jobs.start();
    await jobs.enqueue('failing', {});
    await expect.poll(() => readStates(), { timeout: 90_000 }).toEqual({ failed: 1 });
    expect(attempts).toBe(2);
  });

  it('are refused under an undefined name', async () => {
    jobs.start();
    await expect(jobs.enqueue('unknown', {})).rejects.toThrow('No job is named "unknown".');
  });

  it('can be defined only before the start', () => {
    jobs.start();
    expect(() => jobs.define('late', {}, async () => undefined)).toThrow('before jobs are started');
  });
});

function makeJobs(database: Database): Jobs {
  const instance = createJobs(database, { schema: 'pgboss', log: silentLog, pollSeconds: 0.5 });
  instance.define('note', {}, async (data, { id }) => {
    executions.push({ data, id });
  });
  return instance;
}

async function waitForJobs(count: number): Promise<void> {
  await expect.poll(() => executions.length, { timeout: 40_000 }).toBeGreaterThanOrEqual(count);
  await expect
    .poll(async () => (await readStates())['completed'] ?? 0, { timeout: 40_000 })
    .toBeGreaterThanOrEqual(count);
}

async function readStates(): Promise<Record<string, number>> {
  const rows = await database.sql<{ state: string; count: bigint }[]>`
    select state::text, count(*) as count from pgboss.job where name not like '\\_\\_pgboss%' group by state`;
  return Object.fromEntries(rows.map(({ state, count }) => [state, Number(count)]));
}
