// Films by OpenAI's videos API, which servers of open models and relays speak too. What was asked for goes out as it
// is, so that a provider refuses what it cannot do; as a form, because some of those servers read nothing else.
import type { VideoCall } from '../../hub/media-model.ts';
import { multipartForm, type FormField } from './multipart-form.ts';
import {
  requireOneImage,
  type VideoStatus,
  statusOfCode,
  textOf,
  type VideoAdapter,
} from '../video-format.ts';

interface Video {
  id?: unknown;
  status?: unknown;
  progress?: unknown;
  seconds?: unknown;
  error?: { code?: unknown; message?: unknown } | null;
}

export const openAiVideo: VideoAdapter = {
  keyHeader: 'authorization',
  reservedMembers: new Set([
    'model',
    'prompt',
    'n',
    'seconds',
    'size',
    'aspect_ratio',
    'seed',
    'fps',
    'input_reference',
  ]),
  check: requireOneImage,
  submission: (call, upstreamModel) => ({ path: '/videos', ...multipartForm(fieldsOf(call, upstreamModel)) }),
  jobId: (answer) => (answer as Video | null)?.id,
  statusPath: (orderId) => `/videos/${encodeURIComponent(orderId)}`,
  readStatus: (answer, orderId) => standingOf((answer ?? {}) as Video, orderId),
  cancelPath: (orderId) => `/videos/${encodeURIComponent(orderId)}`,
};

function fieldsOf(
  { prompt, durationSeconds, framesPerSecond, size, aspectRatio, seed, images, options }: VideoCall,
  upstreamModel: string,
): [string, FormField][] {
  const [image] = images;
  const members: Record<string, unknown> = {
    ...options,
    model: upstreamModel,
    prompt,
    seconds: durationSeconds,
    size: size && `${size.width}x${size.height}`,
    aspect_ratio: aspectRatio && `${aspectRatio.width}:${aspectRatio.height}`,
    fps: framesPerSecond,
    seed,
  };
  return [
    ...Object.entries(members).flatMap(([name, value]): [string, FormField][] =>
      value === undefined ? [] : [[name, typeof value === 'string' ? value : JSON.stringify(value)]],
    ),
    ...(image === undefined
      ? []
      : [
          [
            'input_reference',
            {
              fileName: `image.${image.mediaType.split('/')[1]}`,
              mediaType: image.mediaType,
              content: image.content,
            },
          ] as [string, FormField],
        ]),
  ];
}

// By the words of OpenAI and of those who came after it; one that nobody knows is waited out.
const failed = new Set(['failed', 'error', 'cancelled', 'canceled', 'expired']);

function standingOf({ status, progress, seconds, error }: Video, orderId: string): VideoStatus {
  if (status === 'completed') {
    const told = Number(seconds);
    return {
      state: 'ready',
      url: `/videos/${encodeURIComponent(orderId)}/content`,
      seconds: seconds !== null && told > 0 ? told : undefined,
    };
  }
  if (typeof status === 'string' && failed.has(status))
    return {
      state: 'failed',
      status: statusOfCode(error?.code),
      code: textOf(error?.code),
      message: textOf(error?.message),
    };
  return { state: 'waiting', progress: typeof progress === 'number' ? progress / 100 : undefined };
}
