// Runs of media jobs that lose their job to another process: what they release and cancel.
import { describe, expect, test } from 'vitest';
import type { ClaimedJob, UpstreamJob } from '../../../../src/gateway/ai/jobs/job.ts';
import { type JobPayments, unpaidJobs } from '../../../../src/gateway/ai/jobs/payments.ts';
import { type MediaGenerator, runJob, type RunContext } from '../../../../src/gateway/ai/jobs/run.ts';
import { defaultMediaJobsSettings } from '../../../../src/gateway/ai/jobs/settings.ts';
import type { Hold } from '../../../../src/gateway/credits/index.ts';
import type { JobsStore } from '../../../../src/gateway/ai/jobs/store.ts';
import { createBackground } from '../../../../src/kernel/background.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { silentLog } from '../../../support/databases.ts';

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

/** Creates a run whose job another process has claimed, so that none of its writes has an effect. */
function createReclaimedRun(generate: MediaGenerator['generate'], payments: Partial<JobPayments> = {}) {
  const releasedHolds: (string | null)[] = [];
  const canceledJobs: UpstreamJob[] = [];
  const background = createBackground(silentLog);
  const context: RunContext = {
    store: {
      fail: async () => false,
      saveUpstreamJob: async () => false,
      saveHold: async () => false,
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
    const { run, releasedHolds } = createReclaimedRun(async () => {
      throw new Error('failed late');
    });
    await run();
    expect(releasedHolds).toEqual([]);
  });

  test('cancels its upstream job but keeps the hold', async () => {
    const { run, releasedHolds, canceledJobs } = createReclaimedRun(async (_job, { saveUpstreamJob }) => {
      await saveUpstreamJob({ model: 'acme/film', id: 'video_1' });
      return { files: [] };
    });
    await run();
    expect(canceledJobs).toEqual([{ model: 'acme/film', id: 'video_1' }]);
    expect(releasedHolds).toEqual([]);
  });

  test('releases the hold that it created to replace a lost hold', async () => {
    let isGenerated = false;
    const { run, releasedHolds } = createReclaimedRun(
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
