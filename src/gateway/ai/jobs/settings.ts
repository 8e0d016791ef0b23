// Limits and intervals of media jobs.
import type { JobKind } from './job.ts';

export interface MediaJobsSettings {
  /** Duration of a lease. A running job whose lease has expired is reclaimed: its process is assumed dead. */
  leaseSeconds: number;
  /**
   * Interval between two renewals of the lease. A renewal also detects that another process has canceled the
   * job.
   */
  heartbeatMs: number;
  /** Interval between two searches for jobs with an expired lease. */
  sweepMs: number;
  /** A job fails after this many attempts, since the job itself may crash the processes that run it. */
  maxAttempts: number;
  /** Maximum number of queued and running jobs of one owner. */
  maxOpenPerOwner: number;
  /**
   * Maximum number of paid jobs that one owner may cancel within an hour while they run, before a provider
   * has accepted them. Beyond it, new paid jobs of this owner are refused.
   */
  maxCanceledPerHour: number;
  /**
   * Maximum number of running jobs of one owner and kind, over all processes. Further jobs wait in the queue,
   * which leaves capacity for other owners.
   */
  maxRunningPerOwner: number;
  /** Deadline of one image job, including all requests to providers. */
  imageDeadlineMs: number;
  /** Deadline of one video job. */
  videoDeadlineMs: number;
  mediaRetentionSeconds: number;
  /** Maximum size of the media of one owner; beyond it the oldest media are deleted. */
  maxMediaBytesPerOwner: number;
  jobRetentionSeconds: number;
  /** Maximum number of jobs of each kind that this process runs at once. */
  concurrency: number;
}

const daySeconds = 24 * 3600;

export const defaultMediaJobsSettings: MediaJobsSettings = {
  leaseSeconds: 30,
  heartbeatMs: 1_000,
  sweepMs: 10_000,
  maxAttempts: 5,
  maxOpenPerOwner: 50,
  maxCanceledPerHour: 20,
  maxRunningPerOwner: 4,
  imageDeadlineMs: 14 * 60_000,
  videoDeadlineMs: 45 * 60_000,
  mediaRetentionSeconds: 7 * daySeconds,
  maxMediaBytesPerOwner: 4 * 2 ** 30,
  jobRetentionSeconds: 30 * daySeconds,
  concurrency: 8,
};

/** The deadline of one job of this kind, in milliseconds. */
export function jobDeadlineMs(
  kind: JobKind,
  { imageDeadlineMs, videoDeadlineMs }: Pick<MediaJobsSettings, 'imageDeadlineMs' | 'videoDeadlineMs'>,
): number {
  return kind === 'image' ? imageDeadlineMs : videoDeadlineMs;
}
