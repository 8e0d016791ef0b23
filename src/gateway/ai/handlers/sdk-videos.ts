// Handlers of the AI SDK's video models. They use the jobs of `ai.startVideo`, with the same limits, payment
// and storage. The SDK waits for a video on one connection, or starts it and polls.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type {
  SdkVideo,
  SdkVideoEvent,
  SdkVideoMetadata,
  SdkVideoState,
  StartVideoRequest,
} from '../../../contract/gateway/types.gen.ts';
import { failureNote } from '../../../kernel/contract/failure-note.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import { withTypes } from '../../../kernel/error-dialects.ts';
import { discard } from '../../../kernel/http/sse.ts';
import { asProblem, Problem, renderProblem } from '../../../kernel/problem.ts';
import type { Identity } from '../../identity.ts';
import type { AiHandlers } from '../calls/context.ts';
import { viewerOf } from '../catalog/catalog.ts';
import type { Warning } from '../hub/language-model.ts';
import { ownerOf } from '../calls/owner.ts';
import type { Job } from '../jobs/job.ts';
import { waitForJob } from '../jobs/wait-for-job.ts';
import { createAwaitedJob, createVideoJob, type MediaOptions, openFreshMedia } from './media.ts';
import { optionsFor } from '../media/sdk-media.ts';
import { hintWarnings, toVideoRequest, videoMemberNames } from '../media/sdk-videos.ts';
import { type RenameMember, withMemberNames } from './member-names.ts';
import type { Timeouts } from '../upstream/deadlines.ts';
import { readAll } from '../upstream/response-body.ts';
import { upstreamFailed } from '../hub/problems.ts';

export interface SdkVideoOptions extends MediaOptions {
  clock: Clock;
  timeouts: Pick<Timeouts, 'answerMs' | 'streamMs'>;
}

type GenerateCall = Call<Operations['ai.generateSdkVideo'], Identity>;
type StartCall = Call<Operations['ai.startSdkVideo'], Identity>;
type StatusCall = Call<Operations['ai.getSdkVideo'], Identity>;

export function sdkVideoHandlers(
  options: SdkVideoOptions,
): Pick<AiHandlers, 'ai.generateSdkVideo' | 'ai.startSdkVideo' | 'ai.getSdkVideo'> {
  return {
    'ai.generateSdkVideo': (call) => generateVideo(options, call),

    'ai.startSdkVideo': (call) => startVideo(options, call),

    'ai.getSdkVideo': (call) => getVideo(options, call),
  };
}

interface VideoTarget {
  request: StartVideoRequest;
  warnings: Warning[];
  rename: RenameMember;
}

/** Throws a 404 for an unknown model. */
function readTarget(
  { catalog }: Pick<SdkVideoOptions, 'catalog'>,
  { headers, identity, body }: Pick<GenerateCall, 'headers' | 'identity' | 'body'>,
): VideoTarget {
  const model = headers['ai-model-id'];
  const provider = catalog.chain(viewerOf(identity), model, 'video')[0]?.provider ?? '';
  const { optionsForProvider, warnings } = optionsFor(provider, body.providerOptions);
  return {
    request: toVideoRequest(body, { model, options: optionsForProvider }),
    warnings: [...hintWarnings(body), ...warnings],
    rename: videoMemberNames(body, provider),
  };
}

async function generateVideo(
  options: SdkVideoOptions,
  call: GenerateCall,
): Promise<Reply<Operations['ai.generateSdkVideo']>> {
  const { request, warnings, rename } = readTarget(options, call);
  const job = await withMemberNames(rename, () =>
    createAwaitedJob(options, call, { kind: 'video', body: request }),
  );
  // Starts to wait now, not when the events of the reply are first read. If the caller disconnects before the
  // headers are sent, nothing reads the events, and the job must be canceled all the same.
  const event = waitForVideo(options, call, { ...job, warnings, rename });
  event.catch(() => {});
  return { status: 200, events: oneEvent(event), end: '[DONE]' };
}

/** A stream of one event, so that the headers are sent at once and the client does not time out. */
async function* oneEvent(event: Promise<SdkVideoEvent>): AsyncGenerator<{ data: SdkVideoEvent }> {
  yield { data: await event };
}

async function waitForVideo(
  options: SdkVideoOptions,
  call: GenerateCall,
  { jobId, isKeyed, warnings, rename }: { jobId: string; isKeyed: boolean } & Omit<VideoTarget, 'request'>,
): Promise<SdkVideoEvent> {
  const { jobs, clock, timeouts } = options;
  const { signal, identity } = call;
  const address = { jobId, kind: 'video', owner: ownerOf(identity) } as const;
  const wait = { signal, deadlineMs: timeouts.streamMs, clock, keepsRunning: isKeyed };
  try {
    const job = await withMemberNames(rename, () => waitForJob(jobs, address, wait));
    return { type: 'result', ...(await resultOf(options, job)), warnings };
  } catch (error) {
    if (signal.aborted && !(signal.reason instanceof Problem)) throw error;
    return failureEvent(call, asProblem(signal.aborted ? signal.reason : error));
  }
}

function failureEvent({ requestId, log, note }: GenerateCall, problem: Problem): SdkVideoEvent {
  if (problem.kind === 'internal') log.error({ err: problem.cause ?? problem }, 'video call failed');
  note(failureNote(problem));
  const body = withTypes(renderProblem(problem, requestId), problem, 'ai-sdk-gateway');
  const { message, type, param } = body.error;
  return { type: 'error', message, errorType: type, statusCode: problem.status, param };
}

async function startVideo(
  options: SdkVideoOptions,
  call: StartCall,
): Promise<Reply<Operations['ai.startSdkVideo']>> {
  const { request, warnings, rename } = readTarget(options, call);
  const reply = (jobId: string) => ({
    status: 200 as const,
    body: { operation: { job_id: jobId }, warnings },
  });
  return reply(await withMemberNames(rename, () => createVideoJob(options, call, { body: request, reply })));
}

const operationMember: RenameMember = (member) => (member === 'job_id' ? 'operation.job_id' : undefined);

async function getVideo(
  options: SdkVideoOptions,
  { identity, body }: StatusCall,
): Promise<Reply<Operations['ai.getSdkVideo']>> {
  const { job_id: jobId } = body.operation;
  const job = await withMemberNames(operationMember, () =>
    options.jobs.find({ jobId, kind: 'video', owner: ownerOf(identity) }),
  );
  return { status: 200, body: await stateOf(options, job) };
}

async function stateOf(options: SdkVideoOptions, job: Job): Promise<SdkVideoState> {
  switch (job.status) {
    case 'queued':
    case 'running':
      return { status: 'pending' };
    case 'canceled':
      return { status: 'cancelled' };
    case 'failed':
      return { status: 'error', error: job.error?.message ?? 'The job failed.' };
    default:
      return completedState(options, job);
  }
}

/** A deleted video has the status `error`, like a job that produced no video. */
async function completedState(options: SdkVideoOptions, job: Job): Promise<SdkVideoState> {
  const result = await findResult(options, job);
  return result === null
    ? { status: 'error', error: deletedVideo().message }
    : { status: 'completed', ...result };
}

interface VideoResult {
  videos: SdkVideo[];
  providerMetadata: SdkVideoMetadata;
}

/** Throws a 502 for a video that was deleted. */
async function resultOf(options: SdkVideoOptions, job: Job): Promise<VideoResult> {
  const result = await findResult(options, job);
  if (result === null) throw deletedVideo();
  return result;
}

/** Null for a video that was deleted. */
async function findResult(options: SdkVideoOptions, job: Job): Promise<VideoResult | null> {
  if (job.media.length === 0) return null;
  const videos: SdkVideo[] = [];
  for (const { mediaId, mediaType } of job.media) {
    const video = await toSdkVideo(options, { mediaId, mediaType, readAt: job.readAt });
    if (video === null) return null;
    videos.push(video);
  }
  return { videos, providerMetadata: { townhall: { jobId: job.jobId, credits: job.credits ?? 0 } } };
}

// Larger videos are sent as links, so that a reply needs little memory. Smaller videos are sent in base64,
// because the AI SDK refuses links to a gateway with a private address.
const maxInlineBytes = 8 * 2 ** 20;

async function toSdkVideo(
  options: Pick<SdkVideoOptions, 'jobs' | 'links'>,
  { mediaId, mediaType, readAt }: { mediaId: string; mediaType: string; readAt: Date },
): Promise<SdkVideo | null> {
  const media = await openFreshMedia(options, mediaId, readAt);
  if (media === null) return null;
  const { content, size } = media;
  if (size > maxInlineBytes) {
    discard(content);
    return { type: 'url', url: options.links.urlFor(mediaId, readAt), mediaType };
  }
  return { type: 'base64', data: (await readAll(content, maxInlineBytes)).toString('base64'), mediaType };
}

function deletedVideo(): Problem {
  return upstreamFailed('The video was deleted.');
}
