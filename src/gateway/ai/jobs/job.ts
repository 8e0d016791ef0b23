// What a job is: a picture or a film that is made after the answer, for one owner, once.

export type JobKind = 'image' | 'video';
export type JobStatus = 'queued' | 'running' | 'succeeded' | 'failed' | 'canceled';

/** Whose job it is; nobody else is told that it exists. */
export interface Owner {
  kind: 'user' | 'admin';
  id: string;
}

/** One name for owners of both kinds. */
export function ownerName({ kind, id }: Owner): string {
  return `${kind} ${id}`;
}

/** What was asked for, as it was asked. */
export interface JobRequest extends Record<string, unknown> {
  model: string;
  /** The models that the caller's key is held to; absent where it is held to none. */
  allowedModels?: readonly string[];
}

/** The request that made a job. */
export interface JobCall {
  requestId: string;
  tokenId: string;
  /** Null for an administrator's. */
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
  /** Null for what stands still. */
  durationSeconds: number | null;
}

export interface Job {
  jobId: string;
  kind: JobKind;
  model: string;
  status: JobStatus;
  /** From 0 to 1. */
  progress: number;
  error: JobError | null;
  /** What it cost; null before its end. */
  credits: number | null;
  createdAt: Date;
  finishedAt: Date | null;
  /** What is still kept of what the job has made, in order. */
  media: MediaRecord[];
  /** When this was read, by the database's clock. */
  readAt: Date;
}

/** What a provider makes for a job on its own machines. It is paid for when it is placed, so a job places one. */
export interface UpstreamJob {
  /** Of the catalog: the model that took it, which need not be the one that was asked for. */
  model: string;
  /** The provider's own name of it. */
  id: string;
}

/** A job that this process has taken. */
export interface ClaimedJob {
  jobId: string;
  kind: JobKind;
  owner: Owner;
  model: string;
  request: JobRequest;
  call: JobCall | null;
  holdId: string | null;
  /** Which taking of the job this is; an earlier one may not write its end any more. */
  attempt: number;
  /** What an earlier taking, or this one, has ordered. */
  upstreamJob: UpstreamJob | null;
}
