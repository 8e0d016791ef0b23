// The one way out to model providers over HTTP: deadlines, size limits, no redirects, and a call that ends at once
// when our own caller is gone. What it gives back is a success; everything else is thrown as a Problem.
import { pipeline, type Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import type * as Undici from 'undici';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { EndRule } from './events.ts';
import { publicLookup, requirePublicUrl } from './public-address.ts';
import { redactText, ConnectionFailure, problemOfErrorResponse } from './provider-error.ts';

/** Deadlines of one call to a provider, in milliseconds. */
export interface Timeouts {
  connectMs: number;
  /** To the first byte of a streamed answer's body. */
  firstByteMs: number;
  /** To the first byte of an answer that comes as a whole. */
  answerMs: number;
  /** Between two pieces. */
  idleMs: number;
  /** Over all. */
  streamMs: number;
}

export const defaultTimeouts: Timeouts = {
  connectMs: 5_000,
  firstByteMs: 60_000,
  answerMs: 600_000,
  idleMs: 60_000,
  streamMs: 1_800_000,
};

/** Proxies to use, as the usual environment variables name them. */
export interface Proxies {
  https?: string | undefined;
  http?: string | undefined;
  none?: string | undefined;
}

export interface UpstreamRequest {
  url: string;
  apiKey: string | undefined;
  /** How this provider wants its key; as a bearer credential where nothing is said. */
  keyHeader?: 'authorization' | 'x-api-key' | 'x-goog-api-key' | undefined;
  /** Headers that belong to the format, such as its version, or its media type where that is not JSON. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** POST where nothing is said. */
  method?: 'GET' | 'POST' | 'DELETE' | undefined;
  body?: string | Uint8Array | undefined;
  streams: boolean;
  /** Whether the address is the provider's word and not the operator's: only public ones are followed then. */
  requiresPublicAddress?: boolean | undefined;
  /** Whether an answer that names another place is wanted; it is a failure otherwise. */
  allowRedirect?: boolean | undefined;
  /** Longer or shorter than the usual one, for a model that asks for it. */
  idleMs?: number | undefined;
  /** What is left of the deadline for the first byte, where an earlier attempt has used some of it. */
  firstMs?: number | undefined;
  signal: AbortSignal;
}

export interface UpstreamAnswer {
  /** Without parameters, in lower case. */
  mediaType: string;
  /** To be read once. Throws a Problem when the provider breaks off or is silent for too long. */
  body: AsyncIterable<Uint8Array>;
  /** Where it is instead, for a request that `mayMove`; the body says nothing then, and is not to be read. */
  redirectUrl?: string | undefined;
  /** What of the provider's words may be handed on. */
  redact(text: string): string;
  /** Gives the answer up; needed only where its body is not read. */
  abort(): void;
}

export interface Upstream {
  send(request: UpstreamRequest): Promise<UpstreamAnswer>;
  /** What a failure becomes that a provider tells of in an answer which is a success: the same as by its status. */
  toProblem(
    request: Pick<UpstreamRequest, 'url' | 'apiKey'>,
    said: { status: number; message?: string | undefined; code?: string | undefined },
  ): Problem;
  close(): Promise<void>;
}

export interface UpstreamOptions {
  timeouts: Timeouts;
  proxies: Proxies;
  clock: Pick<Clock, 'now'>;
  log: Log;
  /** Takes live secrets out of a text before a caller sees it. */
  hide: (text: string) => string;
  /** The header by which a provider joins the trace of a call, while calls are traced. */
  traceparent?: (() => string | undefined) | undefined;
  /** Of the request that a call is made for, for the log. */
  requestId?: (() => string | undefined) | undefined;
}

const maxEventBytes = 1024 * 1024;
/** The largest answer that comes as a whole. */
export const maxAnswerBytes = 32 * 1024 * 1024;

/** The longest event of a stream. The responses format repeats the request and the whole answer in some of its own. */
export function maxEventBytesFor(rule: EndRule, { modalities }: { modalities: readonly string[] }): number {
  return rule === 'responses' || modalities.includes('image') ? maxAnswerBytes : maxEventBytes;
}

// An error body is read for its message; nobody needs more of it, or waits longer for it.
const maxRefusalBytes = 64 * 1024;
const refusalMs = 5_000;
// What follows the end of a stream is read so far, so that the connection can serve another call.
const restBytes = 16 * 1024;
const restMs = 500;

export function createUpstream(needs: UpstreamOptions): Upstream {
  const { timeouts, clock, log, hide } = needs;
  // Loaded at the first call: it costs a start more than anything else here, and local models never need it.
  let opened: ReturnType<typeof open> | undefined;
  async function open() {
    const undici = await import('undici');
    const dispatcher = createAgent(undici, needs);
    let toAnyone: Undici.Dispatcher | undefined;
    return {
      request: undici.request,
      dispatcher,
      publicDispatcher: () => (toAnyone ??= createAgent(undici, needs, 'public')),
      close: () => Promise.all([dispatcher.destroy(), toAnyone?.destroy()]),
    };
  }

  // What failed at a provider is for its operator to see; the caller's own going away is not.
  function noted(thrown: unknown, sent: UpstreamRequest): unknown {
    if (
      thrown instanceof Problem &&
      (thrown.kind === 'upstream_failed' || thrown.kind === 'upstream_timeout')
    ) {
      log.warn(
        {
          requestId: needs.requestId?.(),
          provider: new URL(sent.url).host,
          code: thrown.code,
          err: thrown.cause,
        },
        'model provider failed',
      );
    }
    return thrown;
  }

  async function send(sent: UpstreamRequest): Promise<UpstreamAnswer> {
    sent.signal.throwIfAborted();
    if (!URL.canParse(sent.url))
      throw new Problem(
        'upstream_failed',
        'upstream_failed',
        'The address that is configured for the model provider is none.',
      );
    const cut = new AbortController();
    const gone = () => cut.abort(sent.signal.reason);
    sent.signal.addEventListener('abort', gone, { once: true });
    const total = deadline(timeouts.streamMs, cut);
    total.unref();
    const first = deadline(sent.firstMs ?? (sent.streams ? timeouts.firstByteMs : timeouts.answerMs), cut);
    const release = () => {
      clearTimeout(total);
      clearTimeout(first);
      sent.signal.removeEventListener('abort', gone);
    };
    // Also where the body is never read, because its reader went away first.
    cut.signal.addEventListener('abort', release, { once: true });
    try {
      opened ??= open();
      const { request, dispatcher, publicDispatcher } = await opened;
      const { method = 'POST', requiresPublicAddress: isForeign = false } = sent;
      if (isForeign) requirePublicUrl(sent.url);
      const response = await request(sent.url, {
        method,
        dispatcher: isForeign ? publicDispatcher() : dispatcher,
        headers: headersOf(sent, isForeign ? undefined : needs.traceparent?.()),
        body: sent.body ?? null,
        signal: cut.signal,
        // Ours are finer: undici counts in seconds, and does not tell a slow reader from a silent provider.
        headersTimeout: 0,
        bodyTimeout: 0,
      });
      // A body that is destroyed before anyone reads it would otherwise be an uncaught error.
      response.body.on('error', () => {});
      const moved = sent.allowRedirect === true ? placeNamed(response) : undefined;
      if (moved === undefined && (response.statusCode < 200 || response.statusCode > 299))
        throw await refusal(response, sent);
      const idleMs = sent.idleMs ?? timeouts.idleMs;
      const body = pieces(response, { cut, first, idleMs, release, noted: (thrown) => noted(thrown, sent) });
      const abort = () => cut.abort(new Error('given up'));
      return {
        mediaType: mediaTypeOf(response.headers['content-type']),
        body,
        abort,
        redact: (text) => redactText(text, hiding(sent)),
        ...(moved === undefined ? {} : { redirectUrl: new URL(moved, sent.url).href }),
      };
    } catch (error) {
      release();
      throw noted(failure(error, cut.signal, 'before'), sent);
    }
  }

  async function refusal(response: Undici.Dispatcher.ResponseData, sent: UpstreamRequest): Promise<Problem> {
    const retryAfter = response.headers['retry-after'];
    const body = await refusalText(response.body);
    return problemOfErrorResponse({
      status: response.statusCode,
      retryAfter: Array.isArray(retryAfter) ? retryAfter[0] : retryAfter,
      body,
      hide: hiding(sent),
      now: clock.now(),
    });
  }

  function hiding({ apiKey, url }: Pick<UpstreamRequest, 'apiKey' | 'url'>): (text: string) => string {
    const { host, hostname } = new URL(url);
    return (text) => hide(withoutParts(text, [apiKey, host, hostname]));
  }

  return {
    send,
    toProblem: (sent, { status, message, code }) =>
      problemOfErrorResponse({
        status,
        retryAfter: undefined,
        body: JSON.stringify({ error: { message, code } }),
        hide: hiding(sent),
        now: clock.now(),
      }),
    async close() {
      await (await opened)?.close();
    },
  };
}

function createAgent(
  undici: typeof Undici,
  { timeouts, proxies: { https, http, none } }: UpstreamOptions,
  reach: 'anything' | 'public' = 'anything',
): Undici.Dispatcher {
  const isProxied = https !== undefined || http !== undefined;
  // Behind a proxy it is the proxy that looks names up, and everything on a provider's word goes by it.
  const guard = reach === 'public' && !isProxied ? { lookup: publicLookup } : {};
  const options: Undici.Agent.Options = {
    connect: { timeout: timeouts.connectMs, ...guard },
    allowH2: false,
    keepAliveTimeout: 30_000,
  };
  if (!isProxied) return new undici.Agent(options);
  // Empty texts rather than nothing: for what is absent this agent would look into the process's environment.
  return new undici.EnvHttpProxyAgent({
    ...options,
    httpsProxy: https ?? '',
    httpProxy: http ?? '',
    noProxy: reach === 'public' ? '' : (none ?? ''),
  });
}

function headersOf(
  { apiKey, keyHeader = 'authorization', headers, body, streams }: UpstreamRequest,
  traceparent: string | undefined,
): Record<string, string> {
  return {
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    accept: streams ? 'text/event-stream' : 'application/json',
    ...headers,
    'accept-encoding': 'identity',
    'user-agent': 'townhall',
    ...(traceparent === undefined ? {} : { traceparent }),
    ...(apiKey === undefined
      ? {}
      : { [keyHeader]: keyHeader === 'authorization' ? `Bearer ${apiKey}` : apiKey }),
  };
}

function placeNamed({ statusCode, headers }: Undici.Dispatcher.ResponseData): string | undefined {
  const { location } = headers;
  return [301, 302, 303, 307, 308].includes(statusCode) &&
    typeof location === 'string' &&
    URL.canParse(location, 'http://any.invalid')
    ? location
    : undefined;
}

function deadline(ms: number, cut: AbortController): NodeJS.Timeout {
  return setTimeout(() => cut.abort(tooSlow()), ms);
}

function tooSlow(): Problem {
  return new Problem('upstream_timeout', 'upstream_timeout', 'The model provider did not answer in time.');
}

interface Reading {
  cut: AbortController;
  first: NodeJS.Timeout;
  idleMs: number;
  release: () => void;
  noted: (thrown: unknown) => unknown;
}

async function* pieces(
  { body, headers }: Undici.Dispatcher.ResponseData,
  { cut, first, idleMs, release, noted }: Reading,
): AsyncGenerator<Uint8Array> {
  const decoded = decodedBody(body, headers['content-encoding']);
  // Only silence counts while we wait for the provider; a slow reader of ours is not its fault.
  let waiting = true;
  let idle: NodeJS.Timeout | undefined;
  let ended = false;
  const iterator = decoded.iterator({ destroyOnReturn: false }) as AsyncIterator<Uint8Array, undefined>;
  try {
    for (;;) {
      waiting = true;
      idle?.refresh();
      const next = await iterator.next();
      waiting = false;
      if (next.done === true) {
        ended = true;
        return;
      }
      if (idle === undefined) {
        clearTimeout(first);
        idle = setTimeout(() => {
          if (waiting) cut.abort(tooSlow());
        }, idleMs);
      }
      yield next.value;
    }
  } catch (error) {
    ended = true;
    throw noted(failure(error, cut.signal, 'midway'));
  } finally {
    clearTimeout(idle);
    release();
    if (!ended && !body.destroyed) {
      if (decoded !== body) body.destroy();
      else dumpRest(body);
    }
  }
}

// A timer of our own, as a signal's goes off also when there is nothing left to end, and makes an error each time.
function dumpRest(body: Undici.Dispatcher.ResponseData['body']): void {
  const cut = new AbortController();
  const late = setTimeout(() => cut.abort(), restMs);
  body
    .dump({ limit: restBytes, signal: cut.signal })
    .catch(() => body.destroy())
    .finally(() => clearTimeout(late));
}

// Some providers compress although they were asked not to.
function decodedBody(
  body: Undici.Dispatcher.ResponseData['body'],
  encoding: string | string[] | undefined,
): Readable {
  const decoder = {
    gzip: createGunzip,
    'x-gzip': createGunzip,
    deflate: createInflate,
    br: createBrotliDecompress,
  }[String(encoding ?? '').toLowerCase()];
  // The reader of the decoded bytes hears of any failure; here there is nobody to tell.
  return decoder === undefined ? body : pipeline(body, decoder(), () => {});
}

/** A whole body. Throws a Problem when it is larger than the limit. */
export async function readAll(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Buffer> {
  const held: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > maxBytes)
      throw new Problem(
        'upstream_failed',
        'upstream_failed',
        'The model provider sent an answer that is too large.',
      );
    held.push(piece);
  }
  return held.length === 1 ? Buffer.from(held[0] ?? []) : Buffer.concat(held, bytes);
}

async function refusalText(body: Undici.Dispatcher.ResponseData['body']): Promise<string> {
  const held: Uint8Array[] = [];
  let bytes = 0;
  const late = setTimeout(() => body.destroy(), refusalMs);
  try {
    for await (const piece of body as AsyncIterable<Uint8Array>) {
      held.push(piece);
      bytes += piece.length;
      if (bytes > maxRefusalBytes) break;
    }
  } catch {
    // The status alone says enough.
  } finally {
    clearTimeout(late);
  }
  return Buffer.concat(held).toString('utf8');
}

// What a failure of the transport is to our caller: its own going away, a deadline, or a provider that broke off.
function failure(error: unknown, cut: AbortSignal, when: 'before' | 'midway'): unknown {
  if (cut.aborted) return cut.reason;
  if (error instanceof Problem) return error;
  const code = (error as { code?: unknown } | null)?.code;
  if (code === 'UND_ERR_CONNECT_TIMEOUT') {
    return new Problem(
      'upstream_timeout',
      'upstream_timeout',
      'The model provider did not take the connection in time.',
      { cause: connectionFailure(error) },
    );
  }
  return when === 'before'
    ? new Problem('upstream_failed', 'upstream_failed', 'The model provider could not be reached.', {
        cause: connectionFailure(error),
      })
    : new Problem(
        'upstream_failed',
        'upstream_truncated',
        'The model provider broke off before its answer was complete.',
        { cause: error },
      );
}

function connectionFailure(error: unknown): ConnectionFailure {
  return new ConnectionFailure(error instanceof Error ? error.message : 'the connection failed', {
    cause: error,
  });
}

function mediaTypeOf(header: string | string[] | undefined): string {
  const text = Array.isArray(header) ? (header[0] ?? '') : (header ?? '');
  return (text.split(';')[0] ?? '').trim().toLowerCase();
}

function withoutParts(text: string, parts: readonly (string | undefined)[]): string {
  let redacted = text;
  for (const part of parts)
    if (part !== undefined && part.length >= 4) redacted = redacted.replaceAll(part, '[redacted]');
  return redacted;
}
