// Videos of xAI's own format; its language models use OpenAI's.
import { asRecord, type JsonRecord } from '../../../../kernel/json-value.ts';
import type { VideoCall } from '../../hub/media-model.ts';
import {
  nonEmptyText,
  requireAbsent,
  requireOneImage,
  resolutionOf,
  statusOfCode,
  type VideoAdapter,
  type VideoStatus,
} from '../adapter/video-adapter.ts';
import { unsupportedMember } from '../../hub/problems.ts';

const resolutions = { 480: '480p', 720: '720p', 1080: '1080p' };

export const xaiVideo: VideoAdapter = {
  keyHeader: 'authorization',
  // `output` is a URL that would receive the video.
  reservedMembers: new Set(['model', 'prompt', 'n', 'duration', 'aspect_ratio', 'image', 'output']),
  check(call) {
    requireOneImage(call);
    requireAbsent(call, ['seed', 'framesPerSecond']);
    if (call.size !== undefined && resolutionOf(call.size, resolutions) === undefined)
      throw unsupportedMember(
        'size',
        'The provider of this model generates videos of 480, 720 or 1080 lines in 16:9 or 9:16, such ' +
          'as 1280x720. For another shape, send aspect_ratio and provider_options.resolution ' +
          'instead.',
      );
  },
  submission: (call, upstreamModel) => ({
    path: '/videos/generations',
    body: JSON.stringify(requestBody(call, upstreamModel)),
  }),
  jobId: (answer) => asRecord(answer)['request_id'],
  statusPath: (jobId) => `/videos/${encodeURIComponent(jobId)}`,
  readStatus: (answer) => statusOf(asRecord(answer)),
};

function requestBody(
  { prompt, durationSeconds, size, aspectRatio, images: [image], options }: VideoCall,
  upstreamModel: string,
): object {
  const shape = size && resolutionOf(size, resolutions);
  return {
    ...options,
    model: upstreamModel,
    prompt,
    ...(durationSeconds === undefined ? {} : { duration: durationSeconds }),
    ...(shape === undefined ? {} : { resolution: shape.resolution, aspect_ratio: shape.aspectRatio }),
    ...(aspectRatio === undefined ? {} : { aspect_ratio: `${aspectRatio.width}:${aspectRatio.height}` }),
    ...(image === undefined
      ? {}
      : {
          image: { url: `data:${image.mediaType};base64,${Buffer.from(image.content).toString('base64')}` },
        }),
  };
}

function statusOf({ status, progress, video, error }: JsonRecord): VideoStatus {
  switch (status) {
    case 'failed': {
      const { code, message } = asRecord(error);
      return {
        state: 'failed',
        status: statusOfCode(code),
        code: nonEmptyText(code),
        message: nonEmptyText(message),
      };
    }
    case 'expired':
      return { state: 'failed', status: 500 };
    case 'done':
      return resultOf(asRecord(video));
    default:
      return { state: 'waiting', progress: typeof progress === 'number' ? progress / 100 : undefined };
  }
}

function resultOf({ url: location, duration, respect_moderation: isAllowed }: JsonRecord): VideoStatus {
  if (isAllowed === false)
    return {
      state: 'failed',
      status: 400,
      code: 'content_filtered',
      message: 'The provider withheld the video because of its content policy.',
    };
  const url = nonEmptyText(location);
  if (url === undefined) return { state: 'failed', status: 500 };
  const seconds = typeof duration === 'number' && duration > 0 ? duration : undefined;
  return { state: 'ready', url, seconds };
}
