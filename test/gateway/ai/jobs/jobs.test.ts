// Media jobs with a real database and queue, in one process and in several: claims, runs, charges, limits and
// expiry.
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Owner } from '../../../../src/gateway/ai/calls/owner.ts';
import { jobsStore, mediaJobs, type MediaJobs } from '../../../../src/gateway/ai/index.ts';
import type { Job, UpstreamJob } from '../../../../src/gateway/ai/jobs/job.ts';
import { jobPayments, type JobPayments, unpaidJobs } from '../../../../src/gateway/ai/jobs/payments.ts';
import type { NewJob } from '../../../../src/gateway/ai/jobs/jobs.ts';
import type { JobInput, JobRun, MediaGenerator } from '../../../../src/gateway/ai/jobs/run.ts';
import type { MediaJobsSettings } from '../../../../src/gateway/ai/jobs/settings.ts';
import type { JobsStore } from '../../../../src/gateway/ai/jobs/store.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { connect, type Database } from '../../../../src/kernel/data/database.ts';
import { createJobs, type Jobs } from '../../../../src/kernel/data/jobs.ts';
import { Problem } from '../../../../src/kernel/problem.ts';
import { directoryStorage } from '../../../../src/kernel/storage/storage.ts';
import { silentLog, testDatabase, type TestDatabase } from '../../../support/databases.ts';
import { memoryLedger } from '../memory-ledger.ts';

const owner = { kind: 'user', id: 'usr_1' } as const;
const otherOwner = { kind: 'user', id: 'usr_2' } as const;
const request = { model: 'acme/painter', prompt: 'x' };
const picture = {
  content: Buffer.from('a picture'),
  mediaType: 'image/png',
  width: 2,
  height: 1,
  durationSeconds: null,
};
const pollOptions = { timeout: 80_000, interval: 100 };

type Generate = (job: JobInput, run: JobRun) => Promise<(typeof picture)[]>;

/** One process with its own queue and jobs. */
interface Replica {
  jobs: MediaJobs;
  queue: Jobs;
  close(): Promise<void>;
}

let world: TestDatabase;
let folder: string;
let replicas: Replica[];

function start(
  generate: Generate,
  settings: Partial<MediaJobsSettings> = {},
  {
    database = world.database,
    store = jobsStore(database),
    payments,
    ...members
  }: Omit<Partial<MediaGenerator>, 'generate'> & {
    database?: Database;
    store?: JobsStore;
    payments?: JobPayments;
  } = {},
): Replica {
  const queue = createJobs(database, { schema: 'pgboss', log: silentLog, pollSeconds: 0.5 });
  const jobs = mediaJobs({
    store,
    queue,
    storage: directoryStorage(folder),
    isAlone: false,
    clock: systemClock,
    log: silentLog,
    settings: { sweepMs: 200, heartbeatMs: 100, ...settings },
    ...(payments === undefined ? {} : { payments }),
  });
  jobs.useGenerator({
    ...members,
    generate: async (job, run) => ({ files: await generate(job, run) }),
  });
  jobs.start();
  const replica = {
    jobs,
    queue,
    async close() {
      replicas = replicas.filter((candidate) => candidate !== replica);
      await queue.stop({ timeoutMs: 500 });
      await jobs.close();
    },
  };
  replicas.push(replica);
  return replica;
}

const create = (jobs: MediaJobs, members: Partial<NewJob> = {}) =>
  jobs.create({ kind: 'image', owner, request, ...members }, async () => {});
const find = (jobs: MediaJobs, jobId: string, jobOwner: Owner = owner): Promise<Job> =>
  jobs.find({ jobId, kind: 'image', owner: jobOwner });
async function waitForStatus(
  jobs: MediaJobs,
  jobId: string,
  status: Job['status'],
  jobOwner: Owner = owner,
): Promise<void> {
  await expect.poll(async () => (await find(jobs, jobId, jobOwner)).status, pollOptions).toBe(status);
}

/** The status of each job. */
const statusesOf = (jobs: MediaJobs, jobIds: readonly string[]) =>
  Promise.all(jobIds.map(async (jobId) => (await find(jobs, jobId)).status));

/**
 * Inserts a row like `create`, but without a message that would start its run. Only the sweep starts the job, once
 * `leaseSeconds` have passed.
 */
const insertRow = (store: JobsStore, jobId: string, members: { owner?: Owner; leaseSeconds?: number } = {}) =>
  store.tx((tx) =>
    store.insert(tx, {
      jobId,
      kind: 'image',
      owner,
      request,
      leaseSeconds: 60,
      call: null,
      holdId: null,
      ...members,
    }),
  );

/** Rejects with the signal's reason when it is aborted. */
function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) =>
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true }),
  );
}

const reportHalf: Generate = (_job, run) => {
  run.reportProgress(0.5);
  return untilAborted(run.signal);
};

const submitUpstreamJob: Generate = async (job, run) => {
  await run.saveUpstreamJob({ model: 'acme/film', id: 'video_1' });
  return reportHalf(job, run);
};

async function waitForProgress(jobs: MediaJobs, jobId: string): Promise<void> {
  await expect.poll(async () => (await find(jobs, jobId)).progress, pollOptions).toBe(0.5);
}

/** The operation on the database, except that its first call fails as in an outage. */
function failFirstCall<Operation extends (...parameters: never[]) => Promise<unknown>>(
  operation: Operation,
): Operation {
  let calls = 0;
  return (async (...parameters) => {
    calls += 1;
    if (calls === 1) throw new Problem('unavailable', 'database_unavailable', 'The database is away.');
    return operation(...parameters);
  }) as Operation;
}

beforeEach(async () => {
  world = await testDatabase();
  folder = await mkdtemp(join(tmpdir(), 'townhall-jobs-'));
  replicas = [];
});
afterEach(async () => {
  for (const replica of replicas) await replica.close();
  await world.close();
  await rm(folder, { recursive: true, force: true });
});

const call = { requestId: 'req_1', tokenId: 'tok_1', bureauId: 'bur_1' };
const upstreamFacts = {
  action: 'video',
  model: 'acme/film',
  provider: 'acme',
  tokens: { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 },
  units: { videoSecond: 6 },
  outcome: 'client_closed' as const,
  estimated: true,
  ttftMs: null,
  durationMs: 0,
};

describe('the storage of a media job', { timeout: 180_000 }, () => {
  it('stores an error message with NUL and lone surrogates', async () => {
    const { jobs } = start(async () => {
      throw new Problem('upstream_failed', 'upstream_failed', 'refused\0\ud800');
    });
    const jobId = await create(jobs);
    await waitForStatus(jobs, jobId, 'failed');
    expect((await find(jobs, jobId)).error).toMatchObject({ message: 'refused\ufffd\ufffd' });
  });

  it('deletes the oldest media of an owner beyond the quota', async () => {
    const { jobs } = start(async () => [picture], { maxMediaBytesPerOwner: picture.content.byteLength * 2 });
    const otherJobId = await create(jobs, { owner: otherOwner });
    await waitForStatus(jobs, otherJobId, 'succeeded', otherOwner);
    const jobIds: string[] = [];
    for (let count = 0; count < 4; count += 1) {
      const jobId = await create(jobs);
      await waitForStatus(jobs, jobId, 'succeeded');
      jobIds.push(jobId);
    }
    expect(await Promise.all(jobIds.map(async (jobId) => (await find(jobs, jobId)).media.length))).toEqual([
      0, 0, 1, 1,
    ]);
    expect((await find(jobs, otherJobId, otherOwner)).media).toHaveLength(1);
    // Two files of the first owner, and one of the other owner.
    await expect.poll(() => readdir(folder), pollOptions).toHaveLength(3);
  });
});

describe('claims of media jobs', { timeout: 180_000 }, () => {
  it('runs each job once when several processes claim jobs', async () => {
    const runs = new Map<string, number>();
    const generate: Generate = async ({ request: { prompt } }) => {
      runs.set(String(prompt), (runs.get(String(prompt)) ?? 0) + 1);
      return [picture];
    };
    const { jobs } = start(generate);
    // Only PostgreSQL can serve two replicas; the embedded engine has one process.
    const isShared = world.engine === 'postgres';
    const otherDatabase = isShared ? await connect(world.options, { log: silentLog }) : undefined;
    const otherReplica = otherDatabase && start(generate, {}, { database: otherDatabase });
    try {
      const jobIds = await Promise.all(
        Array.from({ length: 12 }, (_, index) =>
          create(jobs, { request: { model: 'acme/painter', prompt: String(index) } }),
        ),
      );
      await expect.poll(() => statusesOf(jobs, jobIds), pollOptions).toEqual(jobIds.map(() => 'succeeded'));
      expect([...runs.values()]).toEqual(jobIds.map(() => 1));
      expect(await readdir(folder)).toHaveLength(12);
    } finally {
      await otherReplica?.close();
      await otherDatabase?.close();
    }
  });

  it('runs a job of another owner while one owner has many', async () => {
    const gate = Promise.withResolvers<void>();
    const { jobs } = start(async ({ owner: { id } }) => {
      if (id === owner.id) await gate.promise;
      return [picture];
    });
    const jobIds = await Promise.all(Array.from({ length: 20 }, () => create(jobs)));
    const countOf = async (status: Job['status']) =>
      (await statusesOf(jobs, jobIds)).filter((jobStatus) => jobStatus === status).length;
    // The default of maxRunningPerOwner.
    await expect.poll(() => countOf('running'), pollOptions).toBe(4);
    const otherJobId = await create(jobs, { owner: otherOwner });
    await waitForStatus(jobs, otherJobId, 'succeeded', otherOwner);
    expect(await countOf('queued')).toBe(16);
    gate.resolve();
    await expect.poll(() => countOf('succeeded'), pollOptions).toBe(20);
  });

  it('claims the oldest job of the owner with the fewest running', async () => {
    const store = jobsStore(world.database);
    // The first letter is the owner.
    for (const jobId of ['a1', 'a2', 'a3', 'b1', 'b2', 'c1'])
      await insertRow(store, jobId, { owner: { kind: 'user', id: jobId.charAt(0) } });
    const order: (string | undefined)[] = [];
    for (let count = 0; count < 6; count += 1)
      order.push((await store.claim('image', { leaseSeconds: 60, maxRunningPerOwner: 2 }))?.jobId);
    // The third job of the first owner has to wait.
    expect(order).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', undefined]);
    expect(await store.hasWaiting('image')).toBe(true);
    expect(await store.hasWaiting('video')).toBe(false);
  });

  it('creates no job when the transaction of the request fails', async () => {
    const { jobs } = start(async () => [picture]);
    let jobId = '';
    const creation = jobs.create({ kind: 'image', owner, request }, async (_tx, newJobId) => {
      jobId = newJobId;
      throw new Error('The request failed.');
    });
    await expect(creation).rejects.toThrow('The request failed.');
    await expect(find(jobs, jobId)).rejects.toMatchObject({ status: 404 });
  });
});

describe('a run of a media job', { timeout: 180_000 }, () => {
  it('reports progress that never decreases', async () => {
    const gate = Promise.withResolvers<void>();
    const { jobs } = start(async (_job, { reportProgress }) => {
      reportProgress(0.4);
      reportProgress(0.3);
      await gate.promise;
      return [picture];
    });
    const jobId = await create(jobs);
    await expect.poll(async () => (await find(jobs, jobId)).progress, pollOptions).toBeCloseTo(0.4);
    expect(await find(jobs, jobId)).toMatchObject({ status: 'running', finishedAt: null });
    gate.resolve();
    await waitForStatus(jobs, jobId, 'succeeded');
  });

  it('ignores writes of an earlier attempt after a reclaim', async () => {
    const store = jobsStore(world.database);
    await insertRow(store, 'job_1');
    // A process claims the job and then dies.
    const deadJob = await store.claim('image', { leaseSeconds: 0.5, maxRunningPerOwner: 4 });
    if (deadJob === null) throw new Error('The job was not claimed.');
    expect(deadJob.attempt).toBe(1);
    await store.insertMedia(deadJob, { mediaId: 'med_dead', position: 0, keepSeconds: 60 });
    const { jobs } = start(async () => [picture]);
    await waitForStatus(jobs, 'job_1', 'succeeded');
    expect(await store.renewLease(deadJob, { progress: 0.9, leaseSeconds: 60 })).toBe(false);
    expect(
      await store.tx((tx) =>
        store.succeed(tx, deadJob, {
          media: [
            {
              mediaId: 'med_dead',
              mediaType: 'image/png',
              width: 1,
              height: 1,
              durationSeconds: null,
              bytes: 1,
            },
          ],
          keepSeconds: 60,
          credits: 0n,
        }),
      ),
    ).toBe(false);
    expect(await store.fail(deadJob, { code: 'x', message: 'x' })).toBe(false);
    const { media } = await find(jobs, 'job_1');
    expect(media).toHaveLength(1);
    expect(media[0]?.mediaId).not.toBe('med_dead');
  });

  it('reports a success that it has already written', async () => {
    const store = jobsStore(world.database);
    await insertRow(store, 'job_1');
    const claimedJob = await store.claim('image', { leaseSeconds: 60, maxRunningPerOwner: 4 });
    if (claimedJob === null) throw new Error('The job was not claimed.');
    const succeed = () =>
      store.tx((tx) => store.succeed(tx, claimedJob, { media: [], keepSeconds: 60, credits: 3n }));
    expect([await succeed(), await succeed()]).toEqual([true, true]);
    expect(await store.fail(claimedJob, { code: 'x', message: 'x' })).toBe(false);
  });

  it('fails a job after too many attempts', async () => {
    await insertRow(jobsStore(world.database), 'job_1', { leaseSeconds: 0 });
    // No heartbeat renews a lease of 0.2 seconds, so each attempt loses the job.
    const { jobs } = start(() => new Promise(() => {}), {
      leaseSeconds: 0.2,
      heartbeatMs: 60_000,
      maxAttempts: 2,
    });
    await waitForStatus(jobs, 'job_1', 'failed');
    expect((await find(jobs, 'job_1')).error).toMatchObject({ code: 'job_abandoned' });
  });

  it('releases the hold of each abandoned job although one release fails', async () => {
    const store = jobsStore(world.database);
    const jobIds = ['job_1', 'job_2', 'job_3'];
    for (const jobId of jobIds) await insertRow(store, jobId, { leaseSeconds: 0 });
    const releasedIds: string[] = [];
    // No job may run: every job already has too many attempts.
    const { jobs } = start(
      () => new Promise(() => {}),
      { maxAttempts: 0 },
      {
        payments: {
          ...unpaidJobs,
          release: failFirstCall<JobPayments['release']>(async ({ jobId }) => void releasedIds.push(jobId)),
        },
      },
    );
    await expect.poll(() => statusesOf(jobs, jobIds), pollOptions).toEqual(['failed', 'failed', 'failed']);
    // The failed release is repeated a second later.
    await expect.poll(() => releasedIds.toSorted(), pollOptions).toEqual(jobIds);
  });

  it('aborts a run whose job was canceled in another process', async () => {
    const startSignal = Promise.withResolvers<AbortSignal>();
    const { jobs } = start(async (_job, { signal }) => {
      startSignal.resolve(signal);
      return untilAborted(signal);
    });
    const jobId = await create(jobs);
    const signal = await startSignal.promise;
    await jobsStore(world.database).cancel({ jobId, kind: 'image', owner });
    await expect.poll(() => signal.aborted, pollOptions).toBe(true);
    expect(await find(jobs, jobId)).toMatchObject({ status: 'canceled', error: null, media: [] });
  });

  it('continues a job in another process after a clean stop', async () => {
    const startSignal = Promise.withResolvers<void>();
    const firstReplica = start(async (_job, { signal }) => {
      startSignal.resolve();
      return untilAborted(signal);
    });
    const jobId = await create(firstReplica.jobs);
    await startSignal.promise;
    await firstReplica.close();
    expect(await find(firstReplica.jobs, jobId)).toMatchObject({ status: 'queued', progress: 0 });
    const secondReplica = start(async () => [picture]);
    await waitForStatus(secondReplica.jobs, jobId, 'succeeded');
  });
});

describe('the upstream job of a media job', { timeout: 180_000 }, () => {
  it('cancels an upstream job submitted after the cancellation', async () => {
    const canceledJobs: UpstreamJob[] = [];
    const isRunning = Promise.withResolvers<void>();
    const gate = Promise.withResolvers<void>();
    const { jobs } = start(
      async (_job, { saveUpstreamJob }) => {
        isRunning.resolve();
        await gate.promise;
        await saveUpstreamJob({ model: 'acme/film', id: 'video_1' });
        return [picture];
      },
      {},
      { cancelUpstreamJob: async (job) => void canceledJobs.push(job) },
    );
    const jobId = await create(jobs);
    await isRunning.promise;
    await jobsStore(world.database).cancel({ jobId, kind: 'image', owner });
    gate.resolve();
    await expect.poll(() => canceledJobs, pollOptions).toEqual([{ model: 'acme/film', id: 'video_1' }]);
    expect(await find(jobs, jobId)).toMatchObject({ status: 'canceled', media: [] });
  });
});

describe('a paid media job', { timeout: 180_000 }, () => {
  it('is charged for its upstream job when the owner cancels', async () => {
    const ledger = memoryLedger(1_000n);
    const { jobs } = start(
      submitUpstreamJob,
      {},
      {
        payments: jobPayments({ ledger }),
        estimate: () => 100n,
        chargeForUpstreamJob: () => ({ credits: 60n, facts: upstreamFacts }),
      },
    );
    const jobId = await create(jobs, { call });
    await waitForProgress(jobs, jobId);
    expect(await jobs.cancel({ jobId, kind: 'image', owner })).toMatchObject({
      status: 'canceled',
      credits: 60,
    });
    expect([ledger.balance, ledger.held()]).toEqual([940n, 0n]);
    expect(ledger.last().facts).toEqual(upstreamFacts);
  });

  it('shows its charge although the credits could not be saved at first', async () => {
    const ledger = memoryLedger(1_000n);
    const store = jobsStore(world.database);
    const { jobs } = start(
      submitUpstreamJob,
      {},
      {
        store: { ...store, saveCredits: failFirstCall(store.saveCredits) },
        payments: jobPayments({ ledger }),
        estimate: () => 100n,
        chargeForUpstreamJob: () => ({ credits: 60n, facts: upstreamFacts }),
      },
    );
    const jobId = await create(jobs, { call });
    await waitForProgress(jobs, jobId);
    const cancel = () => jobs.cancel({ jobId, kind: 'image', owner });
    await expect(cancel()).rejects.toMatchObject({ code: 'database_unavailable' });
    await expect.poll(async () => (await find(jobs, jobId)).credits, pollOptions).toBe(60);
    expect(ledger.balance).toBe(940n);
  });

  it('is released later when its cancellation could not release its hold', async () => {
    const ledger = memoryLedger(1_000n);
    const payments = jobPayments({ ledger });
    const { jobs } = start(
      reportHalf,
      {},
      { payments: { ...payments, release: failFirstCall(payments.release) }, estimate: () => 100n },
    );
    const jobId = await create(jobs, { call });
    await waitForProgress(jobs, jobId);
    const cancel = () => jobs.cancel({ jobId, kind: 'image', owner });
    await expect(cancel()).rejects.toMatchObject({ code: 'database_unavailable' });
    // The job is canceled already, so this call releases nothing.
    expect(await cancel()).toMatchObject({ status: 'canceled', credits: 0 });
    await expect.poll(() => ledger.held(), pollOptions).toBe(0n);
    expect(ledger.balance).toBe(1_000n);
  });

  it('is refused after too many cancellations by its owner', async () => {
    const ledger = memoryLedger(1_000n);
    const { jobs } = start(
      reportHalf,
      { maxCanceledPerHour: 2 },
      { payments: jobPayments({ ledger }), estimate: () => 100n },
    );
    for (let count = 0; count < 2; count += 1) {
      const jobId = await create(jobs, { call: { ...call, requestId: `req_${count}` } });
      await waitForProgress(jobs, jobId);
      await jobs.cancel({ jobId, kind: 'image', owner });
    }
    await expect(create(jobs, { call })).rejects.toMatchObject({ code: 'rate_limited' });
    expect([ledger.balance, ledger.held()]).toEqual([1_000n, 0n]);
    await create(jobs, { call, owner: otherOwner });
  });
});

describe('a failed or interrupted run', { timeout: 180_000 }, () => {
  it('cancels the upstream job of a job past its deadline', async () => {
    const canceledJobs: UpstreamJob[] = [];
    const { jobs } = start(
      async (_job, { saveUpstreamJob, signal }) => {
        await saveUpstreamJob({ model: 'acme/film', id: 'video_1' });
        return untilAborted(signal);
      },
      { videoDeadlineMs: 2_000 },
      { cancelUpstreamJob: async (job) => void canceledJobs.push(job) },
    );
    const jobId = await create(jobs, { kind: 'video', request: { model: 'acme/film' } });
    await expect.poll(() => canceledJobs, pollOptions).toEqual([{ model: 'acme/film', id: 'video_1' }]);
    expect(await jobs.find({ jobId, kind: 'video', owner })).toMatchObject({
      status: 'failed',
      error: { code: 'upstream_timeout' },
    });
  });

  it('passes the upstream job of a stopped run to the next attempt', async () => {
    const upstreamJob = { model: 'acme/film', id: 'video_1' };
    const startSignal = Promise.withResolvers<void>();
    const canceledJobs: UpstreamJob[] = [];
    const cancelUpstreamJob = async (job: UpstreamJob) => void canceledJobs.push(job);
    const firstReplica = start(
      async (_job, { saveUpstreamJob, signal }) => {
        await saveUpstreamJob(upstreamJob);
        startSignal.resolve();
        return untilAborted(signal);
      },
      {},
      { cancelUpstreamJob },
    );
    const jobId = await create(firstReplica.jobs);
    await startSignal.promise;
    await firstReplica.close();
    const upstreamJobs: (UpstreamJob | null)[] = [];
    const secondReplica = start(
      async (_job, run) => {
        upstreamJobs.push(run.upstreamJob);
        return untilAborted(run.signal);
      },
      {},
      { cancelUpstreamJob },
    );
    await expect.poll(() => upstreamJobs, pollOptions).toEqual([upstreamJob]);
    expect(canceledJobs).toEqual([]);
    await secondReplica.jobs.cancel({ jobId, kind: 'image', owner });
    await expect.poll(() => canceledJobs, pollOptions).toEqual([upstreamJob]);
  });

  it('stores the message of a Problem', async () => {
    const { jobs } = start(async () => {
      throw new Problem('impossible', 'unsupported_by_model', 'The model does not do that.');
    });
    const jobId = await create(jobs);
    await expect
      .poll(async () => (await find(jobs, jobId)).error, pollOptions)
      .toEqual({ code: 'unsupported_by_model', message: 'The model does not do that.' });
  });

  it('hides the message of an unexpected error', async () => {
    const { jobs } = start(async () => {
      throw new Error('the password is hunter2');
    });
    const jobId = await create(jobs);
    await expect
      .poll(async () => (await find(jobs, jobId)).error, pollOptions)
      .toMatchObject({ code: 'internal_error', message: expect.not.stringContaining('hunter2') });
  });

  it('fails a job past its deadline', async () => {
    const { jobs } = start((_job, { signal }) => untilAborted(signal), { imageDeadlineMs: 300 });
    const jobId = await create(jobs);
    await expect
      .poll(async () => (await find(jobs, jobId)).error, pollOptions)
      .toMatchObject({ code: 'upstream_timeout' });
  });
});

describe('limits of media jobs', { timeout: 180_000 }, () => {
  it('refuses further jobs of an owner at the limit', async () => {
    const { jobs } = start((_job, { signal }) => untilAborted(signal), { maxOpenPerOwner: 2 });
    const [jobId] = [await create(jobs), await create(jobs)];
    await expect(create(jobs)).rejects.toMatchObject({ status: 429, headers: { 'retry-after': '5' } });
    await expect(create(jobs, { owner: otherOwner })).resolves.toMatch(/^job_/);
    await jobs.cancel({ jobId, kind: 'image', owner });
    await expect(create(jobs)).resolves.toMatch(/^job_/);
  });

  it('hides expired media', async () => {
    const { jobs } = start(async () => [picture]);
    const jobId = await create(jobs);
    await waitForStatus(jobs, jobId, 'succeeded');
    const [{ mediaId } = { mediaId: '' }] = (await find(jobs, jobId)).media;
    const inAnHour = Date.now() / 1000 + 3_600;
    expect((await jobs.openMedia(mediaId, inAnHour))?.size).toBe(picture.content.length);
    // A link that has expired.
    expect(await jobs.openMedia(mediaId, Date.now() / 1000 - 60)).toBeNull();
    await expireMedia(jobId);
    expect(await jobs.openMedia(mediaId, inAnHour)).toBeNull();
    expect((await find(jobs, jobId)).media).toEqual([]);
  });

  it('deletes expired media and then their jobs', async () => {
    const { jobs, queue } = start(async () => [picture, picture]);
    const [recentId, expiredId] = [await create(jobs), await create(jobs)];
    for (const jobId of [recentId, expiredId]) await waitForStatus(jobs, jobId, 'succeeded');
    await expireMedia(expiredId);
    await queue.enqueue('ai-tidy', {});
    await expect.poll(async () => (await readdir(folder)).length, pollOptions).toBe(2);
    await world.database.sql`update gateway.ai_jobs set created_at = created_at - interval '31 days'`;
    await queue.enqueue('ai-tidy', {});
    await expect
      .poll(
        () =>
          find(jobs, expiredId).then(
            ({ status }) => status,
            (error: unknown) => (error as Problem).status,
          ),
        pollOptions,
      )
      .toBe(404);
    // The other job still has media and is therefore kept.
    expect(await find(jobs, recentId)).toMatchObject({ status: 'succeeded' });
  });

  async function expireMedia(jobId: string): Promise<void> {
    await world.database.sql`
      update gateway.ai_media set keep_until = gateway.townhall_now() where job_id = ${jobId}`;
  }
});
