// Media jobs: an image or a video of one owner, generated after the response to the request.
import type { Owner } from '../calls/owner.ts';

export type JobKind = 'image' | 'video';
export type JobStatus = 'queued' | 'running' | 'succeeded' | 'failed' | 'canceled';

/** The body of the request, whose schema refuses unknown members, and a limit that the gateway adds. */
export interface JobRequest extends Record<string, unknown> {
  model: string;
  /** Added by the gateway: the models that the caller's key is limited to; absent without such a limit. */
  allowedModels?: readonly string[];
}

/** The request that created a job. */
export interface JobCall {
  requestId: string;
  tokenId: string;
  /** Null for a request by an administrator. */
  bureauId: string | null;
}

export interface JobError {
  code: string;
  message: string;
}

export interface MediaRecord {
  mediaId: string;
  mediaType: string;
  width: number;
  height: number;
  /** Null for an image. */
  durationSeconds: number | null;
}

export interface Job {
  jobId: string;
  kind: JobKind;
  model: string;
  /**
   * The request of a video, without its images and provider options; null for images, and once the job has
   * ended.
   */
  request: JobRequest | null;
  status: JobStatus;
  /** From 0 to 1. */
  progress: number;
  error: JobError | null;
  /** The charge; null until the job has ended. */
  credits: number | null;
  createdAt: Date;
  finishedAt: Date | null;
  /** The files that have not expired, in order. */
  media: MediaRecord[];
  /** When the row was read, by the database's clock. */
  readAt: Date;
}

/** A job at a provider. Submitting one costs money, so a media job submits at most one upstream job. */
export interface UpstreamJob {
  /** The catalog's id of the model that accepted it: the requested model or a fallback. */
  model: string;
  /** The provider's id. */
  id: string;
  /**
   * The id of the backend (key and endpoint) that accepted it, since no other key can read it. Absent in jobs
   * of earlier versions.
   */
  backend?: string;
}

/** A job that this process runs. The run updates `holdId` and `upstreamJob`. */
export interface ClaimedJob {
  jobId: string;
  kind: JobKind;
  owner: Owner;
  model: string;
  request: JobRequest;
  call: JobCall | null;
  holdId: string | null;
  /** Fencing token: writes of an earlier attempt have no effect. */
  attempt: number;
  /** The job that this or an earlier attempt has submitted to a provider. */
  upstreamJob: UpstreamJob | null;
}
