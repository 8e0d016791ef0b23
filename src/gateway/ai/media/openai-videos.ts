// OpenAI's videos API: converts its requests to requests of our own video operation, and jobs to its videos.
import type {
  OpenAiVideo,
  OpenAiVideoForm,
  OpenAiVideoRequest,
  StartVideoRequest,
} from '../../../contract/gateway/types.gen.ts';
import type { UploadedFile } from '../../../kernel/http/body/multipart.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Job, JobStatus } from '../jobs/job.ts';
import { decodeBase64 } from './base64.ts';
import { parseDataUrl } from './data-url.ts';
import { toInputImage } from './openai-images.ts';
import { unixSeconds } from '../../../kernel/clock.ts';

export type VideoForm = Omit<OpenAiVideoForm, 'input_reference'> & { input_reference?: UploadedFile };

/** Throws a 400 for an image that is not a PNG, a JPEG or a WebP, as a file or a data URL. */
export function toVideoRequest(body: OpenAiVideoRequest | VideoForm): StartVideoRequest {
  const { model, prompt, seconds, size, input_reference: reference } = body;
  return {
    model,
    prompt,
    ...(seconds === undefined ? {} : { duration_seconds: Number(seconds) }),
    ...(size === undefined ? {} : { size }),
    ...(reference === undefined ? {} : { images: [toInputImage(contentOf(reference), 'input_reference')] }),
  };
}

function contentOf(reference: UploadedFile | { image_url: string }): Uint8Array {
  if ('content' in reference) return reference.content;
  const param = 'input_reference.image_url';
  const inlineData = parseDataUrl(reference.image_url);
  if (inlineData !== undefined) return decodeBase64(inlineData.data, param);
  throw new Problem(
    'bad_request',
    'invalid_request',
    `The member ${param} is not a base64 data URL; the gateway does not download images.`,
    { param },
  );
}

const statuses = {
  queued: 'queued',
  running: 'in_progress',
  succeeded: 'completed',
  failed: 'failed',
  canceled: 'failed',
} as const satisfies Record<JobStatus, OpenAiVideo['status']>;

/** The members of a job that a video shows. */
export type VideoJobState = Pick<
  Job,
  'jobId' | 'model' | 'status' | 'progress' | 'createdAt' | 'finishedAt' | 'error' | 'media' | 'request'
>;

export function toVideo(job: VideoJobState): OpenAiVideo {
  const { jobId, model, status, progress, createdAt, finishedAt, error } = job;
  return {
    id: jobId,
    object: 'video',
    model,
    status: statuses[status],
    progress: Math.round(progress * 100),
    created_at: unixSeconds(createdAt),
    completed_at: finishedAt && unixSeconds(finishedAt),
    expires_at: null,
    ...requestMembersOf(job),
    remixed_from_video_id: null,
    error: status === 'canceled' ? { code: 'canceled', message: 'The job was canceled.' } : error,
  };
}

/** The members of the request, with the size and duration of the video instead once it exists. */
function requestMembersOf({
  media: [video],
  request,
}: VideoJobState): Pick<OpenAiVideo, 'prompt' | 'size' | 'seconds'> {
  const { prompt, size, duration_seconds: seconds } = (request ?? {}) as Partial<StartVideoRequest>;
  const knownSeconds = video?.durationSeconds ?? seconds;
  return {
    prompt: prompt ?? null,
    size: video === undefined ? (size ?? null) : `${video.width}x${video.height}`,
    seconds: knownSeconds === undefined ? null : String(knownSeconds),
  };
}
