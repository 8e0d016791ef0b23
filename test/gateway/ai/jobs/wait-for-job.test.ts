// Waiting for a job: the deadline, a job that ends at the deadline, an unavailable database, and the answer for
// a failed job.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { jobsStore, mediaJobs, type MediaJobs } from '../../../../src/gateway/ai/index.ts';
import type { JobAddress } from '../../../../src/gateway/ai/jobs/store.ts';
import { problemOfJob, waitForJob } from '../../../../src/gateway/ai/jobs/wait-for-job.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { createJobs, type Jobs } from '../../../../src/kernel/data/jobs.ts';
import { directoryStorage } from '../../../../src/kernel/storage/storage.ts';
import { silentLog, testDatabase, type TestDatabase } from '../../../support/databases.ts';

const owner = { kind: 'user', id: 'usr_1' } as const;
const picture = {
  content: Buffer.from('a picture'),
  mediaType: 'image/png',
  width: 2,
  height: 1,
  durationSeconds: null,
};

let world: TestDatabase;
let folder: string;
let queue: Jobs;
let jobs: MediaJobs;
/** Lets the generator of the last job finish. */
let finish: (() => void) | undefined;
let generation: Promise<void>;

beforeAll(async () => {
  world = await testDatabase();
  folder = await mkdtemp(join(tmpdir(), 'townhall-wait-'));
  queue = createJobs(world.database, { schema: 'pgboss', log: silentLog, pollSeconds: 0.5 });
  jobs = mediaJobs({
    store: jobsStore(world.database),
    queue,
    storage: directoryStorage(folder),
    isAlone: false,
    clock: systemClock,
    log: silentLog,
    settings: { sweepMs: 200, heartbeatMs: 100 },
  });
  jobs.useGenerator({
    async generate() {
      await generation;
      return { files: [picture] };
    },
  });
  jobs.start();
}, 60_000);
afterAll(async () => {
  finish?.();
  await queue?.stop({ timeoutMs: 500 });
  await jobs?.close();
  await world?.close();
  await rm(folder, { recursive: true, force: true });
});

async function create(): Promise<JobAddress> {
  ({ promise: generation, resolve: finish } = Promise.withResolvers<void>());
  const request = { model: 'acme/painter', prompt: 'x' };
  const jobId = await jobs.create({ kind: 'image', owner, request }, async () => {});
  return { jobId, kind: 'image', owner };
}

const untilStatus = (address: JobAddress, status: string) =>
  vi.waitFor(async () => expect(await jobs.find(address)).toMatchObject({ status }), {
    timeout: 30_000,
    interval: 20,
  });

const waitOptions = (
  deadlineMs: number,
  overrides: { keepsRunning?: boolean; signal?: AbortSignal } = {},
) => ({
  signal: new AbortController().signal,
  deadlineMs,
  clock: systemClock,
  keepsRunning: false,
  ...overrides,
});

describe('waitForJob', { timeout: 60_000 }, () => {
  it('returns a job that succeeds just before its cancellation', async () => {
    const address = await create();
    const slowJobs: Pick<MediaJobs, 'find' | 'cancel'> = {
      find: jobs.find,
      async cancel(job) {
        finish?.();
        await untilStatus(job, 'succeeded');
        return jobs.cancel(job);
      },
    };
    expect(await waitForJob(slowJobs, address, waitOptions(0))).toMatchObject({
      status: 'succeeded',
      media: [{ mediaType: 'image/png' }],
    });
  });

  it('cancels a job that has not ended at the deadline', async () => {
    const address = await create();
    await expect(waitForJob(jobs, address, waitOptions(0))).rejects.toMatchObject({
      code: 'upstream_timeout',
      headers: { 'x-should-retry': 'false' },
    });
    expect((await jobs.find(address)).status).toBe('canceled');
  });

  it('leaves a job with an Idempotency-Key running', async () => {
    const address = await create();
    const keyedOptions = waitOptions(0, { keepsRunning: true });
    await expect(waitForJob(jobs, address, keyedOptions)).rejects.toMatchObject({
      code: 'upstream_timeout',
      headers: {},
    });
    finish?.();
    await untilStatus(address, 'succeeded');
  });

  it('reports the deadline when the cancellation fails', async () => {
    const address = await create();
    const cancel = async () => Promise.reject(new Error('The database is unavailable.'));
    await expect(waitForJob({ find: jobs.find, cancel }, address, waitOptions(0))).rejects.toMatchObject({
      code: 'upstream_timeout',
    });
    finish?.();
    await untilStatus(address, 'succeeded');
  });

  it('keeps waiting while the database is unavailable', async () => {
    const address = await create();
    finish?.();
    let attempts = 0;
    const find: MediaJobs['find'] = async (job) => {
      attempts += 1;
      if (attempts <= 3) throw new Error('The database is unavailable.');
      return jobs.find(job);
    };
    expect(await waitForJob({ find, cancel: jobs.cancel }, address, waitOptions(30_000))).toMatchObject({
      status: 'succeeded',
    });
    expect(attempts).toBeGreaterThan(3);
  });
});

describe('problemOfJob', () => {
  it.each([
    ['upstream_timeout', 504],
    ['credits_busy', 503],
    ['storage_unavailable', 502],
    ['internal_error', 502],
    ['unpriced_member', 422],
    // Unknown to the gateway, so the code of a provider that refused the request.
    ['invalid_size', 400],
  ])('gives %s the status %i', (code, status) => {
    expect(problemOfJob({ code, message: 'It failed.' })).toMatchObject({ status, message: 'It failed.' });
  });
});
