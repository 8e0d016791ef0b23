// Handlers of image and video jobs and of the links to their files. Images and videos are jobs
// because they take longer than a client should keep a connection open.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { CreateImageRequest, StartVideoRequest } from '../../../contract/gateway/types.gen.ts';
import type { Call, Handlers, Reply } from '../../../kernel/contract/operation.ts';
import { unixSeconds } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Identity } from '../../identity.ts';
import type { Billing } from '../billing/billing.ts';
import { viewerOf, type Catalog, type CatalogModel } from '../catalog/catalog.ts';
import { ownerOf } from '../calls/owner.ts';
import type { JobKind } from '../jobs/job.ts';
import type { MediaJobs, NewJob } from '../jobs/jobs.ts';
import { ratesByModality } from '../calls/media-request.ts';
import { imageJobView, pollAfterMs, videoJobView } from '../media/job-views.ts';
import type { MediaLinks } from '../media/links.ts';
import { imageCallOf, videoCallOf } from '../media/visual-input.ts';
import { requirePrice } from '../metering/bound.ts';
import type { MediaModels } from '../providers/media-models.ts';

export interface MediaOptions {
  catalog: Catalog;
  billing: Billing;
  models: MediaModels;
  jobs: MediaJobs;
  links: MediaLinks;
}

type MediaHandlers = Pick<
  Handlers<Operations, 'ai', Identity>,
  'ai.createImage' | 'ai.getImage' | 'ai.cancelImage' | 'ai.startVideo' | 'ai.getMedia'
>;

export function mediaHandlers(options: MediaOptions): MediaHandlers {
  const { jobs, links } = options;
  return {
    'ai.createImage': async (call) => acceptJob(options, call, { kind: 'image', body: call.body }),

    'ai.getImage': async ({ identity, body }) => {
      const job = await jobs.find({ jobId: body.job_id, kind: 'image', owner: ownerOf(identity) });
      return { status: 200, body: imageJobView(job, links) };
    },

    'ai.cancelImage': async ({ identity, body }) => {
      const job = await jobs.cancel({ jobId: body.job_id, kind: 'image', owner: ownerOf(identity) });
      return { status: 200, body: imageJobView(job, links) };
    },

    // The body either starts a job, or names an existing job to read or cancel.
    'ai.startVideo': async (call) => {
      const { identity, body } = call;
      if ('job_id' in body) {
        const address = { jobId: body.job_id, kind: 'video', owner: ownerOf(identity) } as const;
        const job = await (body.cancel === true ? jobs.cancel(address) : jobs.find(address));
        return { status: 200, body: videoJobView(job, links) };
      }
      return acceptJob(options, call, { kind: 'video', body });
    },

    'ai.getMedia': ({ path, query }) => openMedia(options, { mediaId: path.media_id, ...query }),
  };
}

/** Throws the 400 and the 422 of a request that no model of its chain can execute. */
function requireModel(options: MediaOptions, identity: Identity, { kind, body }: JobRequest): void {
  const { models } = options;
  requireCapableModel(options, { identity, kind, modelId: body.model }, (model) =>
    kind === 'image'
      ? models.checkImage(model, imageCallOf(body))
      : models.checkVideo(model, videoCallOf(body)),
  );
}

/**
 * Creates a job for a call that responds with the job's result. The call's Idempotency-Key is bound to the
 * job, so a retry waits for the same job. Throws as `ai.createImage` and `ai.startVideo` do.
 */
export async function createAwaitedJob(
  options: MediaOptions,
  call: JobCreation,
  request: JobRequest,
): Promise<BoundJob> {
  const { started } = call.remember;
  if (started !== undefined) return { ...(started as { jobId: string }), isKeyed: true };
  requireModel(options, call.identity, request);
  let isKeyed = false;
  const jobId = await options.jobs.create(newJob(call, request), async (tx, newJobId) => {
    isKeyed = await call.remember.bind(tx, { jobId: newJobId });
  });
  return { jobId, isKeyed };
}

interface BoundJob {
  jobId: string;
  /** Whether a retry with the call's Idempotency-Key gets the same job. */
  isKeyed: boolean;
}

/** Throws the 422 of the first model when neither it nor any of its fallbacks supports the call. */
function requireCapableModel(
  { catalog, billing }: Pick<MediaOptions, 'catalog' | 'billing'>,
  { identity, kind, modelId }: { identity: Identity; kind: JobKind; modelId: string },
  check: (model: CatalogModel) => void,
): void {
  let firstProblem: Problem | undefined;
  for (const model of catalog.chain(viewerOf(identity), modelId, kind)) {
    try {
      requirePrice(model, ratesByModality[kind]);
      check(model);
      if (model.rates !== null) billing.requirePayer(identity);
      return;
    } catch (error) {
      if (!(error instanceof Problem) || error.code !== 'unsupported_by_model') throw error;
      firstProblem ??= error;
    }
  }
  throw firstProblem ?? new Error(`The chain of ${modelId} is empty.`);
}

export type JobCreation = Pick<
  Call<Operations['ai.createImage'], Identity>,
  'requestId' | 'identity' | 'remember'
>;

/** The request of a job, and its kind. */
export type JobRequest =
  | { kind: 'image'; body: CreateImageRequest }
  | { kind: 'video'; body: StartVideoRequest };

/** Creates a video job. Stores `reply` in the same transaction, for retries with the Idempotency-Key. */
export async function createVideoJob(
  options: MediaOptions,
  call: JobCreation,
  { body, reply }: { body: StartVideoRequest; reply: (jobId: string) => JobReply },
): Promise<string> {
  const request: JobRequest = { kind: 'video', body };
  requireModel(options, call.identity, request);
  return options.jobs.create(newJob(call, request), (tx, newJobId) => call.remember(tx, reply(newJobId)));
}

type JobReply = Parameters<JobCreation['remember']>[1];

async function acceptJob(
  options: MediaOptions,
  call: JobCreation,
  request: JobRequest,
): Promise<Extract<Reply<Operations['ai.createImage']>, { status: 202 }>> {
  requireModel(options, call.identity, request);
  const reply = (jobId: string) => ({
    status: 202 as const,
    body: { job_id: jobId, status: 'queued' as const, poll_after_ms: pollAfterMs[request.kind] },
  });
  const jobId = await options.jobs.create(newJob(call, request), (tx, newJobId) =>
    call.remember(tx, reply(newJobId)),
  );
  return reply(jobId);
}

function newJob({ identity, requestId }: JobCreation, { kind, body }: JobRequest): NewJob {
  const isUser = identity.kind === 'user';
  // The job keeps the limits of the token that created it, so that its fallbacks respect them.
  const limits = isUser && identity.models !== undefined ? { allowedModels: identity.models } : {};
  return {
    kind,
    owner: ownerOf(identity),
    request: { ...body, ...limits },
    call: { requestId, tokenId: identity.tokenId, bureauId: isUser ? identity.bureauId : null },
  };
}

async function openMedia(
  { jobs, links }: Pick<MediaOptions, 'jobs' | 'links'>,
  { mediaId, expires, signature }: { mediaId: string; expires: number; signature: string },
): Promise<Reply<Operations['ai.getMedia']>> {
  const media = links.verify(mediaId, expires, signature) ? await jobs.openMedia(mediaId, expires) : null;
  if (media === null)
    throw new Problem('not_found', 'media_not_found', 'This link is invalid, or it or its file has expired.');
  // The bytes under a link never change.
  return mediaReply(media, 'private, max-age=3600, immutable');
}

// `openMedia` refuses an expired link. A caller that has just read the job has no link, so it passes the
// expiry of a new one.
const freshLinkSeconds = 60;

/**
 * Opens a file of a job that was read at `readAt`, as a link made then; null if the file has been deleted.
 */
export function openFreshMedia(
  { jobs }: Pick<MediaOptions, 'jobs'>,
  mediaId: string,
  readAt: Date,
): ReturnType<MediaJobs['openMedia']> {
  return jobs.openMedia(mediaId, unixSeconds(readAt) + freshLinkSeconds);
}

/** The reply with the bytes of a file. */
export function mediaReply(
  media: NonNullable<Awaited<ReturnType<MediaJobs['openMedia']>>>,
  cacheControl: string,
): Extract<Reply<Operations['ai.getMedia']>, { status: 200 }> {
  return {
    status: 200,
    content: media.content,
    mediaType: media.record.mediaType as 'image/png',
    headers: {
      'content-length': String(media.size),
      'cache-control': cacheControl,
      // Blocks scripts in a file that a browser opens by its link.
      'content-security-policy': "default-src 'none'; sandbox",
    },
  };
}
