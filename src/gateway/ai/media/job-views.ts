// Converts jobs to the form of the contract.
import type { ImageJob, VideoJob } from '../../../contract/gateway/types.gen.ts';
import type { Job, JobKind } from '../jobs/job.ts';
import type { MediaLinks } from './links.ts';

export const pollAfterMs: Readonly<Record<JobKind, number>> = { image: 1_000, video: 2_000 };

export function imageJobView(job: Job, links: MediaLinks): ImageJob {
  const { status } = job;
  if (status !== 'succeeded') return unfinishedView(job, status);
  const images = job.media.map(({ mediaId, mediaType, width, height }) => ({
    media_id: mediaId,
    url: links.urlFor(mediaId, job.readAt),
    media_type: mediaType,
    width,
    height,
  }));
  return { ...commonView(job), status, images };
}

export function videoJobView(job: Job, links: MediaLinks): VideoJob {
  const { status } = job;
  if (status !== 'succeeded') return unfinishedView(job, status);
  const videos = job.media.map(({ mediaId, mediaType, width, height, durationSeconds }) => ({
    media_id: mediaId,
    url: links.urlFor(mediaId, job.readAt),
    media_type: mediaType,
    width,
    height,
    duration_seconds: durationSeconds ?? 0,
  }));
  return { ...commonView(job), status, videos };
}

/** A job that has not succeeded, in the form that images and videos share. */
function unfinishedView(job: Job, status: Exclude<Job['status'], 'succeeded'>) {
  const { kind, error } = job;
  switch (status) {
    case 'failed': {
      if (error === null) throw new Error(`The job ${job.jobId} failed without an error.`);
      return { ...commonView(job), status, error };
    }
    case 'canceled':
      return { ...commonView(job), status };
    default:
      return { ...commonView(job), status, poll_after_ms: pollAfterMs[kind] };
  }
}

function commonView({ jobId, progress, model, credits, createdAt, finishedAt }: Job) {
  return {
    job_id: jobId,
    progress,
    metadata: {
      model,
      created_at: createdAt.toISOString(),
      finished_at: finishedAt?.toISOString() ?? null,
      credits,
    },
  };
}
