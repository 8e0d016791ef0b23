// Runs of media jobs that lose their job to another process, or the database while they end it: what they
// release, cancel and write.
import { describe, expect, test } from 'vitest';
import type { ClaimedJob, UpstreamJob } from '../../../../src/gateway/ai/jobs/job.ts';
import {
  type JobCharge,
  jobPayments,
  type JobPayments,
  unpaidJobs,
} from '../../../../src/gateway/ai/jobs/payments.ts';
import { type MediaGenerator, runJob, type RunContext } from '../../../../src/gateway/ai/jobs/run.ts';
import { defaultMediaJobsSettings } from '../../../../src/gateway/ai/jobs/settings.ts';
import type { Hold } from '../../../../src/gateway/credits/index.ts';
import type { JobsStore } from '../../../../src/gateway/ai/jobs/store.ts';
import { createBackground } from '../../../../src/kernel/background.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { silentLog } from '../../../support/databases.ts';
import { memoryLedger } from '../memory-ledger.ts';

const job: ClaimedJob = {
  jobId: 'job_1',
  kind: 'video',
  owner: { kind: 'user', id: 'usr_1' },
  model: 'acme/film',
  request: { model: 'acme/film' },
  call: null,
  holdId: 'hold_1',
  attempt: 1,
  upstreamJob: null,
};

/**
 * Creates a run. Its writes have no effect, as if another process had claimed the job, unless `writes` replaces
 * them.
 */
function createRun(
  generate: MediaGenerator['generate'],
  payments: Partial<JobPayments> = {},
  writes: Partial<JobsStore> = {},
) {
  const releasedHolds: (string | null)[] = [];
  const canceledJobs: UpstreamJob[] = [];
  const background = createBackground(silentLog);
  const context: RunContext = {
    store: {
      fail: async () => false,
      saveUpstreamJob: async () => false,
      saveHold: async () => false,
      ...writes,
    } as unknown as JobsStore,
    files: { store: async () => [], delete: async () => {}, deleteExpired: async () => {} },
    payments: {
      ...unpaidJobs,
      release: async ({ holdId }) => void releasedHolds.push(holdId),
      ...payments,
    },
    background,
    clock: systemClock,
    log: silentLog,
    settings: defaultMediaJobsSettings,
    generator: () => ({
      generate,
      cancelUpstreamJob: async (upstreamJob) => void canceledJobs.push(upstreamJob),
    }),
  };
  const signals = { shutdown: new AbortController().signal, leaseLost: new AbortController() };
  const run = async () => {
    await runJob(context, { ...job }, signals);
    await background.untilSettled();
  };
  return { run, releasedHolds, canceledJobs };
}

describe('runJob of a job that another process has claimed', () => {
  test('does not release the hold of the other run when the generation fails', async () => {
    const { run, releasedHolds } = createRun(async () => {
      throw new Error('failed late');
    });
    await run();
    expect(releasedHolds).toEqual([]);
  });

  test('cancels its upstream job but keeps the hold', async () => {
    const { run, releasedHolds, canceledJobs } = createRun(async (_job, { saveUpstreamJob }) => {
      await saveUpstreamJob({ model: 'acme/film', id: 'video_1' });
      return { files: [] };
    });
    await run();
    expect(canceledJobs).toEqual([{ model: 'acme/film', id: 'video_1' }]);
    expect(releasedHolds).toEqual([]);
  });

  test('releases the hold that it created to replace a lost hold', async () => {
    let isGenerated = false;
    const { run, releasedHolds } = createRun(
      async () => {
        isGenerated = true;
        return { files: [] };
      },
      { resume: async () => ({ holdId: 'hold_2' }) as Hold },
    );
    await run();
    expect(releasedHolds).toEqual(['hold_2']);
    expect(isGenerated).toBe(false);
  });
});

describe('runJob of a job that fails', () => {
  test('releases the hold once the database works again', async () => {
    let releases = 0;
    const { run } = createRun(
      async () => {
        throw new Error('failed');
      },
      {
        release: async () => {
          releases += 1;
          if (releases === 1) throw new Error('the database is away');
        },
      },
      { fail: async () => true },
    );
    await run();
    expect(releases).toBe(2);
  });
});

describe('runJob of a job whose success is rolled back while its charge goes to the journal', () => {
  test('writes the success again and keeps the files', async () => {
    let isCommitted = false;
    let deletions = 0;
    const succeed = async () => true;
    const store = {
      succeed,
      expireMediaBeyond: async () => 0,
      async tx(work: (tx: never) => Promise<void>) {
        await work({} as never);
        isCommitted = true;
      },
    } as unknown as JobsStore;
    // As a hold does when the connection breaks at the commit: the work has run and is lost.
    const hold = {
      holdId: 'hold_1',
      async settle(_credits, _facts, alongside) {
        if (alongside !== undefined && 'work' in alongside) await alongside.work({} as never);
        return { charged: 1n };
      },
    } as Hold;
    const background = createBackground(silentLog);
    await runJob(
      {
        store,
        files: {
          store: async () => [],
          delete: async () => void (deletions += 1),
          deleteExpired: async () => {},
        },
        payments: { ...jobPayments({ ledger: memoryLedger() }), resume: async () => hold },
        background,
        clock: systemClock,
        log: silentLog,
        settings: defaultMediaJobsSettings,
        generator: () => ({
          generate: async () => ({ files: [], chargeFor: () => ({ credits: 1n }) as JobCharge }),
        }),
      },
      { ...job },
      { shutdown: new AbortController().signal, leaseLost: new AbortController() },
    );
    expect(isCommitted).toBe(true);
    expect(deletions).toBe(0);
  });
});
