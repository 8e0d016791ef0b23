// Limits and intervals of media jobs.
import type { JobKind } from './job.ts';

export interface MediaJobsSettings {
  /** A running job with a lease this old is reclaimed: its process is assumed dead. */
  leaseSeconds: number;
  /**
   * Interval between two renewals of the lease, which also detect a
   * cancellation in another process.
   */
  heartbeatMs: number;
  /** Interval between two searches for jobs with an expired lease. */
  sweepMs: number;
  /** A job fails after this many attempts, since it may be the cause of the crashes. */
  maxAttempts: number;
  /** Maximum number of queued and running jobs of one owner. */
  maxOpenPerOwner: number;
  /**
   * Paid jobs that one owner may cancel within an hour while they run and before their acceptance
   * upstream; then no more are accepted.
   */
  maxCanceledPerHour: number;
  /**
   * Running jobs of one owner and kind, over all processes. Further ones wait, which
   * leaves capacity for other owners.
   */
  maxRunningPerOwner: number;
  /** Deadline of one image job, all its provider attempts included. */
  imageDeadlineMs: number;
  /** Deadline of one video job. */
  videoDeadlineMs: number;
  mediaRetentionSeconds: number;
  /** Media of one owner; beyond it the oldest are deleted. */
  maxMediaBytesPerOwner: number;
  jobRetentionSeconds: number;
  /** Jobs of each kind at once in this process. */
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
