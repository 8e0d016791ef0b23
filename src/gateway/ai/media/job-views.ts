// Jobs as the contract shows them.
import type { ImageJob, VideoJob } from '../../../contract/gateway/types.gen.ts';
import type { Job, JobKind } from '../jobs/job.ts';
import type { MediaLinks } from './links.ts';

export const pollAfterMs: Readonly<Record<JobKind, number>> = { image: 1_000, video: 2_000 };

export function imageJobView(job: Job, links: MediaLinks): ImageJob {
  if (job.status !== 'succeeded') return commonView(job);
  const images = job.media.map(({ mediaId, mediaType, width, height }) => ({
    media_id: mediaId,
    url: links.urlFor(mediaId, job.readAt),
    media_type: mediaType,
    width,
    height,
  }));
  return { ...commonView(job), images };
}

export function videoJobView(job: Job, links: MediaLinks): VideoJob {
  if (job.status !== 'succeeded') return commonView(job);
  const videos = job.media.map(({ mediaId, mediaType, width, height, durationSeconds }) => ({
    media_id: mediaId,
    url: links.urlFor(mediaId, job.readAt),
    media_type: mediaType,
    width,
    height,
    duration_seconds: durationSeconds ?? 0,
  }));
  return { ...commonView(job), videos };
}

function commonView({ jobId, kind, status, progress, error, model, credits, createdAt, finishedAt }: Job) {
  return {
    job_id: jobId,
    status,
    progress,
    ...(error ? { error } : {}),
    ...(finishedAt === null ? { poll_after_ms: pollAfterMs[kind] } : {}),
    metadata: {
      model,
      created_at: createdAt.toISOString(),
      finished_at: finishedAt?.toISOString() ?? null,
      credits,
    },
  };
}
