// Image and video jobs: accepted in one statement, generated in the background by any process
// that claims them, and ended once. The job's row is authoritative: its lease shows whether its
// process is alive, its attempt number is a fencing token against a late process, and it
// stores the job submitted to a provider, so that no process submits it again.
import { pause } from '../../../kernel/async.ts';
import { createBackground } from '../../../kernel/background.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Tx } from '../../../kernel/data/database.ts';
import type { Jobs } from '../../../kernel/data/jobs.ts';
import type { Storage } from '../../../kernel/storage/storage.ts';
import { id } from '../../../kernel/ids.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import { jobFiles } from './files.ts';
import type { Owner } from '../calls/owner.ts';
import type { Job, JobCall, JobError, JobKind, JobRequest, MediaRecord } from './job.ts';
import { type JobPayments, unpaidJobs } from './payments.ts';
import { mediaQueue, type MediaQueue } from './queue.ts';
import { cancelUpstreamJob, type MediaGenerator, retryForDatabase, runJob, type RunContext } from './run.ts';
import { defaultMediaJobsSettings, type MediaJobsSettings } from './settings.ts';
import type { CanceledJob, JobAddress, JobsPage, JobsStore } from './store.ts';

export interface MediaJobs {
  /** Sets the generator of all jobs; once, before `start`. */
  useGenerator(generator: MediaGenerator): void;
  /**
   * Accepts a job; `within` runs in the same transaction. Throws a 402, and a 429 when the owner has too many
   * open jobs.
   */
  create(job: NewJob, within: (tx: Tx, jobId: string) => Promise<void>): Promise<string>;
  /** Throws a 404 for a job that does not exist or has another owner. */
  find(job: JobAddress): Promise<Job>;
  /** Cancels the job unless it has ended; throws like `find`. */
  cancel(job: JobAddress): Promise<Job>;
  /** A page of the owner's jobs; throws a 404 for a cursor that is no job of the owner. */
  list(page: JobsPage): Promise<Job[]>;
  /**
   * Cancels the job if it is open, then hides it and expires its files; throws like `find`.
   */
  remove(job: JobAddress): Promise<void>;
  /** The media that a signed link names, with its bytes; null when the link or the media has expired. */
  openMedia(
    mediaId: string,
    expires: number,
  ): Promise<{ record: MediaRecord; size: number; content: AsyncIterable<Uint8Array> } | null>;
  /**
   * Starts to claim jobs in the background. A process that is alone on the database starts the
   * queue with its first job: creating the queue's tables blocks the embedded engine for seconds.
   */
  start(): void;
  /** Resolves when jobs are being claimed, or when there are none. */
  ready(): Promise<void>;
  /** The queue must be stopped first. */
  close(): Promise<void>;
}

export interface NewJob {
  kind: JobKind;
  owner: Owner;
  request: JobRequest;
  call?: JobCall | null;
}

export interface MediaJobsOptions {
  store: JobsStore;
  /** The kernel's queue. It is started here on demand; its owner stops it. */
  queue: Jobs;
  storage: Storage;
  /** When absent, all jobs are free. */
  payments?: JobPayments;
  /**
   * Whether this process is alone on the database: then jobs that are running at its
   * start belong to a dead process.
   */
  isAlone: boolean;
  clock: Pick<Clock, 'sleep'>;
  log: Log;
  settings?: Partial<MediaJobsSettings>;
}

interface JobsContext extends RunContext {
  queue: MediaQueue;
  /** The runs of this process by job id, for a cancellation that arrives here. */
  runs: Map<string, AbortController>;
  /** Aborted when this process stops. */
  stopping: AbortSignal;
}

export function mediaJobs(options: MediaJobsOptions): MediaJobs {
  let generator: MediaGenerator | undefined;
  const stop = new AbortController();
  const context = createContext(options, stop.signal, () => {
    if (generator === undefined) throw new Error('Media jobs have no generator; call useGenerator first.');
    return generator;
  });
  let sweepPromise: Promise<void> = Promise.resolve();

  return {
    useGenerator(newGenerator) {
      generator = newGenerator;
    },
    create: (job, within) => createJob(context, job, within),
    find: (address) => findJob(context, address),
    cancel: (address) => cancelJob(context, address),
    async list(page) {
      const { after, kind, owner } = page;
      if (after !== undefined) await findJob(context, { jobId: after, kind, owner });
      return options.store.list(page);
    },
    async remove(address) {
      await cancelJob(context, address);
      await options.store.remove(address);
    },
    async openMedia(mediaId, expires) {
      const record = await options.store.findMedia(mediaId, expires);
      const file = record && (await options.storage.open(mediaId));
      return file ? { record, ...file } : null;
    },
    start() {
      sweepPromise = sweepUntilStopped(context, options.queue, stop.signal);
      context.queue.start();
    },
    ready: () => context.queue.ready(),
    async close() {
      stop.abort();
      await sweepPromise;
      await context.background.untilSettled();
    },
  };
}

function createContext(
  options: MediaJobsOptions,
  stopping: AbortSignal,
  generator: () => MediaGenerator,
): JobsContext {
  const { store, storage, payments = unpaidJobs, isAlone, clock, log } = options;
  const settings = { ...defaultMediaJobsSettings, ...options.settings };
  const background = createBackground(log);
  const files = jobFiles({ store, storage, clock, log });
  const queue = mediaQueue({
    queue: options.queue,
    store,
    isAlone,
    background,
    log,
    settings,
    runNext: (kind, shutdown) => runNextJob(context, kind, shutdown),
    async cleanUp() {
      await files.deleteExpired();
      await store.deleteOldJobs(settings.jobRetentionSeconds);
    },
  });
  const context: JobsContext = {
    store,
    files,
    payments,
    background,
    clock,
    log,
    settings,
    generator,
    queue,
    runs: new Map(),
    stopping,
  };
  return context;
}

async function runNextJob(context: JobsContext, kind: JobKind, shutdown: AbortSignal): Promise<void> {
  const { store, settings, runs, queue } = context;
  const job = await store.claim(kind, settings);
  // The announced job was canceled or claimed by another process, or all owners of queued jobs are at their
  // limit.
  if (job === null) return;
  const leaseLost = new AbortController();
  runs.set(job.jobId, leaseLost);
  try {
    await runJob(context, job, { shutdown, leaseLost });
  } finally {
    runs.delete(job.jobId);
    if (!shutdown.aborted) queue.announceNext(job);
  }
}

async function createJob(
  context: JobsContext,
  { kind, owner, request, call = null }: NewJob,
  within: (tx: Tx, jobId: string) => Promise<void>,
): Promise<string> {
  const { store, payments, settings, generator, queue, log } = context;
  const jobId = id('job');
  const payableJob = { jobId, kind, owner, model: request.model, call };
  const maxPrice = generator().estimate?.({ kind, owner, request }) ?? 0n;
  const hold = await payments.hold(payableJob, maxPrice);
  const holdId = hold?.holdId ?? null;
  try {
    await store.tx(async (tx) => {
      await requireOpenSlot(context, tx, owner);
      if (maxPrice > 0n) await requireFewCanceled(context, tx, owner);
      const { leaseSeconds } = settings;
      await store.insert(tx, { jobId, kind, owner, request, leaseSeconds, call, holdId });
      await within(tx, jobId);
    });
  } catch (error) {
    await endPayment(context, jobId, () =>
      payments.release({ ...payableJob, holdId, attempt: 0 }, 'rejected'),
    ).catch((failure: unknown) => log.warn({ err: failure }, 'the hold of a job could not be released'));
    throw error;
  }
  queue.announce({ jobId, kind, attempt: 0 });
  return jobId;
}

// Concurrent calls count before they insert, so an owner can exceed the limit by a few.
async function requireOpenSlot(
  { store, settings: { maxOpenPerOwner } }: JobsContext,
  tx: Tx,
  owner: Owner,
): Promise<void> {
  if ((await store.countOpen(tx, owner)) < maxOpenPerOwner) return;
  throw new Problem(
    'rate_limited',
    'rate_limited',
    `You have ${maxOpenPerOwner} queued or running jobs; wait until one ends.`,
    { headers: { 'retry-after': '5' } },
  );
}

// Limits cancellations: a provider may charge for a job that it has started, and a
// canceled job without an upstream job costs its owner nothing.
async function requireFewCanceled(
  { store, settings: { maxCanceledPerHour } }: JobsContext,
  tx: Tx,
  owner: Owner,
): Promise<void> {
  if ((await store.countCanceledRuns(tx, owner)) < maxCanceledPerHour) return;
  throw new Problem(
    'rate_limited',
    'rate_limited',
    `You canceled ${maxCanceledPerHour} jobs within an hour while they ran; wait before you create another.`,
    { headers: { 'retry-after': '600' } },
  );
}

async function findJob({ store }: JobsContext, address: JobAddress): Promise<Job> {
  const job = await store.find(address);
  if (job !== null) return job;
  throw new Problem('not_found', 'job_not_found', 'There is no job of yours with this id.', {
    param: 'job_id',
  });
}

async function cancelJob(context: JobsContext, address: JobAddress): Promise<Job> {
  const canceled = await context.store.cancel(address);
  if (canceled !== null) {
    cancelUpstreamJob(context, canceled);
    await endPayment(context, canceled.jobId, paymentForCanceled(context, canceled));
  }
  const job = await findJob(context, address);
  // A run in another process detects the cancellation at its next heartbeat.
  if (job.status === 'canceled') context.runs.get(job.jobId)?.abort(new Error('The job was canceled.'));
  return job;
}

/**
 * Ends the payment of a job that has ended. When the database fails, it is repeated in the background for up
 * to a minute, and this call rejects. Nothing else would release the hold: a job ends only once, and while
 * the process of its run lives, that process renews the lease of the hold.
 */
async function endPayment(context: JobsContext, jobId: string, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    context.background.run(`end the payment of ${jobId}`, () =>
      retryForDatabase(context, work, context.stopping),
    );
    throw error;
  }
}

/**
 * Returns the work that charges a canceled job if it has an upstream job: providers charge for every job that
 * they accept. The work can be repeated after a failure.
 */
function paymentForCanceled(
  { generator, payments, store, log }: JobsContext,
  job: CanceledJob,
): () => Promise<void> {
  // A repetition finds the hold settled, so it saves the credits that the first charge has returned.
  let credits: bigint | undefined;
  return async () => {
    const charge = job.upstreamJob && generator().chargeForUpstreamJob?.(job, job.upstreamJob);
    if (!charge) return payments.release(job, 'client_closed');
    credits ??= await payments.chargeCanceled(job, charge);
    if (credits > 0n) await store.saveCredits(job.jobId, credits);
    log.info(
      { jobId: job.jobId, credits: String(credits) },
      'a job was canceled after its upstream job was accepted',
    );
  };
}

const abandonedError: JobError = {
  code: 'job_abandoned',
  message: 'The job was attempted several times and never finished.',
};

/**
 * Every `sweepMs`, announces jobs whose process has died, and fails jobs that have been attempted too often.
 */
async function sweepUntilStopped(
  context: JobsContext,
  queue: Pick<Jobs, 'ready'>,
  stopping: AbortSignal,
): Promise<void> {
  try {
    await queue.ready();
  } catch {
    // The queue stopped before it was ready.
    return;
  }
  const { clock, settings, log } = context;
  while (!stopping.aborted) {
    await sweep(context).catch((error: unknown) =>
      log.warn({ err: error }, 'jobs with expired leases could not be reclaimed'),
    );
    await pause(settings.sweepMs, { clock, signal: stopping });
  }
}

async function sweep(context: JobsContext): Promise<void> {
  const { store, payments, queue, settings, log } = context;
  const { leaseSeconds, maxAttempts } = settings;
  const { waiting, failed } = await store.reclaimExpired({
    leaseSeconds,
    maxAttempts,
    error: abandonedError,
  });
  for (const job of waiting) queue.announce(job);
  // The next sweep does not find a failed job again, so one failed release must not skip the other jobs.
  for (const job of failed) {
    cancelUpstreamJob(context, job);
    await endPayment(context, job.jobId, () => payments.release(job, 'upstream_failed')).catch(
      (error: unknown) =>
        log.error({ err: error, jobId: job.jobId }, 'the hold of a failed job could not be released'),
    );
  }
}
