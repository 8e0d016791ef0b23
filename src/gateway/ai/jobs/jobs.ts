// Jobs of pictures and films: accepted in one statement, made in the background by whichever process takes them, and
// ended once. The queue only says that there is work; which job is next is decided by the rows, so that owners take
// turns. The truth is the job's row, whose lease tells a process that is busy from one that died, and whose attempt keeps a late comer from writing a second end. What a job has ordered from
// a provider stands in the row before anybody waits for it, so that no process orders it again.
import { createBackground } from '../../../kernel/background.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Tx } from '../../../kernel/data/database.ts';
import { id } from '../../../kernel/ids.ts';
import type { Jobs, JobContext } from '../../../kernel/data/jobs.ts';
import type { Log } from '../../../kernel/log.ts';
import type { Hold } from '../../credits/index.ts';
import { asProblem, Problem } from '../../../kernel/problem.ts';
import type { Storage } from '../../../kernel/data/storage.ts';
import { isTransient } from '../upstream/retry.ts';
import type { RemoteMedia, MediaFile, MediaProperties, GenerationContext } from '../hub/media-model.ts';
import type { AbortedJob, JobAddress, JobsStore, StoredMedia } from './store.ts';
import {
  ownerName,
  type Job,
  type JobCall,
  type JobError,
  type JobKind,
  type JobRequest,
  type MediaRecord,
  type UpstreamJob,
  type Owner,
  type ClaimedJob,
} from './job.ts';
import { type JobCharge, type JobPayments, unpaidJobs } from './payments.ts';

/** Makes what a job asks for. What it throws as a Problem is the job's error. */
export type GenerateMedia = (
  job: Pick<ClaimedJob, 'kind' | 'owner' | 'request'>,
  work: JobRun,
) => Promise<(MediaFile | RemoteMedia)[]>;

export interface JobRun extends GenerationContext {
  /** What the work has come to cost once it is measured, told before it is handed over. */
  costs(bill: (made: readonly MediaProperties[]) => JobCharge): void;
  /** What was ordered for the job before. */
  order: UpstreamJob | null;
  /** Notes what was ordered. Throws when there is nobody to order for any more; the order is given up then. */
  ordered(order: UpstreamJob): Promise<void>;
}

/** Tells a provider that nobody waits for an order any more. */
export type CancelUpstreamJob = (order: UpstreamJob) => Promise<void>;

/** What a job may cost at most, as the catalog has it now. */
export type EstimateCredits = (job: Pick<ClaimedJob, 'kind' | 'owner' | 'request'>) => bigint;

export interface MediaJobs {
  /** Who makes what jobs ask for, and knows what that costs; once, before `start`. */
  useGenerator(
    maker: GenerateMedia,
    more?: { estimate?: EstimateCredits; cancelUpstreamJob?: CancelUpstreamJob },
  ): void;
  /** Accepts a job; `within` runs in the transaction that does. Throws 402, and 429 when too many of the owner's are open. */
  create(
    job: { kind: JobKind; owner: Owner; request: JobRequest; call?: JobCall },
    within: (tx: Tx, jobId: string) => Promise<void>,
  ): Promise<string>;
  /** Throws a 404 for a job that is not there or is somebody else's. */
  find(job: JobAddress): Promise<Job>;
  cancel(job: JobAddress): Promise<Job>;
  /** The media under a link, with its bytes; null when there is nothing to be had. */
  openMedia(
    mediaId: string,
    expires: number,
  ): Promise<{ record: MediaRecord; size: number; content: AsyncIterable<Uint8Array> } | null>;
  /**
   * Begins to take jobs in the background. A process that has the database alone starts the queue at its first job:
   * the tables of the queue take a while to make, and the engine does nothing else meanwhile.
   */
  start(): void;
  /** Resolves when jobs are taken, or when there are none to take. */
  ready(): Promise<void>;
  /** After the queue was stopped. */
  close(): Promise<void>;
}

export interface MediaJobsSettings {
  /** A process that says nothing of its job for so long is taken for dead. */
  leaseSeconds: number;
  /** Between two looks at whether a running job was canceled elsewhere. */
  heartbeatMs: number;
  /** Between two looks for jobs that nobody works on. */
  sweepMs: number;
  /** A job that ended so many processes will not end another. */
  maxAttempts: number;
  /** Jobs of one owner that wait or run. */
  maxOpenPerOwner: number;
  /** Jobs of one owner and kind that run, over all processes. The others wait, and leave room for other owners. */
  maxRunningPerOwner: number;
  /** One picture's job at most, all its attempts at providers included. */
  imageDeadlineMs: number;
  /** One film's. */
  videoDeadlineMs: number;
  mediaRetentionSeconds: number;
  /** Media of one owner; beyond it the oldest are dropped. */
  maxMediaBytesPerOwner: number;
  jobRetentionSeconds: number;
  /** Jobs of each kind at once in this process. */
  concurrency: number;
}

const day = 24 * 3600;
const defaultMediaJobsSettings: MediaJobsSettings = {
  leaseSeconds: 30,
  heartbeatMs: 1_000,
  sweepMs: 10_000,
  maxAttempts: 5,
  maxOpenPerOwner: 50,
  maxRunningPerOwner: 4,
  imageDeadlineMs: 14 * 60_000,
  videoDeadlineMs: 45 * 60_000,
  mediaRetentionSeconds: 7 * day,
  maxMediaBytesPerOwner: 4 * 2 ** 30,
  jobRetentionSeconds: 30 * day,
  concurrency: 8,
};

export interface MediaJobsOptions {
  store: JobsStore;
  /** The kernel's queue; started here when it is needed, stopped by whoever made it. */
  queue: Jobs;
  storage: Storage;
  /** Who pays; nobody where nothing is said. */
  payments?: JobPayments;
  /** Whether this process has the database alone, so that whatever runs at its start was left by a dead one. */
  isAlone: boolean;
  clock: Pick<Clock, 'sleep'>;
  log: Log;
  settings?: Partial<MediaJobsSettings>;
}

const queueNames: Record<JobKind, string> = { image: 'ai-image', video: 'ai-video' };
const tidyName = 'ai-tidy';
const tidyBatch = 200;
// Bytes whose job never came to its end are looked for after this.
const unfinishedSeconds = 3600;

export function mediaJobs(needs: MediaJobsOptions): MediaJobs {
  const { store, queue, storage, clock, log, payments = unpaidJobs } = needs;
  const settings = { ...defaultMediaJobsSettings, ...needs.settings };
  const background = createBackground(log);
  const running = new Map<string, AbortController>();
  const stopping = new AbortController();
  let make: GenerateMedia | undefined;
  let estimate: EstimateCredits = () => 0n;
  let cancelUpstreamJob: CancelUpstreamJob = async () => {};
  let sweeping: Promise<void> = Promise.resolve();
  let isWanted = Promise.resolve(false);
  let released: Promise<unknown> = Promise.resolve();

  const deadlines: Record<JobKind, number> = {
    image: settings.imageDeadlineMs,
    video: settings.videoDeadlineMs,
  };
  for (const kind of Object.keys(queueNames) as JobKind[]) {
    // Ours comes well before the queue's own, whose end would be a restart of the job.
    const policy = {
      retries: 2,
      expireSeconds: Math.ceil(deadlines[kind] / 1000) + 120,
      concurrency: settings.concurrency,
    };
    queue.define<{ jobId: string }>(queueNames[kind], policy, (_data, context) => perform(kind, context));
  }
  queue.define(tidyName, { retries: 0 }, tidy);
  queue.schedule(tidyName, '*/10 * * * *', {});

  function announce(kind: JobKind, jobId: string, attempt: number): void {
    wantQueue();
    // Should this be lost, the sweeper finds the job by its lease.
    background.run(`announce ${jobId} ${attempt}`, () =>
      queue.enqueue(queueNames[kind], { jobId }, { key: `${jobId}.${attempt}` }),
    );
  }

  function wantQueue(): void {
    isWanted = Promise.resolve(true);
    // Not before what a dead process left is free: a job that is taken here meanwhile would be freed as well.
    background.run('start the queue', async () => {
      await released;
      queue.start();
    });
  }

  /** Whether the queue is needed from the start: others may have jobs for us, or there are some of before. */
  async function isNeeded(): Promise<boolean> {
    if (!needs.isAlone) return true;
    // A database that cannot say it now will have been asked about jobs by the time that it can.
    return store.hasJobs().catch(() => true);
  }

  async function perform(kind: JobKind, context: JobContext): Promise<void> {
    const nextJob = await store.claim(kind, settings);
    // Canceled, taken by another delivery, or the owners of all that wait run as many as they may.
    if (nextJob === null) return;
    try {
      await performTaken(nextJob, context);
    } finally {
      // The message of a job that had to wait for this owner's turn is gone.
      if (!context.signal.aborted) wakeNext(nextJob);
    }
  }

  function wakeNext({ jobId, kind, attempt }: ClaimedJob): void {
    background.run(`look for jobs after ${jobId}`, async () => {
      if (await store.hasWaiting(kind))
        await queue.enqueue(queueNames[kind], {}, { key: `after ${jobId}.${attempt}` });
    });
  }

  async function performTaken(taken: ClaimedJob, context: JobContext): Promise<void> {
    const { jobId } = taken;
    const stop = new AbortController();
    running.set(jobId, stop);
    const signal = AbortSignal.any([stop.signal, context.signal, AbortSignal.timeout(deadlines[taken.kind])]);
    let progress = 0;
    const watch = watchOver(taken, () => progress, stop);
    try {
      if (make === undefined) throw new Error('Nobody was named who makes what jobs ask for.');
      const hold = await payments.resume(taken, estimate(taken));
      if (hold !== null && hold.holdId !== taken.holdId) {
        await store.saveHold(taken, hold.holdId);
        taken.holdId = hold.holdId;
      }
      let billOf: ((made: readonly MediaProperties[]) => JobCharge) | undefined;
      const made = await make(taken, {
        owner: ownerName(taken.owner),
        signal,
        reportProgress: (done) => (progress = Math.min(Math.max(done, progress), 1)),
        costs: (bill) => (billOf = bill),
        order: taken.upstreamJob,
        ordered: (order) => ordered(taken, order),
      });
      await finish(taken, made, { hold, billOf });
    } catch (thrown) {
      if (context.signal.aborted) await store.release(taken);
      else if (!stop.signal.aborted) {
        if (await fail(taken, signal.aborted ? tooSlow() : thrown)) letGo(taken);
        await payments.release(taken, 'upstream_failed');
      }
    } finally {
      running.delete(jobId);
      watch.end();
    }
  }

  /** Renews the lease, and stops the work when the job is not ours any more. */
  function watchOver(taken: ClaimedJob, progress: () => number, stop: AbortController): { end(): void } {
    const timer = setInterval(() => {
      background.run(`watch ${taken.jobId}`, async () => {
        const isOurs = await store.renewLease(taken, {
          progress: progress(),
          leaseSeconds: settings.leaseSeconds,
        });
        if (!isOurs) stop.abort(new Error('The job is no longer for this process to do.'));
      });
    }, settings.heartbeatMs);
    return { end: () => clearInterval(timer) };
  }

  /** An order that nobody knows of is made for nobody, so it is noted as soon as there is a database for it. */
  async function ordered(taken: ClaimedJob, order: UpstreamJob): Promise<void> {
    taken.upstreamJob = order;
    for (let tries = 0; ; tries += 1) {
      try {
        if (await store.saveUpstreamJob(taken, order)) return;
        break;
      } catch (error) {
        if (tries >= mostEndTries) throw error;
        await clock.sleep(1_000);
      }
    }
    letGo(taken);
    throw notOurs;
  }

  /** Gives up what a job has ordered, which no caller waits for. */
  function letGo({ jobId, upstreamJob }: Pick<AbortedJob, 'jobId' | 'upstreamJob'>): void {
    if (upstreamJob !== null) background.run(`give up ${jobId}`, () => cancelUpstreamJob(upstreamJob));
  }

  async function finish(
    taken: ClaimedJob,
    made: readonly (MediaFile | RemoteMedia)[],
    {
      hold,
      billOf,
    }: { hold: Hold | null; billOf: ((made: readonly MediaProperties[]) => JobCharge) | undefined },
  ): Promise<void> {
    const media: StoredMedia[] = [];
    const begun: string[] = [];
    let isOurs = false;
    try {
      for (const [position, one] of made.entries()) {
        const mediaId = id('med');
        await store.insertMedia(taken, { mediaId, position, keepSeconds: unfinishedSeconds });
        begun.push(mediaId);
        const { mediaType, width, height, durationSeconds } = await keep(mediaId, one);
        const bytes = (await storage.open(mediaId))?.size ?? 0;
        media.push({ mediaId, mediaType, width, height, durationSeconds, bytes });
      }
      isOurs = await succeed(taken, { media, hold, bill: billOf?.(media) });
    } finally {
      if (!isOurs) await forget(begun);
    }
    log.info(
      { jobId: taken.jobId, kind: taken.kind, outcome: isOurs ? 'succeeded' : 'too late' },
      'job ended',
    );
  }

  /** Puts what was made into the storage. A film whose way here breaks off is fetched again: it is there, and paid for. */
  async function keep(mediaId: string, made: MediaFile | RemoteMedia): Promise<MediaProperties> {
    if ('content' in made) {
      await storage.put(mediaId, made.content);
      return made;
    }
    for (let tries = 1; ; tries += 1) {
      try {
        await storage.put(mediaId, made.open());
        return made.properties();
      } catch (error) {
        const mayPass =
          error instanceof Problem && (error.code === 'upstream_truncated' || isTransient(error));
        if (!mayPass || tries >= mostFetches) throw error;
        await clock.sleep(settings.heartbeatMs);
      }
    }
  }

  /** Ends the job and charges for it in one transaction; false when it is no longer ours to end. */
  async function succeed(
    taken: ClaimedJob,
    { media, hold, bill }: { media: readonly StoredMedia[]; hold: Hold | null; bill: JobCharge | undefined },
  ): Promise<boolean> {
    const made = {
      media,
      keepSeconds: settings.mediaRetentionSeconds,
      credits: hold === null ? 0n : (bill?.credits ?? 0n),
    };
    let expired = 0;
    const end = async (tx: Tx) => {
      if (!(await store.succeed(tx, taken, made))) throw notOurs;
      expired = await store.expireMediaBeyond(tx, taken, settings.maxMediaBytesPerOwner);
    };
    try {
      const { isEnded } =
        bill === undefined ? { isEnded: false } : await payments.settle(taken, hold, { bill, end });
      // What is charged must not be made again, so its end is written as soon as there is a database for it.
      for (let tries = 0; !isEnded; tries += 1) {
        try {
          await store.tx(end);
          break;
        } catch (error) {
          if (error === notOurs || tries >= mostEndTries) throw error;
          await clock.sleep(1_000);
        }
      }
      if (expired > 0) {
        log.info(
          { jobId: taken.jobId, media: expired },
          'media beyond the quota of their owner were dropped',
        );
        background.run(`drop media ${taken.jobId}`, forgetOld);
      }
      return true;
    } catch (error) {
      if (error === notOurs) return false;
      throw error;
    }
  }

  async function fail(taken: ClaimedJob, thrown: unknown): Promise<boolean> {
    const problem = asProblem(thrown);
    if (problem.kind === 'internal')
      log.error({ jobId: taken.jobId, err: problem.cause ?? problem }, 'job failed');
    else
      log.info(
        { jobId: taken.jobId, kind: taken.kind, code: problem.code, err: problem.cause },
        'job failed',
      );
    // A provider's own words may hold what the database cannot keep.
    return store.fail(taken, {
      code: storable(problem.foreignCode ?? problem.code),
      message: storable(problem.message),
    });
  }

  async function forget(mediaIds: readonly string[]): Promise<void> {
    // The bytes first: a row without bytes is found again, bytes without a row never.
    for (const mediaId of mediaIds) await storage.remove(mediaId);
    await store.deleteMedia(mediaIds);
  }

  async function forgetOld(): Promise<void> {
    for (;;) {
      const old = await store.listExpiredMedia(tidyBatch);
      await forget(old);
      if (old.length < tidyBatch) break;
    }
  }

  async function tidy(): Promise<void> {
    await forgetOld();
    await store.deleteOldJobs(settings.jobRetentionSeconds);
  }

  async function sweep(): Promise<void> {
    try {
      await queue.ready();
    } catch {
      // The queue was stopped before it was ready.
      return;
    }
    while (!stopping.signal.aborted) {
      try {
        const { leaseSeconds, maxAttempts } = settings;
        const { waiting, failed } = await store.reclaimExpired({
          leaseSeconds,
          maxAttempts,
          error: abandoned,
        });
        for (const { jobId, kind, attempt } of waiting) announce(kind, jobId, attempt);
        for (const job of failed) {
          letGo(job);
          await payments.release(job, 'upstream_failed');
        }
      } catch (error) {
        log.warn({ err: error }, 'jobs could not be looked over');
      }
      await clock.sleep(settings.sweepMs, stopping.signal).catch(() => undefined);
    }
  }

  async function find(address: JobAddress): Promise<Job> {
    const job = await store.find(address);
    if (job === null)
      throw new Problem('not_found', 'job_not_found', 'There is no job of yours with this id.', {
        param: 'job_id',
      });
    return job;
  }

  return {
    useGenerator(maker, more = {}) {
      make = maker;
      if (more.estimate !== undefined) estimate = more.estimate;
      if (more.cancelUpstreamJob !== undefined) cancelUpstreamJob = more.cancelUpstreamJob;
    },
    async create(
      {
        kind,
        owner,
        request,
        call = null,
      }: { kind: JobKind; owner: Owner; request: JobRequest; call?: JobCall | null },
      within,
    ) {
      const jobId = id('job');
      const job = { jobId, kind, owner, model: request.model, call };
      const hold = await payments.hold(job, estimate({ kind, owner, request }));
      try {
        await store.tx(async (tx) => {
          if ((await store.countOpen(tx, owner)) >= settings.maxOpenPerOwner) {
            throw new Problem(
              'rate_limited',
              'rate_limited',
              `You have ${settings.maxOpenPerOwner} jobs that wait or run; wait for one of them.`,
              { headers: { 'retry-after': '5' } },
            );
          }
          await store.insert(tx, {
            jobId,
            kind,
            owner,
            request,
            leaseSeconds: settings.leaseSeconds,
            call,
            holdId: hold?.holdId ?? null,
          });
          await within(tx, jobId);
        });
      } catch (error) {
        await payments
          .release({ ...job, holdId: hold?.holdId ?? null, attempt: 0 }, 'rejected')
          .catch((problem: unknown) =>
            log.warn({ err: problem }, 'what was held for a job could not be set free'),
          );
        throw error;
      }
      announce(kind, jobId, 0);
      return jobId;
    },
    find,
    async cancel(address) {
      const canceled = await store.cancel(address);
      if (canceled !== null) {
        letGo(canceled);
        await payments.release(canceled, 'client_closed');
      }
      const job = await find(address);
      if (job.status === 'canceled') running.get(job.jobId)?.abort(new Error('The job was canceled.'));
      return job;
    },
    async openMedia(mediaId, expires) {
      const record = await store.findMedia(mediaId, expires);
      const stored = record && (await storage.open(mediaId));
      return stored ? { record, ...stored } : null;
    },
    start() {
      sweeping = sweep();
      // Should this fail, they are free when their leases are over.
      if (needs.isAlone)
        released = store
          .releaseAll()
          .catch((error: unknown) => log.warn({ err: error }, 'jobs of before could not be released'));
      isWanted = isNeeded();
      background.run('look for jobs', async () => {
        if (await isWanted) wantQueue();
      });
    },
    async ready() {
      if (await isWanted) await queue.ready();
    },
    async close() {
      stopping.abort();
      await sweeping;
      await background.settled();
    },
  };
}

// Long enough for a database to come back; the lease is renewed meanwhile.
const mostEndTries = 60;
const mostFetches = 3;
const notOurs = new Error('The job is no longer for this process to end.');

const abandoned: JobError = {
  code: 'job_abandoned',
  message: 'The job was begun several times and never came to an end.',
};

function storable(text: string): string {
  return text.replaceAll('\0', '\ufffd').toWellFormed();
}

function tooSlow(): Problem {
  return new Problem('upstream_timeout', 'upstream_timeout', 'The job took too long and was given up.');
}
