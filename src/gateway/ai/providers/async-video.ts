// A film that is ordered from a provider, waited for and fetched. The provider's key goes to the provider's own origin
// and nowhere else, wherever it says that the film lies; and a film is never held here as a whole.
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import { createMp4Reader } from '../media/mp4.ts';
import type { RemoteMedia, MediaProperties, AsyncVideoModel } from '../hub/media-model.ts';
import type { VideoFormat } from '../catalog/models-file.ts';
import { findForm } from '../upstream/member-names.ts';
import { refuseUnsafeMembers } from '../upstream/request-guard.ts';
import type { UpstreamAnswer, UpstreamRequest } from '../upstream/client.ts';
import { readAll } from '../upstream/response-body.ts';
import { ConnectionFailure } from '../upstream/provider-error.ts';
import type { ModelAccess } from './sdk-model.ts';
import { googleVideo } from './google/video.ts';
import { openAiVideo } from './openai/video.ts';
import type { VideoStatus, VideoAdapter } from './video-format.ts';
import { xaiVideo } from './xai/video.ts';

export interface AsyncVideoOptions extends ModelAccess {
  clock: Pick<Clock, 'sleep'>;
  limits: VideoLimits;
}

export interface VideoLimits {
  /** Between two questions for one film. */
  pollMs: number;
  /** A film that is larger is not kept. */
  maxBytes: number;
}

export const defaultVideoLimits: VideoLimits = { pollMs: 5_000, maxBytes: 512 * 1024 * 1024 };

const wires: Record<VideoFormat, VideoAdapter> = { openai: openAiVideo, google: googleVideo, xai: xaiVideo };

// Answers without a film in them are short, and short to make.
const answerBytes = 1024 * 1024;
const answerMs = 30_000;
const fetchMs = 120_000;
const giveUpMs = 15_000;
const mostMoves = 5;
// A provider may know of an order everywhere only a moment after it has taken it.
const mostRefusals = 3;

/** A model whose provider's format is known. */
export function asyncVideoModel(
  model: CatalogModel,
  format: VideoFormat,
  needs: AsyncVideoOptions,
): AsyncVideoModel {
  const { upstream, baseUrl, apiKey, idleMs, firstMs, clock, limits } = needs;
  const wire = wires[format];

  async function ask(
    path: string,
    more: Pick<UpstreamRequest, 'signal'> & Partial<UpstreamRequest>,
  ): Promise<unknown> {
    const answer = await upstream.send({
      url: `${baseUrl}${path}`,
      apiKey,
      keyHeader: wire.keyHeader,
      streams: false,
      idleMs,
      firstMs: answerMs,
      ...more,
    });
    const bytes = await readAll(answer.body, answerBytes);
    // A film that is being made may be told of without a word.
    if (bytes.length === 0) return null;
    try {
      return JSON.parse(bytes.toString('utf8'));
    } catch (cause) {
      throw failed('The model provider answered with something that is not JSON.', cause);
    }
  }

  /** How the order stands, or why that cannot be told just now. */
  async function look(orderId: string, signal: AbortSignal): Promise<VideoStatus | Problem> {
    try {
      return wire.readStatus(await ask(wire.statusPath(orderId), { method: 'GET', signal }), orderId);
    } catch (thrown) {
      if (thrown instanceof Problem && !signal.aborted) return thrown;
      throw thrown;
    }
  }

  async function locate(place: string, signal: AbortSignal): Promise<UpstreamAnswer> {
    let url = placeOf(place, baseUrl);
    for (let moves = 0; moves < mostMoves; moves += 1) {
      const isOwn = url.origin === new URL(baseUrl).origin;
      const answer = await upstream.send({
        method: 'GET',
        url: url.href,
        apiKey: isOwn ? apiKey : undefined,
        keyHeader: wire.keyHeader,
        headers: { accept: 'video/mp4, */*;q=0.1' },
        streams: false,
        requiresPublicAddress: !isOwn,
        allowRedirect: true,
        firstMs: fetchMs,
        idleMs,
        signal,
      });
      if (answer.redirectUrl === undefined) return answer;
      answer.abort();
      url = placeOf(answer.redirectUrl, baseUrl);
    }
    throw failed('The model provider sends from one place to another for a film.');
  }

  return {
    check(call) {
      refuseUnsafeMembers(call.options, model.providerEntry, { path: 'provider_options' });
      const decided = findForm(Object.keys(call.options), wire.reservedMembers);
      if (decided !== undefined) {
        const param = `provider_options.${decided}`;
        throw new Problem(
          'bad_request',
          'invalid_request',
          `The member ${param} is refused: the request itself has a member for it, or it is the server's to decide.`,
          { param },
        );
      }
      wire.check(call);
    },

    async submit(call, signal) {
      let answer: unknown;
      try {
        const { path, ...sent } = wire.submission(call, model.upstream_model);
        answer = await ask(path, {
          ...sent,
          signal,
          ...(firstMs === undefined ? {} : { firstMs: Math.min(firstMs, fetchMs) }),
        });
      } catch (thrown) {
        throw isLost(thrown)
          ? failed('The model provider broke off before it said whether it took the order.', thrown)
          : thrown;
      }
      const orderId = wire.jobId(answer);
      if (typeof orderId !== 'string' || !isOrderId(orderId))
        throw failed('The model provider took the order without a name for it.');
      return orderId;
    },

    async fetchResult(orderId, { signal, reportProgress }) {
      for (let refusals = 0; ;) {
        const standing = await look(orderId, signal);
        let waitMs = limits.pollMs;
        if (standing instanceof Problem) {
          const isRefused = standing.code === 'upstream_refused';
          refusals = isRefused ? refusals + 1 : 0;
          if (standing.code === 'provider_credentials' || refusals >= mostRefusals) throw standing;
          waitMs = Math.max(waitMs, Number(standing.headers['retry-after'] ?? 0) * 1000);
        } else if (standing.state === 'ready') {
          return fetched(standing, (place) => locate(place, signal), limits.maxBytes);
        } else if (standing.state === 'failed') {
          throw upstream.toProblem({ url: baseUrl, apiKey }, standing);
        } else {
          refusals = 0;
          if (standing.progress !== undefined) reportProgress(standing.progress);
        }
        await clock.sleep(waitMs, signal);
      }
    },

    async cancel(orderId) {
      const path = wire.cancelPath?.(orderId);
      if (path !== undefined) await ask(path, { method: 'DELETE', signal: AbortSignal.timeout(giveUpMs) });
    },
  };
}

function fetched(
  { url, seconds }: Extract<VideoStatus, { state: 'ready' }>,
  locate: (place: string) => Promise<UpstreamAnswer>,
  maxBytes: number,
): RemoteMedia {
  let measured: MediaProperties | null = null;
  return {
    async *open() {
      const film = createMp4Reader();
      let bytes = 0;
      for await (const piece of film.passThrough((await locate(url)).body)) {
        bytes += piece.length;
        if (bytes > maxBytes) throw failed('The model provider made a film that is too large to keep.');
        yield piece;
      }
      measured = film.properties();
      // Here, so that what is no film is not kept either.
      if (measured === null) throw failed('The model provider answered with something that is not a film.');
    },
    properties() {
      if (measured === null) throw new Error('A film is measured when it has gone by.');
      return { ...measured, durationSeconds: measured.durationSeconds ?? seconds ?? null };
    },
  };
}

// It becomes a part of an address, so it must not be able to lead out of its place.
function isOrderId(text: string): boolean {
  return (
    /^[A-Za-z0-9][A-Za-z0-9._:/=+-]{0,511}$/.test(text) &&
    !text.split('/').some((part) => part === '' || part === '.' || part === '..')
  );
}

// Where the order may have been taken although nobody heard of it: another would be paid for as well.
function isLost(thrown: unknown): boolean {
  return (
    thrown instanceof Problem &&
    thrown.cause instanceof ConnectionFailure &&
    lostCodes.has(String((thrown.cause.cause as { code?: unknown } | undefined)?.code))
  );
}

const lostCodes = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

function placeOf(place: string, baseUrl: string): URL {
  const text = place.startsWith('/') ? `${baseUrl}${place}` : place;
  if (!URL.canParse(text)) throw failed('The model provider names a place that is none.');
  return new URL(text);
}

function failed(message: string, cause?: unknown): Problem {
  return new Problem('upstream_failed', 'upstream_failed', message, cause === undefined ? {} : { cause });
}
