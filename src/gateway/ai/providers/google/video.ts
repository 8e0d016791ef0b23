// Videos of Google's long-running predictions (Veo). The format has neither progress nor cancellation.
import { asRecord, isRecord, type JsonRecord } from '../../../../kernel/json-value.ts';
import type { VideoCall } from '../../hub/media-model.ts';
import {
  nonEmptyText,
  requireAbsent,
  requireOneImage,
  resolutionOf,
  type VideoAdapter,
  type VideoStatus,
} from '../adapter/video-adapter.ts';
import { unsupportedMember } from '../../hub/problems.ts';

const resolutions = { 720: '720p', 1080: '1080p', 2160: '4k' };

export const googleVideo: VideoAdapter = {
  keyHeader: 'x-goog-api-key',
  // `storageUri` is a bucket that would receive the video.
  reservedMembers: new Set(['sampleCount', 'durationSeconds', 'aspectRatio', 'seed', 'storageUri']),
  check(call) {
    requireOneImage(call);
    requireAbsent(call, ['framesPerSecond']);
    if (call.size !== undefined && resolutionOf(call.size, resolutions) === undefined)
      throw unsupportedMember(
        'size',
        'The provider of this model generates videos of 720, 1080 or 2160 lines in 16:9 or 9:16, ' +
          'such as 1280x720.',
      );
  },
  submission: (call, upstreamModel) => ({
    path: `/models/${encodeURIComponent(upstreamModel)}:predictLongRunning`,
    body: JSON.stringify(requestBody(call)),
  }),
  jobId: (answer) => asRecord(answer)['name'],
  statusPath: (jobId) => `/${jobId}`,
  readStatus: (answer) => statusOf(asRecord(answer)),
};

function requestBody({
  prompt,
  durationSeconds,
  size,
  aspectRatio,
  seed,
  images: [image],
  options,
}: VideoCall): object {
  const inputImage = image && {
    bytesBase64Encoded: Buffer.from(image.content).toString('base64'),
    mimeType: image.mediaType,
  };
  return {
    instances: [{ prompt, ...(inputImage === undefined ? {} : { image: inputImage }) }],
    parameters: {
      ...options,
      ...(size && resolutionOf(size, resolutions)),
      ...(aspectRatio === undefined ? {} : { aspectRatio: `${aspectRatio.width}:${aspectRatio.height}` }),
      ...(durationSeconds === undefined ? {} : { durationSeconds }),
      ...(seed === undefined ? {} : { seed }),
    },
  };
}

// Canonical gRPC codes as HTTP statuses; all others are 500.
const httpStatuses: Record<number, number> = {
  3: 400,
  4: 504,
  5: 404,
  7: 403,
  8: 429,
  9: 400,
  11: 400,
  14: 503,
  16: 401,
};

function statusOf({ done, error, response }: JsonRecord): VideoStatus {
  if (done !== true) return { state: 'waiting', progress: undefined };
  if (isRecord(error))
    return {
      state: 'failed',
      status: httpStatuses[Number(error['code'])] ?? 500,
      code: nonEmptyText(error['status']),
      message: nonEmptyText(error['message']),
    };
  const { generatedSamples: samples, raiMediaFilteredReasons: reasons } = asRecord(
    asRecord(response)['generateVideoResponse'],
  );
  const [sample] = Array.isArray(samples) ? (samples as unknown[]) : [];
  const url = nonEmptyText(asRecord(asRecord(sample)['video'])['uri']);
  if (url !== undefined) return { state: 'ready', url };
  const message = (Array.isArray(reasons) ? reasons : [])
    .filter((reason) => typeof reason === 'string')
    .join(' ');
  return message === ''
    ? { state: 'failed', status: 500 }
    : { state: 'failed', status: 400, code: 'content_filtered', message };
}
