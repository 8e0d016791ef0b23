// Waits for the end of a job on behalf of a client whose API has no jobs. A client that sent no
// Idempotency-Key cannot find the job again, so its job is canceled when the wait ends early: otherwise the
// client's retry would pay for the same result a second time.
import { pause } from '../../../kernel/async.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { Problem, type ProblemKind } from '../../../kernel/problem.ts';
import type { ProblemCode } from '../../../contract/problem-code.gen.ts';
import type { Job, JobError } from './job.ts';
import type { MediaJobs } from './jobs.ts';
import type { JobAddress } from './store.ts';

export interface JobWait {
  signal: AbortSignal;
  deadlineMs: number;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  /**
   * Whether the job keeps running when the wait ends early, because a repeated request with the same
   * Idempotency-Key finds it.
   */
  keepsRunning: boolean;
}

const firstPollMs = 50;
const longestPollMs = 500;

/** Returns the job once it has succeeded. Throws the Problem of a failed job, and a 504 at the deadline. */
export async function waitForJob(
  jobs: Pick<MediaJobs, 'find' | 'cancel'>,
  address: JobAddress,
  wait: JobWait,
): Promise<Job> {
  const job = await pollUntilEnd(jobs, address, wait).catch((error: unknown) => {
    if (wait.keepsRunning) throw error;
    return cancelUnlessEnded(jobs, address, error);
  });
  if (job.status === 'succeeded') return job;
  throw job.error === null
    ? new Problem('upstream_failed', 'upstream_failed', 'The job was canceled.', { headers: noRetry })
    : problemOfJob(job.error);
}

/**
 * Cancels the job and throws the error that ended the wait. If the job has ended in the meantime, returns it
 * instead: it was charged, or failed for its own reason.
 */
async function cancelUnlessEnded(
  jobs: Pick<MediaJobs, 'cancel'>,
  address: JobAddress,
  error: unknown,
): Promise<Job> {
  const job = await jobs.cancel(address).catch(() => null);
  if (job === null || job.status === 'canceled') throw error;
  return job;
}

async function pollUntilEnd(
  jobs: Pick<MediaJobs, 'find'>,
  address: JobAddress,
  { signal, deadlineMs, clock, keepsRunning }: JobWait,
): Promise<Job> {
  const endsMs = clock.monotonicMs() + deadlineMs;
  for (let pollMs = firstPollMs; ; pollMs = Math.min(pollMs * 1.5, longestPollMs)) {
    const job = await findUnlessUnavailable(jobs, address);
    if (job !== null && job.status !== 'queued' && job.status !== 'running') return job;
    if (clock.monotonicMs() >= endsMs) throw keepsRunning ? stillRunning() : canceledAtDeadline();
    await pause(pollMs, { clock, signal });
    signal.throwIfAborted();
  }
}

/**
 * Null when the read failed, for example while the database is unavailable: the job keeps running and will be
 * charged, so the wait continues. Throws only the 404.
 */
async function findUnlessUnavailable(
  jobs: Pick<MediaJobs, 'find'>,
  address: JobAddress,
): Promise<Job | null> {
  try {
    return await jobs.find(address);
  } catch (error) {
    if (error instanceof Problem && error.kind === 'not_found') throw error;
    return null;
  }
}

function stillRunning(): Problem {
  const message = 'The result is not ready yet; repeat the call with the same Idempotency-Key.';
  return new Problem('upstream_timeout', 'upstream_timeout', message);
}

function canceledAtDeadline(): Problem {
  const message = 'The result was not ready in time.';
  return new Problem('upstream_timeout', 'upstream_timeout', message, { headers: noRetry });
}

// Client libraries retry a 5xx automatically, and the job has already tried
// each model of its chain.
const noRetry = { 'x-should-retry': 'false' };

const kinds: Readonly<Partial<Record<ProblemCode, ProblemKind>>> = {
  invalid_request: 'bad_request',
  insufficient_credits: 'insufficient_credits',
  model_not_found: 'not_found',
  unsupported_by_model: 'impossible',
  unpriced_member: 'impossible',
  rate_limited: 'rate_limited',
  upstream_failed: 'upstream_failed',
  upstream_truncated: 'upstream_failed',
  provider_credentials: 'upstream_failed',
  upstream_timeout: 'upstream_timeout',
  credits_busy: 'unavailable',
  database_unavailable: 'unavailable',
  journal_unavailable: 'unavailable',
};

// Failures of the gateway itself that the client's operations do not declare.
const ownFailures: ReadonlySet<string> = new Set(['job_abandoned', 'internal_error', 'storage_unavailable']);

/**
 * Turns the stored failure of a job into a Problem. A code that the gateway does not know is the provider's
 * own code for a request that it rejected.
 */
export function problemOfJob({ code, message }: JobError): Problem {
  const kind = kinds[code as ProblemCode];
  if (kind !== undefined) return new Problem(kind, code as ProblemCode, message, { headers: noRetry });
  if (ownFailures.has(code))
    return new Problem('upstream_failed', 'upstream_failed', message, { headers: noRetry });
  const externalCode = code === 'upstream_refused' ? {} : { externalCode: code };
  return new Problem('bad_request', 'upstream_refused', message, externalCode);
}
