import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { jobsStore, mediaJobs, type MediaJobs } from '../../../../src/gateway/ai/index.ts';
import type { Job, UpstreamJob } from '../../../../src/gateway/ai/jobs/job.ts';
import { jobPayments, type JobPayments } from '../../../../src/gateway/ai/jobs/payments.ts';
import type { JobInput, JobRun, MediaGenerator } from '../../../../src/gateway/ai/jobs/run.ts';
import type { MediaJobsSettings } from '../../../../src/gateway/ai/jobs/settings.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { connect, type Database } from '../../../../src/kernel/data/database.ts';
import { createJobs, type Jobs } from '../../../../src/kernel/data/jobs.ts';
import { Problem } from '../../../../src/kernel/problem.ts';
import { directoryStorage } from '../../../../src/kernel/storage/storage.ts';
import { silentLog, testDatabase, type TestDatabase } from '../../../support/databases.ts';
import { memoryLedger } from '../memory-ledger.ts';

const owner = { kind: 'user', id: 'usr_1' } as const;
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
    payments,
    ...members
  }: Omit<Partial<MediaGenerator>, 'generate'> & { database?: Database; payments?: JobPayments } = {},
): Replica {
  const queue = createJobs(database, { schema: 'pgboss', log: silentLog, pollSeconds: 0.5 });
  const jobs = mediaJobs({
    store: jobsStore(database),
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

const create = (jobs: MediaJobs) =>
  jobs.create({ kind: 'image', owner, request: { model: 'acme/painter', prompt: 'x' } }, async () => {});
const find = (jobs: MediaJobs, jobId: string): Promise<Job> => jobs.find({ jobId, kind: 'image', owner });

/** Rejects with the signal's reason when it is aborted. */
function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) =>
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true }),
  );
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

const paidJob = {
  kind: 'image' as const,
  owner,
  request: { model: 'acme/painter', prompt: 'x' },
  call: { requestId: 'req_1', tokenId: 'tok_1', bureauId: 'bur_1' },
};
const orderFacts = {
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
    await expect.poll(async () => (await find(jobs, jobId)).status, pollOptions).toBe('failed');
    expect((await find(jobs, jobId)).error).toMatchObject({ message: 'refused\ufffd\ufffd' });
  });

  it('deletes the oldest media of an owner beyond the quota', async () => {
    const { jobs } = start(async () => [picture], { maxMediaBytesPerOwner: picture.content.byteLength * 2 });
    const otherOwner = { kind: 'user', id: 'usr_2' } as const;
    const otherJobId = await jobs.create(
      { kind: 'image', owner: otherOwner, request: { model: 'acme/painter', prompt: 'x' } },
      async () => {},
    );
    await expect
      .poll(
        async () => (await jobs.find({ jobId: otherJobId, kind: 'image', owner: otherOwner })).status,
        pollOptions,
      )
      .toBe('succeeded');
    const jobIds: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      const jobId = await create(jobs);
      await expect.poll(async () => (await find(jobs, jobId)).status, pollOptions).toBe('succeeded');
      jobIds.push(jobId);
    }
    expect(await Promise.all(jobIds.map(async (jobId) => (await find(jobs, jobId)).media.length))).toEqual([
      0, 0, 1, 1,
    ]);
    expect((await jobs.find({ jobId: otherJobId, kind: 'image', owner: otherOwner })).media).toHaveLength(1);
    await expect.poll(() => readdir(folder), pollOptions).toHaveLength(3);
  });
});

describe('claims of media jobs', { timeout: 180_000 }, () => {
  it('runs each job once when several processes claim jobs', async () => {
    const runs = new Map<string, number>();
    const generate: Generate = async ({ request }) => {
      runs.set(String(request['prompt']), (runs.get(String(request['prompt'])) ?? 0) + 1);
      return [picture];
    };
    // Only PostgreSQL can serve two replicas; the embedded engine has one process.
    const databases =
      world.engine === 'postgres'
        ? [world.database, await connect(world.options, { log: silentLog })]
        : [world.database];
    const [firstReplica] = databases.map((database) => start(generate, {}, { database }));
    const { jobs } = firstReplica as Replica;
    const ids = await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        jobs.create(
          { kind: 'image', owner, request: { model: 'acme/painter', prompt: String(index) } },
          async () => {},
        ),
      ),
    );
    await expect
      .poll(
        async () => (await Promise.all(ids.map((jobId) => find(jobs, jobId)))).map(({ status }) => status),
        pollOptions,
      )
      .toEqual(ids.map(() => 'succeeded'));
    expect([...runs.values()]).toEqual(ids.map(() => 1));
    expect(await readdir(folder)).toHaveLength(12);
    while (replicas[0]) await replicas[0].close();
    if (databases[1]) await databases[1].close();
  });

  it('runs a job of another owner while one owner has many', async () => {
    const gate = Promise.withResolvers<void>();
    const { jobs } = start(async ({ owner: { id } }) => {
      if (id === owner.id) await gate.promise;
      return [picture];
    });
    const ids = await Promise.all(Array.from({ length: 20 }, () => create(jobs)));
    const statuses = async () => Promise.all(ids.map(async (jobId) => (await find(jobs, jobId)).status));
    await expect
      .poll(async () => (await statuses()).filter((status) => status === 'running').length, pollOptions)
      .toBe(4);
    const stranger = { kind: 'user', id: 'usr_2' } as const;
    const otherJob = await jobs.create(
      { kind: 'image', owner: stranger, request: { model: 'acme/painter' } },
      async () => {},
    );
    await expect
      .poll(
        async () => (await jobs.find({ jobId: otherJob, kind: 'image', owner: stranger })).status,
        pollOptions,
      )
      .toBe('succeeded');
    expect((await statuses()).filter((status) => status === 'queued')).toHaveLength(16);
    gate.resolve();
    await expect.poll(statuses, pollOptions).toEqual(ids.map(() => 'succeeded'));
  });

  it('claims the oldest job of the owner with the fewest running', async () => {
    const store = jobsStore(world.database);
    const insert = (jobId: string, userId: string) =>
      store.tx((tx) =>
        store.insert(tx, {
          jobId,
          kind: 'image',
          owner: { kind: 'user', id: userId },
          request: { model: 'acme/painter' },
          leaseSeconds: 60,
          call: null,
          holdId: null,
        }),
      );
    for (const [jobId, userId] of [
      ['a1', 'a'],
      ['a2', 'a'],
      ['a3', 'a'],
      ['b1', 'b'],
      ['b2', 'b'],
      ['c1', 'c'],
    ] as const)
      await insert(jobId, userId);
    const order: (string | undefined)[] = [];
    for (let count = 0; count < 6; count += 1)
      order.push((await store.claim('image', { leaseSeconds: 60, maxRunningPerOwner: 2 }))?.jobId);
    expect(order).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', undefined]);
    expect(await store.hasWaiting('image')).toBe(true);
    expect(await store.hasWaiting('video')).toBe(false);
  });

  it('creates no job when the transaction of the request fails', async () => {
    const { jobs } = start(async () => [picture]);
    let jobId = '';
    const failingJob = jobs.create(
      { kind: 'image', owner, request: { model: 'acme/painter' } },
      async (_tx, newJobId) => {
        jobId = newJobId;
        throw new Error('no');
      },
    );
    await expect(failingJob).rejects.toThrow('no');
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
    await expect.poll(async () => (await find(jobs, jobId)).status, pollOptions).toBe('succeeded');
  });

  it('ignores writes of an earlier attempt after a reclaim', async () => {
    const store = jobsStore(world.database);
    await store.tx((tx) =>
      store.insert(tx, {
        jobId: 'job_1',
        kind: 'image',
        owner,
        request: { model: 'acme/painter' },
        leaseSeconds: 60,
        call: null,
        holdId: null,
      }),
    );
    // A process claims the job and then dies.
    const deadJob = await store.claim('image', { leaseSeconds: 0.5, maxRunningPerOwner: 4 });
    expect(deadJob).toMatchObject({ attempt: 1 });
    if (deadJob === null) return;
    await store.insertMedia(deadJob, { mediaId: 'med_dead', position: 0, keepSeconds: 60 });
    const { jobs } = start(async () => [picture]);
    await expect.poll(async () => (await find(jobs, 'job_1')).status, pollOptions).toBe('succeeded');
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

  it('fails a job that was attempted too often', async () => {
    const store = jobsStore(world.database);
    await store.tx((tx) =>
      store.insert(tx, {
        jobId: 'job_1',
        kind: 'image',
        owner,
        request: { model: 'acme/painter' },
        leaseSeconds: 0,
        call: null,
        holdId: null,
      }),
    );
    const { jobs } = start(() => new Promise(() => {}), {
      leaseSeconds: 0.2,
      heartbeatMs: 60_000,
      maxAttempts: 2,
    });
    await expect.poll(async () => (await find(jobs, 'job_1')).status, pollOptions).toBe('failed');
    expect((await find(jobs, 'job_1')).error).toMatchObject({ code: 'job_abandoned' });
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
    await expect
      .poll(async () => (await find(secondReplica.jobs, jobId)).status, pollOptions)
      .toBe('succeeded');
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

describe('the charge of a media job', { timeout: 180_000 }, () => {
  it('charges the order of a job that its owner cancels', async () => {
    const ledger = memoryLedger(1_000n);
    const { jobs } = start(
      async (_job, run) => {
        await run.saveUpstreamJob({ model: 'acme/film', id: 'video_1' });
        run.reportProgress(0.5);
        return untilAborted(run.signal);
      },
      {},
      {
        payments: jobPayments({ ledger }),
        estimate: () => 100n,
        chargeForUpstreamJob: () => ({ credits: 60n, facts: orderFacts }),
      },
    );
    const jobId = await jobs.create(paidJob, async () => {});
    await expect.poll(async () => (await find(jobs, jobId)).progress, pollOptions).toBe(0.5);
    expect(await jobs.cancel({ jobId, kind: 'image', owner })).toMatchObject({
      status: 'canceled',
      credits: 60,
    });
    expect([ledger.balance, ledger.held()]).toEqual([940n, 0n]);
    expect(ledger.last().facts).toEqual(orderFacts);
  });

  it('refuses paid jobs of an owner who cancels many that run', async () => {
    const ledger = memoryLedger(1_000n);
    const { jobs } = start(
      async (_job, run) => {
        run.reportProgress(0.5);
        return untilAborted(run.signal);
      },
      { maxCanceledPerHour: 2 },
      { payments: jobPayments({ ledger }), estimate: () => 100n },
    );
    for (let count = 0; count < 2; count += 1) {
      const call = { ...paidJob.call, requestId: `req_${count}` };
      const jobId = await jobs.create({ ...paidJob, call }, async () => {});
      await expect.poll(async () => (await find(jobs, jobId)).progress, pollOptions).toBe(0.5);
      await jobs.cancel({ jobId, kind: 'image', owner });
    }
    await expect(jobs.create(paidJob, async () => {})).rejects.toMatchObject({ code: 'rate_limited' });
    expect([ledger.balance, ledger.held()]).toEqual([1_000n, 0n]);
    await jobs.create({ ...paidJob, owner: { kind: 'user', id: 'usr_2' } }, async () => {});
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
    const jobId = await jobs.create(
      { kind: 'video', owner, request: { model: 'acme/film' } },
      async () => {},
    );
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

  it('stores the message of a Problem and hides other errors', async () => {
    const { jobs } = start(async ({ request }) => {
      if (request['prompt'] === 'a problem')
        throw new Problem('impossible', 'unsupported_by_model', 'The model does not do that.');
      throw new Error('the password is hunter2');
    });
    const createPicture = (prompt: string) =>
      jobs.create({ kind: 'image', owner, request: { model: 'acme/painter', prompt } }, async () => {});
    const [problem, secret] = [await createPicture('a problem'), await createPicture('an error')];
    await expect
      .poll(async () => (await find(jobs, problem)).error, pollOptions)
      .toEqual({ code: 'unsupported_by_model', message: 'The model does not do that.' });
    await expect
      .poll(async () => (await find(jobs, secret)).error, pollOptions)
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
    const [firstJob] = [await create(jobs), await create(jobs)];
    await expect(create(jobs)).rejects.toMatchObject({ status: 429, headers: { 'retry-after': '5' } });
    await jobs.create(
      { kind: 'image', owner: { kind: 'user', id: 'usr_2' }, request: { model: 'acme/painter' } },
      async () => {},
    );
    await jobs.cancel({ jobId: firstJob, kind: 'image', owner });
    await create(jobs);
  });

  it('deletes expired media and then their jobs', async () => {
    const { jobs, queue } = start(async () => [picture, picture]);
    const [recentJob, oldJob] = [await create(jobs), await create(jobs)];
    await expect
      .poll(
        async () =>
          (await Promise.all([recentJob, oldJob].map((jobId) => find(jobs, jobId)))).map(
            ({ status }) => status,
          ),
        pollOptions,
      )
      .toEqual(['succeeded', 'succeeded']);
    const oldMedia = (await find(jobs, oldJob)).media.map(({ mediaId }) => mediaId);
    const laterSeconds = Date.now() / 1000 + 3_600;
    expect((await jobs.openMedia(oldMedia[0] ?? '', laterSeconds))?.size).toBe(picture.content.length);
    expect(await jobs.openMedia(oldMedia[0] ?? '', Date.now() / 1000 - 60)).toBeNull();
    await world.database
      .sql`update gateway.ai_media set keep_until = gateway.townhall_now() where job_id = ${oldJob}`;
    expect(await jobs.openMedia(oldMedia[0] ?? '', laterSeconds)).toBeNull();
    expect((await find(jobs, oldJob)).media).toEqual([]);
    await queue.enqueue('ai-tidy', {});
    await expect.poll(async () => (await readdir(folder)).length, pollOptions).toBe(2);
    await world.database.sql`update gateway.ai_jobs set created_at = created_at - interval '31 days'`;
    await queue.enqueue('ai-tidy', {});
    // The other job still has media and is therefore kept.
    await expect
      .poll(
        () =>
          find(jobs, oldJob).then(
            () => 'there',
            (error: unknown) => (error as Problem).status,
          ),
        pollOptions,
      )
      .toBe(404);
    expect(await find(jobs, recentJob)).toMatchObject({ status: 'succeeded' });
  });
});
