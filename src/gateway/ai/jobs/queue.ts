// The queue of media jobs. A message only announces that there is work: the rows of the jobs decide which job
// is next. So jobs are scheduled fairly between owners, and a lost or repeated message has no effect.
import type { Background } from '../../../kernel/background.ts';
import type { Jobs } from '../../../kernel/data/jobs.ts';
import type { Log } from '../../../kernel/log.ts';
import type { ClaimedJob, JobKind } from './job.ts';
import { jobDeadlineMs, type MediaJobsSettings } from './settings.ts';
import type { JobsStore } from './store.ts';

export interface MediaQueue {
  /** Announces a queued job. If the message is lost, the sweeper finds the job by its lease. */
  announce(job: { jobId: string; kind: JobKind; attempt: number }): void;
  /**
   * Announces the next queued job of the kind, if any: its own message may have been consumed while
   * its owner was busy.
   */
  announceNext(previous: ClaimedJob): void;
  start(): void;
  /** Resolves when jobs are being claimed, or when there are none. */
  ready(): Promise<void>;
}

export interface MediaQueueOptions {
  /** The queue is started here on demand; its owner stops it. */
  queue: Jobs;
  store: Pick<JobsStore, 'hasJobs' | 'hasWaiting' | 'releaseAll'>;
  /**
   * Whether this process is alone on the database: then jobs that are running at its start belong
   * to a dead process.
   */
  isAlone: boolean;
  background: Background;
  log: Log;
  settings: MediaJobsSettings;
  /** Claims and runs the next job of the kind. The signal aborts when the process stops. */
  runNext(kind: JobKind, signal: AbortSignal): Promise<void>;
  cleanUp(): Promise<void>;
}

const queueNames: Record<JobKind, string> = { image: 'ai-image', video: 'ai-video' };
const cleanUpName = 'ai-tidy';

export function mediaQueue(options: MediaQueueOptions): MediaQueue {
  const { queue, store, background } = options;
  /** Resolves to whether this process needs the queue. */
  let queueIsNeeded = Promise.resolve(false);
  let leftoversReleased: Promise<void> = Promise.resolve();
  defineHandlers(options);

  function startQueue(): void {
    queueIsNeeded = Promise.resolve(true);
    background.run('start the queue', async () => {
      // Claim no job before the release has ended: it would put the claimed job back into the queue.
      await leftoversReleased;
      queue.start();
    });
  }

  return {
    announce({ jobId, kind, attempt }) {
      startQueue();
      background.run(`announce ${jobId} ${attempt}`, () =>
        queue.enqueue(queueNames[kind], { jobId }, { key: `${jobId}.${attempt}` }),
      );
    },
    announceNext({ jobId, kind, attempt }) {
      background.run(`look for jobs after ${jobId}`, async () => {
        if (await store.hasWaiting(kind))
          await queue.enqueue(queueNames[kind], {}, { key: `after ${jobId}.${attempt}` });
      });
    },
    start() {
      leftoversReleased = releaseLeftovers(options);
      queueIsNeeded = mayHaveWork(options);
      background.run('look for jobs', async () => {
        if (await queueIsNeeded) startQueue();
      });
    },
    async ready() {
      if (await queueIsNeeded) await queue.ready();
    },
  };
}

/**
 * Puts the running jobs of an earlier process back into the queue. If this fails, their leases expire
 * instead. Never rejects.
 */
async function releaseLeftovers({ isAlone, store, log }: MediaQueueOptions): Promise<void> {
  if (!isAlone) return;
  await store
    .releaseAll()
    .catch((error: unknown) => log.warn({ err: error }, 'jobs of an earlier process could not be released'));
}

/**
 * Whether the queue is needed when the process starts: other processes may enqueue, or earlier jobs remain.
 */
async function mayHaveWork({ isAlone, store }: MediaQueueOptions): Promise<boolean> {
  if (!isAlone) return true;
  return store.hasJobs().catch(() => true);
}

function defineHandlers({ queue, settings, runNext, cleanUp }: MediaQueueOptions): void {
  for (const kind of Object.keys(queueNames) as JobKind[]) {
    const policy = {
      retries: 2,
      // Two minutes after the job's own deadline: if the queue's deadline came
      // first, it would start the job again.
      expireSeconds: Math.ceil(jobDeadlineMs(kind, settings) / 1000) + 120,
      concurrency: settings.concurrency,
    };
    queue.define<{ jobId: string }>(queueNames[kind], policy, (_data, { signal }) => runNext(kind, signal));
  }
  queue.define(cleanUpName, { retries: 0 }, cleanUp);
  queue.schedule(cleanUpName, '*/10 * * * *', {});
}
