// Films by Google's long-running predictions, as Veo takes them. How far one is, it does not tell; nor does it listen
// to anybody who gives one up.
import type { VideoCall } from '../../hub/media-model.ts';
import {
  resolutionOf,
  requireOneImage,
  requireAbsent,
  type VideoStatus,
  textOf,
  unsupportedMember,
  type VideoAdapter,
} from '../video-format.ts';

interface Operation {
  name?: unknown;
  done?: unknown;
  error?: { code?: unknown; status?: unknown; message?: unknown } | null;
  response?: {
    generateVideoResponse?: { generatedSamples?: unknown; raiMediaFilteredReasons?: unknown } | null;
  } | null;
}

const lines = { 720: '720p', 1080: '1080p', 2160: '4k' };

export const googleVideo: VideoAdapter = {
  keyHeader: 'x-goog-api-key',
  // The last is an address to which the film would go instead.
  reservedMembers: new Set(['sampleCount', 'durationSeconds', 'aspectRatio', 'seed', 'storageUri']),
  check(call) {
    requireOneImage(call);
    requireAbsent(call, ['framesPerSecond']);
    if (call.size !== undefined && resolutionOf(call.size, lines) === undefined) {
      throw unsupportedMember(
        'size',
        'The provider of this model makes films of 720, 1080 or 2160 lines in 16:9 or 9:16, such as 1280x720.',
      );
    }
  },
  submission: (call, upstreamModel) => ({
    path: `/models/${encodeURIComponent(upstreamModel)}:predictLongRunning`,
    body: JSON.stringify(bodyOf(call)),
  }),
  jobId: (answer) => (answer as Operation | null)?.name,
  statusPath: (orderId) => `/${orderId}`,
  readStatus: (answer) => standingOf((answer ?? {}) as Operation),
};

function bodyOf({ prompt, durationSeconds, size, aspectRatio, seed, images, options }: VideoCall): object {
  const [image] = images;
  const named = size && resolutionOf(size, lines);
  return {
    instances: [
      {
        prompt,
        ...(image === undefined
          ? {}
          : {
              image: {
                bytesBase64Encoded: Buffer.from(image.content).toString('base64'),
                mimeType: image.mediaType,
              },
            }),
      },
    ],
    parameters: {
      ...options,
      ...named,
      ...(aspectRatio === undefined ? {} : { aspectRatio: `${aspectRatio.width}:${aspectRatio.height}` }),
      ...(durationSeconds === undefined ? {} : { durationSeconds }),
      ...(seed === undefined ? {} : { seed }),
    },
  };
}

// Of the canonical codes; the rest say that something went wrong there.
const statuses: Record<number, number> = {
  3: 400,
  4: 504,
  5: 404,
  7: 401,
  8: 429,
  9: 400,
  11: 400,
  14: 503,
  16: 401,
};

function standingOf({ done, error, response }: Operation): VideoStatus {
  if (done !== true) return { state: 'waiting', progress: undefined };
  if (error)
    return {
      state: 'failed',
      status: statuses[Number(error.code)] ?? 500,
      code: textOf(error.status),
      message: textOf(error.message),
    };
  const { generatedSamples: samples, raiMediaFilteredReasons: reasons } =
    response?.generateVideoResponse ?? {};
  const [first] = (Array.isArray(samples) ? samples : []) as ({ video?: { uri?: unknown } | null } | null)[];
  const url = textOf(first?.video?.uri);
  if (url !== undefined) return { state: 'ready', url };
  const said = Array.isArray(reasons) ? reasons.filter((reason) => typeof reason === 'string').join(' ') : '';
  return said === ''
    ? { state: 'failed', status: 500 }
    : { state: 'failed', status: 400, code: 'content_filtered', message: said };
}
