// OpenAI's videos API, which relays and servers of open models also offer. Requests are sent unchanged, so
// that a provider rejects unsupported members itself, and as a form, because some of these servers accept no
// other type.
import { asRecord, type JsonRecord } from '../../../../kernel/json-value.ts';
import type { VideoCall } from '../../hub/media-model.ts';
import {
  nonEmptyText,
  requireOneImage,
  statusOfCode,
  type VideoAdapter,
  type VideoStatus,
} from '../adapter/video-adapter.ts';
import { multipartForm, type FormField } from './multipart-form.ts';

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
  jobId: (answer) => asRecord(answer)['id'],
  statusPath: videoPath,
  readStatus: (answer, jobId) => statusOf(asRecord(answer), jobId),
  cancelPath: videoPath,
};

function videoPath(jobId: string): string {
  return `/videos/${encodeURIComponent(jobId)}`;
}

function fieldsOf(
  { prompt, durationSeconds, framesPerSecond, size, aspectRatio, seed, images, options }: VideoCall,
  upstreamModel: string,
): [string, FormField][] {
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
  const fields = Object.entries(members).flatMap(([name, member]): [string, FormField][] =>
    member === undefined ? [] : [[name, typeof member === 'string' ? member : JSON.stringify(member)]],
  );
  for (const { content, mediaType } of images) {
    const fileName = `image.${mediaType.split('/')[1]}`;
    fields.push(['input_reference', { fileName, mediaType, content }]);
  }
  return fields;
}

// Statuses of OpenAI and of compatible servers. An unknown status counts as waiting.
const failedStatuses = new Set(['failed', 'error', 'cancelled', 'canceled', 'expired']);

function statusOf({ status, progress, seconds, error }: JsonRecord, jobId: string): VideoStatus {
  if (status === 'completed') {
    const duration = seconds === null ? Number.NaN : Number(seconds);
    return {
      state: 'ready',
      url: `${videoPath(jobId)}/content`,
      seconds: duration > 0 ? duration : undefined,
    };
  }
  if (typeof status === 'string' && failedStatuses.has(status)) {
    const { code, message } = asRecord(error);
    return {
      state: 'failed',
      status: statusOfCode(code),
      code: nonEmptyText(code),
      message: nonEmptyText(message),
    };
  }
  return { state: 'waiting', progress: typeof progress === 'number' ? progress / 100 : undefined };
}
