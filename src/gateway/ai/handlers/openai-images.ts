// Handlers of OpenAI's image paths. Each creates an image job as `ai.createImage` does, waits until it
// ends and responds with its images. The limits, payment and storage of jobs therefore apply.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { CreateImageRequest, OpenAiImageList } from '../../../contract/gateway/types.gen.ts';
import type { Call } from '../../../kernel/contract/operation.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { notReplayable } from '../../../kernel/data/idempotency.ts';
import type { Problem } from '../../../kernel/problem.ts';
import type { Identity } from '../../identity.ts';
import { type AiHandlers, creditsHeader } from '../calls/context.ts';
import { ownerOf } from '../calls/owner.ts';
import type { Job } from '../jobs/job.ts';
import { waitForJob } from '../jobs/wait-for-job.ts';
import { createAwaitedJob, type MediaOptions, openFreshMedia } from './media.ts';
import { type RenameMember, withMemberNames } from './member-names.ts';
import { toEditRequest, toImageList, toImageRequest } from '../media/openai-images.ts';
import { readAll } from '../upstream/response-body.ts';
import type { Timeouts } from '../upstream/deadlines.ts';
import { upstreamFailed } from '../hub/problems.ts';

export interface OpenAiImageOptions extends MediaOptions {
  clock: Clock;
  timeouts: Pick<Timeouts, 'answerMs'>;
}

type ImageCall = Pick<
  Call<Operations['ai.generateClientImages'], Identity>,
  'identity' | 'signal' | 'requestId' | 'remember'
>;

interface ImageReply {
  status: 200;
  body: OpenAiImageList;
  headers: Record<string, string>;
}

export function openAiImageHandlers(
  options: OpenAiImageOptions,
): Pick<AiHandlers, 'ai.generateClientImages' | 'ai.generateClientImageEdits'> {
  return {
    'ai.generateClientImages': (call) =>
      generate(options, call, { request: toImageRequest(call.body), format: call.body.response_format }),

    'ai.generateClientImageEdits': (call) =>
      generate(options, call, { request: toEditRequest(call.body), format: call.body.response_format }),
  };
}

async function generate(
  options: OpenAiImageOptions,
  call: ImageCall,
  { request, format }: { request: CreateImageRequest; format: 'url' | 'b64_json' | null | undefined },
): Promise<ImageReply> {
  const { job, headers } = await withMemberNames(imageMember, () => runImageJob(options, call, request));
  const body = await toImageList(job, format, {
    urlFor: (mediaId) => options.links.urlFor(mediaId, job.readAt),
    read: (mediaId) => readMedia(options, mediaId, job.readAt),
  });
  return { status: 200, body, headers };
}

/**
 * Creates an image job and waits for its images. `headers` contains the price, unless the call is a
 * retry with the same Idempotency-Key.
 */
export async function runImageJob(
  options: OpenAiImageOptions,
  call: ImageCall,
  request: CreateImageRequest,
): Promise<{ job: Job; headers: Record<string, string> }> {
  const { jobs, clock, timeouts } = options;
  const { jobId, isKeyed } = await createAwaitedJob(options, call, { kind: 'image', body: request });
  const address = { jobId, kind: 'image', owner: ownerOf(call.identity) } as const;
  const job = await waitForJob(jobs, address, {
    signal: call.signal,
    deadlineMs: timeouts.answerMs,
    clock,
    keepsRunning: isKeyed,
  });
  // `started` is the job of an earlier call with this key; the job of this call does not set it.
  const isRetry = call.remember.started !== undefined;
  if (job.media.length === 0) throw isRetry ? notReplayable() : deletedImage();
  return { job, headers: isRetry ? {} : creditsHeader(job.credits ?? 0) };
}

const optionsPath = 'provider_options.';
/** OpenAI's requests have provider options at the top level, and their member for files is `image`. */
const imageMember: RenameMember = (member) => {
  if (member.startsWith(optionsPath)) return member.slice(optionsPath.length);
  return member.startsWith('images') ? 'image' : undefined;
};

const maxImageBytes = 64 * 2 ** 20;

/** Reads a file of a job that was read at `readAt`. Throws a 502 if the file has been deleted. */
export async function readMedia(
  options: Pick<MediaOptions, 'jobs'>,
  mediaId: string,
  readAt: Date,
): Promise<Buffer> {
  const media = await openFreshMedia(options, mediaId, readAt);
  if (media === null) throw deletedImage();
  return readAll(media.content, maxImageBytes);
}

function deletedImage(): Problem {
  return upstreamFailed('An image was deleted before it was read.');
}
