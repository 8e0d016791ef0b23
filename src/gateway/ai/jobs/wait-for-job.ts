// Waits for the end of a job on behalf of a client whose interface has no jobs. Such
// a client has no job id, so its job is canceled when the wait ends early: a retry
// would otherwise pay for the same images a second time.
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
}

const firstPollMs = 50;
const longestPollMs = 500;

/** The job that succeeded. Throws the Problem of one that failed, and 504 at the deadline. */
export async function waitForJob(
  jobs: Pick<MediaJobs, 'find' | 'cancel'>,
  address: JobAddress,
  wait: JobWait,
): Promise<Job> {
  const job = await pollUntilEnd(jobs, address, wait).catch(async (error: unknown) => {
    await jobs.cancel(address);
    throw error;
  });
  if (job.status === 'succeeded') return job;
  throw job.error === null
    ? new Problem('upstream_failed', 'upstream_failed', 'The job was canceled.', { headers: noRetry })
    : problemOfJob(job.error);
}

async function pollUntilEnd(
  jobs: Pick<MediaJobs, 'find'>,
  address: JobAddress,
  { signal, deadlineMs, clock }: JobWait,
): Promise<Job> {
  const endsMs = clock.monotonicMs() + deadlineMs;
  for (let pollMs = firstPollMs; ; pollMs = Math.min(pollMs * 1.5, longestPollMs)) {
    const job = await jobs.find(address);
    if (job.status !== 'queued' && job.status !== 'running') return job;
    if (clock.monotonicMs() >= endsMs)
      throw new Problem('upstream_timeout', 'upstream_timeout', 'The images were not ready in time.', {
        headers: noRetry,
      });
    await pause(pollMs, { clock, signal });
    signal.throwIfAborted();
  }
}

// Client libraries retry a 5xx automatically, and the job has already tried each model of its chain.
const noRetry = { 'x-should-retry': 'false' };

const kinds: Readonly<Partial<Record<ProblemCode, ProblemKind>>> = {
  invalid_request: 'bad_request',
  insufficient_credits: 'insufficient_credits',
  model_not_found: 'not_found',
  unsupported_by_model: 'impossible',
  rate_limited: 'rate_limited',
  upstream_failed: 'upstream_failed',
  upstream_truncated: 'upstream_failed',
  provider_credentials: 'upstream_failed',
  upstream_timeout: 'upstream_timeout',
};

/**
 * A job stores the code of its failure. An unknown code is the provider's own, for a
 * request that it rejected.
 */
export function problemOfJob({ code, message }: JobError): Problem {
  const kind = kinds[code as ProblemCode];
  if (kind !== undefined) return new Problem(kind, code as ProblemCode, message, { headers: noRetry });
  if (code === 'job_abandoned' || code === 'internal_error')
    return new Problem('upstream_failed', 'upstream_failed', message, { headers: noRetry });
  const foreignCode = code === 'upstream_refused' ? {} : { foreignCode: code };
  return new Problem('bad_request', 'upstream_refused', message, foreignCode);
}
