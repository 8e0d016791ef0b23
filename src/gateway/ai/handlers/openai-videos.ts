// Handlers of OpenAI's video paths. They use the jobs of `ai.startVideo`, with the same limits, payment and
// storage.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { OpenAiVideo, StartVideoRequest } from '../../../contract/gateway/types.gen.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Identity } from '../../identity.ts';
import type { AiHandlers } from '../calls/context.ts';
import { ownerOf } from '../calls/owner.ts';
import type { JobAddress } from '../jobs/store.ts';
import { createVideoJob, mediaReply, type MediaOptions, openFreshMedia } from './media.ts';
import { type RenameMember, withMemberNames } from './member-names.ts';
import { toVideo, toVideoRequest } from '../media/openai-videos.ts';

export interface OpenAiVideoOptions extends MediaOptions {
  clock: Clock;
}

type VideoOperation =
  | 'ai.createClientVideo'
  | 'ai.listClientVideos'
  | 'ai.getClientVideo'
  | 'ai.removeClientVideo'
  | 'ai.getClientVideoContent';

export function openAiVideoHandlers(options: OpenAiVideoOptions): Pick<AiHandlers, VideoOperation> {
  const { jobs } = options;
  return {
    'ai.createClientVideo': (call) => createVideo(options, call),

    'ai.listClientVideos': (call) => listVideos(options, call),

    'ai.getClientVideo': async (call) => {
      const job = await withMemberNames(videoMember, () => jobs.find(addressOf(call)));
      return { status: 200, body: toVideo(job) };
    },

    'ai.removeClientVideo': async (call) => {
      await withMemberNames(videoMember, () => jobs.remove(addressOf(call)));
      return { status: 200, body: { id: call.path.video_id, object: 'video.deleted', deleted: true } };
    },

    'ai.getClientVideoContent': (call) => getContent(options, call),
  };
}

const videoMember: RenameMember = (member) => (member === 'job_id' ? 'video_id' : undefined);
const cursorMember: RenameMember = (member) => (member === 'job_id' ? 'after' : undefined);
const bodyMember: RenameMember = (member) => {
  if (member === 'duration_seconds') return 'seconds';
  return member.startsWith('images') ? 'input_reference' : undefined;
};

interface VideoCall {
  identity: Extract<Identity, { kind: 'user' | 'admin' }>;
  path: { video_id: string };
}

function addressOf({ identity, path }: VideoCall): JobAddress {
  return { jobId: path.video_id, kind: 'video', owner: ownerOf(identity) };
}

async function createVideo(
  options: OpenAiVideoOptions,
  call: Call<Operations['ai.createClientVideo'], Identity>,
): Promise<Reply<Operations['ai.createClientVideo']>> {
  const request = toVideoRequest(call.body);
  const createdAt = options.clock.now();
  const reply = (jobId: string) => ({ status: 200 as const, body: queuedVideo(jobId, request, createdAt) });
  const jobId = await withMemberNames(bodyMember, () =>
    createVideoJob(options, call, { body: request, reply }),
  );
  return reply(jobId);
}

function queuedVideo(jobId: string, request: StartVideoRequest, createdAt: Date): OpenAiVideo {
  const { model } = request;
  return toVideo({
    jobId,
    model,
    status: 'queued',
    progress: 0,
    error: null,
    media: [],
    createdAt,
    finishedAt: null,
    request: { ...request },
  });
}

async function listVideos(
  { jobs }: OpenAiVideoOptions,
  { identity, query }: Call<Operations['ai.listClientVideos'], Identity>,
): Promise<Reply<Operations['ai.listClientVideos']>> {
  const { limit = 20, order = 'desc', after } = query;
  const owner = ownerOf(identity);
  const page = await withMemberNames(cursorMember, () =>
    jobs.list({ kind: 'video', owner, after, order, limit: limit + 1 }),
  );
  const data = page.slice(0, limit).map(toVideo);
  return {
    status: 200,
    body: {
      object: 'list',
      data,
      first_id: data[0]?.id ?? null,
      last_id: data.at(-1)?.id ?? null,
      has_more: page.length > limit,
    },
  };
}

async function getContent(
  options: OpenAiVideoOptions,
  call: Call<Operations['ai.getClientVideoContent'], Identity>,
): Promise<Reply<Operations['ai.getClientVideoContent']>> {
  const job = await withMemberNames(videoMember, () => options.jobs.find(addressOf(call)));
  const [video] = job.media;
  if (video === undefined) throw noContent(toVideo(job));
  const media = await openFreshMedia(options, video.mediaId, job.readAt);
  if (media === null) throw noContent(toVideo(job));
  // Not cacheable: two accounts in one browser use the same path, and the video can be deleted.
  return mediaReply(media, 'no-store') as Reply<Operations['ai.getClientVideoContent']>;
}

function noContent({ status }: OpenAiVideo): Problem {
  const message =
    status === 'completed'
      ? 'The file of this video has expired.'
      : `This video has no file; its status is ${status}.`;
  return new Problem('not_found', 'media_not_found', message, { param: 'video_id' });
}
