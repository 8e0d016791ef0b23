// Videos of providers with asynchronous jobs: submitted, polled until ready, and streamed into the storage
// without being buffered as a whole. The provider's key is sent only to the provider's own origin, even if
// the video has another origin.
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type {
  AsyncVideoModel,
  GenerationContext,
  MediaProperties,
  RemoteMedia,
  VideoCall,
} from '../hub/media-model.ts';
import { createMp4Reader } from '../media/mp4.ts';
import type { UpstreamAnswer, UpstreamRequest } from '../upstream/client.ts';
import { readAll } from '../upstream/response-body.ts';
import { findForm } from '../upstream/member-names.ts';
import { ConnectionFailure, providerStatusOf } from '../upstream/provider-error.ts';
import { refuseUnsafeMembers } from '../upstream/request-guard.ts';
import type { ModelAccess } from './adapter/model-access.ts';
import { googleVideo } from './google/video.ts';
import { openAiVideo } from './openai/video.ts';
import { refusePricedOptions } from './adapter/priced-options.ts';
import type { VideoFormat } from './adapter/provider-adapter.ts';
import type { VideoAdapter, VideoStatus } from './adapter/video-adapter.ts';
import { xaiVideo } from './xai/video.ts';
import { upstreamFailed } from '../hub/problems.ts';

export interface AsyncVideoOptions extends ModelAccess {
  clock: Pick<Clock, 'sleep'>;
  limits: VideoLimits;
}

export interface VideoLimits {
  /** The time between two polls of one job. */
  pollMs: number;
  /** A larger video is rejected. */
  maxBytes: number;
}

export const defaultVideoLimits: VideoLimits = { pollMs: 5_000, maxBytes: 512 * 1024 * 1024 };

const adapters: Record<VideoFormat, VideoAdapter> = {
  openai: openAiVideo,
  google: googleVideo,
  xai: xaiVideo,
};

// Answers about a job are small JSON documents.
const maxJsonBytes = 1024 * 1024;
const answerMs = 30_000;
const submissionMs = 120_000;
const downloadMs = 120_000;
const cancelMs = 15_000;
const maxRedirects = 5;
// A new job may not be visible on all servers of the provider at once.
const maxRefusedPolls = 3;

/** State shared by the functions of this file for one model. */
interface Connection extends AsyncVideoOptions {
  adapter: VideoAdapter;
}

export function asyncVideoModel(
  model: CatalogModel,
  format: VideoFormat,
  options: AsyncVideoOptions,
): AsyncVideoModel {
  const adapter = adapters[format];
  const connection = { ...options, adapter };
  return {
    check: (call) => checkCall(model, adapter, call),
    submit: (call, signal) => submit(connection, adapter.submission(call, model.upstream_model), signal),
    fetchResult: (jobId, context) => fetchResult(connection, jobId, context),
    async cancel(jobId) {
      const path = adapter.cancelPath?.(jobId);
      if (path === undefined) return;
      await sendRequest(connection, path, { method: 'DELETE', signal: AbortSignal.timeout(cancelMs) });
    },
  };
}

function checkCall(model: CatalogModel, adapter: VideoAdapter, call: VideoCall): void {
  refuseUnsafeMembers(call.options, model.providerEntry, { path: 'provider_options' });
  refusePricedOptions(model, call.options);
  const name = findForm(Object.keys(call.options), adapter.reservedMembers);
  if (name !== undefined) {
    const param = `provider_options.${name}`;
    throw new Problem(
      'bad_request',
      'invalid_request',
      `The member ${param} is refused: another member of the request decides it, or the gateway does.`,
      { param },
    );
  }
  adapter.check(call);
}

async function submit(
  connection: Connection,
  { path, ...submission }: ReturnType<VideoAdapter['submission']>,
  signal: AbortSignal,
): Promise<string> {
  const firstMs = Math.min(connection.firstMs ?? answerMs, submissionMs);
  const answer = await sendRequest(connection, path, { ...submission, signal, firstMs }).catch(
    (error: unknown) => {
      // A retry could be a second job that is charged too, so this failure must not count as transient.
      if (mayHaveArrived(error))
        throw upstreamFailed(
          'The model provider did not confirm that it has accepted the video job. The job is not ' +
            'submitted again, since it may be charged.',
          error,
        );
      throw error;
    },
  );
  const jobId = connection.adapter.jobId(answer);
  if (typeof jobId !== 'string' || !isSafeJobId(jobId))
    throw upstreamFailed('The model provider accepted the video job without a usable id.');
  return jobId;
}

/** Polls until the video is ready. A failed poll is retried, unless the job itself has failed. */
async function fetchResult(
  connection: Connection,
  jobId: string,
  { signal, reportProgress }: GenerationContext,
): Promise<RemoteMedia> {
  const { upstream, baseUrl, apiKey, authorizer, clock, limits } = connection;
  for (let refusedPolls = 0; ;) {
    const status = await poll(connection, jobId, signal);
    let waitMs = limits.pollMs;
    if (status instanceof Problem) {
      refusedPolls = status.code === 'upstream_refused' ? refusedPolls + 1 : 0;
      if (status.code === 'provider_credentials' || refusedPolls >= maxRefusedPolls) throw status;
      waitMs = Math.max(waitMs, Number(status.headers['retry-after'] ?? 0) * 1000);
    } else {
      refusedPolls = 0;
      if (status.state === 'ready') return remoteVideo(connection, status, signal);
      if (status.state === 'failed') throw upstream.toProblem({ url: baseUrl, apiKey, authorizer }, status);
      if (status.progress !== undefined) reportProgress(status.progress);
    }
    await clock.sleep(waitMs, signal);
  }
}

/** The status of the job, or the Problem of this poll. */
async function poll(
  connection: Connection,
  jobId: string,
  signal: AbortSignal,
): Promise<VideoStatus | Problem> {
  const { adapter } = connection;
  try {
    const answer = await sendRequest(connection, adapter.statusPath(jobId), { method: 'GET', signal });
    return adapter.readStatus(answer, jobId);
  } catch (error) {
    if (error instanceof Problem && !signal.aborted) return error;
    throw error;
  }
}

/** The parsed response; null for an empty one, which some providers send while a job runs. */
async function sendRequest(
  { upstream, baseUrl, apiKey, authorizer, idleMs, adapter }: Connection,
  path: string,
  options: Pick<UpstreamRequest, 'signal'> & Partial<UpstreamRequest>,
): Promise<unknown> {
  const answer = await upstream.send({
    url: `${baseUrl}${path}`,
    apiKey,
    keyHeader: adapter.keyHeader,
    authorizer,
    streams: false,
    idleMs,
    firstMs: answerMs,
    ...options,
  });
  const bytes = await readAll(answer.body, maxJsonBytes);
  if (bytes.length === 0) return null;
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch (cause) {
    throw upstreamFailed('The model provider answered with something that is not JSON.', cause);
  }
}

function remoteVideo(
  connection: Connection,
  { url, seconds }: Extract<VideoStatus, { state: 'ready' }>,
  signal: AbortSignal,
): RemoteMedia {
  let video: MediaProperties | null = null;
  return {
    async *open() {
      const reader = createMp4Reader();
      let bytes = 0;
      for await (const piece of reader.passThrough((await download(connection, url, signal)).body)) {
        bytes += piece.length;
        if (bytes > connection.limits.maxBytes)
          throw upstreamFailed(
            `The video of the model provider exceeds ${connection.limits.maxBytes} bytes.`,
          );
        yield piece;
      }
      video = reader.properties();
      // Throw within the stream, so that the storage discards the bytes.
      if (video === null) throw upstreamFailed('The model provider sent a file that is not an MP4 video.');
    },
    properties() {
      if (video === null)
        throw new Error('The properties of a video are known only after it has been read to its end.');
      return { ...video, durationSeconds: video.durationSeconds ?? seconds ?? null };
    },
  };
}

/** The answer with the video, after redirects. Other origins must be public addresses and get no key. */
async function download(
  { upstream, baseUrl, apiKey, authorizer, idleMs, adapter }: Connection,
  location: string,
  signal: AbortSignal,
): Promise<UpstreamAnswer> {
  let url = absoluteUrl(location, baseUrl);
  for (let redirects = 0; redirects <= maxRedirects; redirects += 1) {
    const isOwnOrigin = url.origin === new URL(baseUrl).origin;
    const answer = await upstream.send({
      method: 'GET',
      url: url.href,
      apiKey: isOwnOrigin ? apiKey : undefined,
      keyHeader: adapter.keyHeader,
      authorizer: isOwnOrigin ? authorizer : undefined,
      headers: { accept: 'video/mp4, */*;q=0.1' },
      streams: false,
      requiresPublicAddress: !isOwnOrigin,
      allowRedirect: true,
      firstMs: downloadMs,
      idleMs,
      signal,
    });
    if (answer.redirectUrl === undefined) return answer;
    answer.abort();
    url = absoluteUrl(answer.redirectUrl, baseUrl);
  }
  throw upstreamFailed(
    `The model provider redirected the download of a video more than ${maxRedirects} times.`,
  );
}

function absoluteUrl(location: string, baseUrl: string): URL {
  const text = location.startsWith('/') ? `${baseUrl}${location}` : location;
  if (!URL.canParse(text)) throw upstreamFailed('The model provider named an invalid URL for a video.');
  return new URL(text);
}

/** Whether the id is safe as a path segment. */
function isSafeJobId(text: string): boolean {
  return (
    /^[A-Za-z0-9][A-Za-z0-9._:/=+-]{0,511}$/.test(text) &&
    !text.split('/').some((segment) => segment === '' || segment === '.' || segment === '..')
  );
}

const lostConnectionCodes = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

/**
 * Whether the provider may have accepted the request: the connection broke after it was sent, or a proxy in
 * front of the provider got no answer (502) or none in time (504).
 */
function mayHaveArrived(error: unknown): boolean {
  if (!(error instanceof Problem)) return false;
  const status = providerStatusOf(error);
  if (status === 502 || status === 504) return true;
  return (
    error.cause instanceof ConnectionFailure &&
    lostConnectionCodes.has(String((error.cause.cause as { code?: unknown } | undefined)?.code))
  );
}
