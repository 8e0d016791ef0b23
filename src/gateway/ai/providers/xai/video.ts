// Films by xAI's own format, which is not OpenAI's although its texts are.
import type { VideoCall } from '../../hub/media-model.ts';
import {
  resolutionOf,
  requireOneImage,
  requireAbsent,
  type VideoStatus,
  statusOfCode,
  textOf,
  unsupportedMember,
  type VideoAdapter,
} from '../video-format.ts';

interface Generation {
  request_id?: unknown;
  status?: unknown;
  progress?: unknown;
  video?: { url?: unknown; duration?: unknown; respect_moderation?: unknown } | null;
  error?: { code?: unknown; message?: unknown } | null;
}

const lines = { 480: '480p', 720: '720p', 1080: '1080p' };

export const xaiVideo: VideoAdapter = {
  keyHeader: 'authorization',
  // The last is an address to which the film would go instead.
  reservedMembers: new Set(['model', 'prompt', 'n', 'duration', 'aspect_ratio', 'image', 'output']),
  check(call) {
    requireOneImage(call);
    requireAbsent(call, ['seed', 'framesPerSecond']);
    if (call.size !== undefined && resolutionOf(call.size, lines) === undefined) {
      throw unsupportedMember(
        'size',
        'The provider of this model makes films of 480, 720 or 1080 lines; in other shapes than 16:9 or 9:16, give aspect_ratio and provider_options.resolution.',
      );
    }
  },
  submission: (call, upstreamModel) => ({
    path: '/videos/generations',
    body: JSON.stringify(bodyOf(call, upstreamModel)),
  }),
  jobId: (answer) => (answer as Generation | null)?.request_id,
  statusPath: (orderId) => `/videos/${encodeURIComponent(orderId)}`,
  readStatus: (answer) => standingOf((answer ?? {}) as Generation),
};

function bodyOf(
  { prompt, durationSeconds, size, aspectRatio, images, options }: VideoCall,
  upstreamModel: string,
): object {
  const [image] = images;
  const named = size && resolutionOf(size, lines);
  return {
    ...options,
    model: upstreamModel,
    prompt,
    ...(durationSeconds === undefined ? {} : { duration: durationSeconds }),
    ...(named === undefined ? {} : { resolution: named.resolution, aspect_ratio: named.aspectRatio }),
    ...(aspectRatio === undefined ? {} : { aspect_ratio: `${aspectRatio.width}:${aspectRatio.height}` }),
    ...(image === undefined
      ? {}
      : {
          image: { url: `data:${image.mediaType};base64,${Buffer.from(image.content).toString('base64')}` },
        }),
  };
}

function standingOf({ status, progress, video, error }: Generation): VideoStatus {
  if (status === 'failed')
    return {
      state: 'failed',
      status: statusOfCode(error?.code),
      code: textOf(error?.code),
      message: textOf(error?.message),
    };
  if (status === 'expired') return { state: 'failed', status: 500 };
  if (status !== 'done')
    return { state: 'waiting', progress: typeof progress === 'number' ? progress / 100 : undefined };
  if (video?.respect_moderation === false)
    return {
      state: 'failed',
      status: 400,
      code: 'content_filtered',
      message: 'The provider held the film back by its rules for content.',
    };
  const url = textOf(video?.url);
  return url === undefined
    ? { state: 'failed', status: 500 }
    : {
        state: 'ready',
        url,
        seconds: typeof video?.duration === 'number' && video.duration > 0 ? video.duration : undefined,
      };
}
