// One run of a claimed media job in this process: renews its lease, resumes its payment, generates the
// media, stores the files and writes the outcome. Another process may claim the job again at any
// time, so every write names the attempt that this run claimed (a fencing token) and has no effect
// once a later attempt exists.
import { retry } from '../../../kernel/async.ts';
import type { Background } from '../../../kernel/background.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Tx } from '../../../kernel/data/database.ts';
import type { Log } from '../../../kernel/log.ts';
import { asProblem, Problem } from '../../../kernel/problem.ts';
import type { Hold } from '../../credits/index.ts';
import type { GenerationContext, MediaFile, MediaProperties, RemoteMedia } from '../hub/media-model.ts';
import type { JobFiles } from './files.ts';
import { ownerKey } from '../calls/owner.ts';
import type { ClaimedJob, UpstreamJob } from './job.ts';
import type { JobCharge, JobPayments } from './payments.ts';
import { jobDeadlineMs, type MediaJobsSettings } from './settings.ts';
import type { AbortedJob, JobsStore, StoredMedia } from './store.ts';

export type JobInput = Pick<ClaimedJob, 'kind' | 'owner' | 'request'>;

/** Generates the media of jobs, prices them and cancels their upstream jobs. */
export interface MediaGenerator {
  /** A thrown Problem becomes the job's error. */
  generate(job: JobInput, run: JobRun): Promise<GeneratedMedia>;
  /** The maximum price of the job by the current catalog; without this method all jobs are free. */
  estimate?(job: JobInput): bigint;
  cancelUpstreamJob?(job: UpstreamJob): Promise<void>;
  /**
   * The price of a job that its owner canceled after a provider had accepted it; null when it is
   * unknown.
   */
  chargeForUpstreamJob?(job: JobInput, upstreamJob: UpstreamJob): JobCharge | null;
}

export interface JobRun extends GenerationContext {
  /** The provider's job that an earlier attempt submitted; null when there is none. */
  upstreamJob: UpstreamJob | null;
  /**
   * Persists a job that was submitted to a provider, so that no later attempt submits it again.
   * Cancels it and throws when this run has lost its job.
   */
  saveUpstreamJob(job: UpstreamJob): Promise<void>;
}

export interface GeneratedMedia {
  files: readonly (MediaFile | RemoteMedia)[];
  /** The price and usage by the stored files; absent for a free job. */
  chargeFor?(files: readonly MediaProperties[]): JobCharge;
}

export interface RunContext {
  store: JobsStore;
  files: JobFiles;
  payments: JobPayments;
  background: Background;
  clock: Pick<Clock, 'sleep'>;
  log: Log;
  settings: MediaJobsSettings;
  generator(): MediaGenerator;
}

/** Why a run did not complete its job. */
type Interruption =
  /** The process stops or the queue gave up: the job goes back to the queue. */
  | { cause: 'stopped' }
  /** The job was canceled, or another process has reclaimed it. */
  | { cause: 'lost' }
  | { cause: 'failed'; error: unknown };

class JobLostError extends Error {
  override name = 'JobLostError';
}

/**
 * Runs the job to its end; never rejects for a failed generation. `shutdown` aborts when the process stops or
 * the queue gives up. `leaseLost` is aborted by this function, or by a cancellation in this process.
 */
export async function runJob(
  context: RunContext,
  job: ClaimedJob,
  { shutdown, leaseLost }: { shutdown: AbortSignal; leaseLost: AbortController },
): Promise<void> {
  const deadline = AbortSignal.timeout(jobDeadlineMs(job.kind, context.settings));
  const lease = keepLease(context, job, leaseLost);
  try {
    const hold = await resumeHold(context, job, shutdown);
    const generation = await context.generator().generate(job, {
      owner: ownerKey(job.owner),
      signal: AbortSignal.any([leaseLost.signal, shutdown, deadline]),
      reportProgress: lease.reportProgress,
      upstreamJob: job.upstreamJob,
      saveUpstreamJob: (upstreamJob) => saveUpstreamJob(context, job, upstreamJob),
    });
    await completeJob(context, job, { generation, hold });
  } catch (error) {
    const interruption = interruptionOf(error, { shutdown, leaseLost: leaseLost.signal, deadline });
    await endInterrupted(context, job, { interruption, shutdown });
  } finally {
    lease.end();
  }
}

/** Cancels the upstream job in the background, because its result is no longer needed. */
export function cancelUpstreamJob(
  { background, generator }: Pick<RunContext, 'background' | 'generator'>,
  { jobId, upstreamJob }: Pick<AbortedJob, 'jobId' | 'upstreamJob'>,
): void {
  if (upstreamJob === null) return;
  background.run(`cancel the upstream job of ${jobId}`, async () =>
    generator().cancelUpstreamJob?.(upstreamJob),
  );
}

/**
 * Renews the lease every heartbeat and aborts `leaseLost` when the job no longer belongs to this
 * run.
 */
function keepLease(
  { store, background, settings: { heartbeatMs, leaseSeconds } }: RunContext,
  job: ClaimedJob,
  leaseLost: AbortController,
): { reportProgress(share: number): void; end(): void } {
  let progress = 0;
  const timer = setInterval(() => {
    background.run(`renew the lease of ${job.jobId}`, async () => {
      if (!(await store.renewLease(job, { progress, leaseSeconds })))
        leaseLost.abort(new JobLostError('The job was canceled or claimed by another process.'));
    });
  }, heartbeatMs);
  return {
    reportProgress: (share) => (progress = Math.min(Math.max(share, progress), 1)),
    end: () => clearInterval(timer),
  };
}

async function resumeHold(context: RunContext, job: ClaimedJob, shutdown: AbortSignal): Promise<Hold | null> {
  const { payments, store, generator } = context;
  const hold = await payments.resume(job, generator().estimate?.(job) ?? 0n);
  if (hold === null || hold.holdId === job.holdId) return hold;
  job.holdId = hold.holdId;
  let isSaved = false;
  try {
    isSaved = await store.saveHold(job, hold.holdId);
  } finally {
    // Release the replacement here: the job's row does not name it, so nothing else would release it.
    if (!isSaved) await retryForDatabase(context, () => payments.release(job, 'rejected'), shutdown);
  }
  if (isSaved) return hold;
  throw new JobLostError('The job was canceled or claimed by another process before its hold was saved.');
}

async function saveUpstreamJob(
  context: RunContext,
  job: ClaimedJob,
  upstreamJob: UpstreamJob,
): Promise<void> {
  job.upstreamJob = upstreamJob;
  if (await retryForDatabase(context, () => context.store.saveUpstreamJob(job, upstreamJob))) return;
  cancelUpstreamJob(context, job);
  throw new JobLostError(
    'The job was canceled or claimed by another process before its upstream job was saved.',
  );
}

async function completeJob(
  context: RunContext,
  job: ClaimedJob,
  { generation: { files, chargeFor }, hold }: { generation: GeneratedMedia; hold: Hold | null },
): Promise<void> {
  const media = await context.files.store(job, files);
  // When `succeed` throws, the database may have committed the success all the same. So the files stay;
  // the cleanup deletes them if the job did not succeed.
  const isOurs = await succeed(context, job, { media, hold, charge: chargeFor?.(media) });
  if (!isOurs) await context.files.delete(media.map(({ mediaId }) => mediaId));
  context.log.info(
    { jobId: job.jobId, kind: job.kind, outcome: isOurs ? 'succeeded' : 'too late' },
    'job ended',
  );
}

/**
 * Writes the success and charges for it in one transaction; false when the job no longer belongs to
 * this run.
 */
async function succeed(
  context: RunContext,
  job: ClaimedJob,
  {
    media,
    hold,
    charge,
  }: { media: readonly StoredMedia[]; hold: Hold | null; charge: JobCharge | undefined },
): Promise<boolean> {
  const { store, payments, settings } = context;
  const credits = hold === null ? 0n : (charge?.credits ?? 0n);
  let expiredMedia = 0;
  const writeEnd = async (tx: Tx) => {
    const result = { media, keepSeconds: settings.mediaRetentionSeconds, credits };
    if (!(await store.succeed(tx, job, result)))
      throw new JobLostError(
        'The job was canceled or claimed by another process before its end was written.',
      );
    const count = await store.expireMediaBeyond(tx, job, settings.maxMediaBytesPerOwner);
    // The second write finds nothing more to expire.
    expiredMedia = Math.max(expiredMedia, count);
  };
  try {
    if (charge !== undefined) await payments.settle(job, hold, { charge, end: writeEnd });
    // The charge is durable now, but the success may have been rolled back (see JobPayments.settle). Write it
    // until it works: another attempt would generate the paid media again.
    await retryForDatabase(context, () => store.tx(writeEnd));
  } catch (error) {
    if (error instanceof JobLostError) return false;
    throw error;
  }
  deleteExpiredMedia(context, job, expiredMedia);
  return true;
}

function deleteExpiredMedia(
  { log, background, files }: RunContext,
  { jobId }: ClaimedJob,
  count: number,
): void {
  if (count === 0) return;
  log.info({ jobId, media: count }, 'media beyond the quota of their owner were deleted');
  background.run(`delete expired media after ${jobId}`, () => files.deleteExpired());
}

function interruptionOf(
  error: unknown,
  { shutdown, leaseLost, deadline }: { shutdown: AbortSignal; leaseLost: AbortSignal; deadline: AbortSignal },
): Interruption {
  if (shutdown.aborted) return { cause: 'stopped' };
  if (leaseLost.aborted || error instanceof JobLostError) return { cause: 'lost' };
  if (!deadline.aborted) return { cause: 'failed', error };
  return {
    cause: 'failed',
    error: new Problem('upstream_timeout', 'upstream_timeout', 'The job exceeded its deadline.'),
  };
}

async function endInterrupted(
  context: RunContext,
  job: ClaimedJob,
  { interruption, shutdown }: { interruption: Interruption; shutdown: AbortSignal },
): Promise<void> {
  switch (interruption.cause) {
    case 'stopped':
      return context.store.release(job);
    case 'lost':
      // The process that ended the job has released its hold and canceled its upstream job.
      return;
    case 'failed':
      // When the job no longer belongs to this run, another run may use its hold and its upstream
      // job.
      if (!(await failJob(context, job, interruption.error))) return;
      cancelUpstreamJob(context, job);
      // This process renews the lease of the hold, so the ledger would not recover it.
      return retryForDatabase(context, () => context.payments.release(job, 'upstream_failed'), shutdown);
  }
}

/** False when the job no longer belongs to this run. */
async function failJob({ store, log }: RunContext, job: ClaimedJob, error: unknown): Promise<boolean> {
  const { jobId, kind } = job;
  const problem = asProblem(error);
  if (problem.kind === 'internal') log.error({ jobId, err: problem.cause ?? problem }, 'job failed');
  else log.info({ jobId, kind, code: problem.code, err: problem.cause }, 'job failed');
  return store.fail(job, {
    code: storableText(problem.externalCode ?? problem.code),
    message: storableText(problem.message),
  });
}

/**
 * PostgreSQL rejects NUL and lone surrogates in text, and a provider's message may contain both.
 */
function storableText(text: string): string {
  return text.replaceAll('\0', '\ufffd').toWellFormed();
}

// One minute, long enough for a database to restart. The heartbeat renews the lease meanwhile.
const maxDatabaseRetries = 60;
const databaseRetryMs = 1_000;

/**
 * Repeats the work while it fails, for up to one minute or until the signal is aborted. A JobLostError is
 * thrown at once.
 */
export function retryForDatabase<T>(
  { clock }: Pick<RunContext, 'clock'>,
  work: () => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  return retry(work, {
    clock,
    signal,
    isRetryable: (error, attempt) => !(error instanceof JobLostError) && attempt <= maxDatabaseRetries,
    delayMs: () => databaseRetryMs,
  });
}
