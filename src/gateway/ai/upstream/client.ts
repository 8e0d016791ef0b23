// HTTP client for model providers: deadlines, size limits, no redirects, and an abort when the
// caller disconnects. It returns successful responses and throws a Problem for everything else.
import type * as Undici from 'undici';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import { createAgent, type Proxies } from './agent.ts';
import type { Authorizer } from './authorizer.ts';
import { Deadlines, type Timeouts } from './deadlines.ts';
import type { EndRule } from './events.ts';
import { problemOfErrorResponse, redactText, toTransportProblem } from './provider-error.ts';
import { requirePublicUrl } from './public-address.ts';
import { ProviderResponse } from './response.ts';
import { readErrorBody, ResponseBody } from './response-body.ts';
import { createUsageRequests } from './usage-requests.ts';

export interface UpstreamRequest {
  url: string;
  apiKey: string | undefined;
  /** The header for the key; `authorization` with a bearer token by default. */
  keyHeader?: 'authorization' | 'x-api-key' | 'x-goog-api-key' | undefined;
  /** Creates headers in place of the key's header, for signatures and short-lived tokens. */
  authorizer?: Authorizer | undefined;
  /** Headers of the format, such as its version, or its media type if that is not JSON. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** POST by default. */
  method?: 'GET' | 'POST' | 'DELETE' | undefined;
  body?: string | Uint8Array | undefined;
  /**
   * The same body without the gateway's request for usage, for a provider that
   * refuses `stream_options`. Absent when the body has no such request.
   */
  bodyWithoutUsage?: (() => string | Uint8Array) | undefined;
  streams: boolean;
  /**
   * Whether only public https addresses are allowed, for URLs that come from a provider and not
   * from the configuration.
   */
  requiresPublicAddress?: boolean | undefined;
  /** Returns a redirect as `redirectUrl`; without this option a redirect is a failure. */
  allowRedirect?: boolean | undefined;
  /** Overrides the idle timeout for this model. */
  idleMs?: number | undefined;
  /** Time left until the first byte must arrive, if an earlier attempt has used some of it. */
  firstMs?: number | undefined;
  signal: AbortSignal;
}

export interface UpstreamAnswer {
  /** The media type without parameters, in lower case. */
  mediaType: string;
  /**
   * Can be read once. Throws a Problem when the connection breaks or the
   * provider is idle for too long.
   */
  body: AsyncIterable<Uint8Array>;
  /** The absolute URL of a redirect (`allowRedirect`). The body must not be read then. */
  redirectUrl?: string | undefined;
  /** Removes keys and addresses from a string of the provider. */
  redact(text: string): string;
  /** Ends the request; needed only if the body is not read. */
  abort(): void;
}

export interface Upstream {
  /**
   * Throws a Problem for everything but a success status or an allowed redirect, and the reason of
   * the signal once it is aborted.
   */
  send(request: UpstreamRequest): Promise<UpstreamAnswer>;
  /**
   * The Problem for an error that a provider reports inside of a successful answer: the same as for
   * a response with this error status.
   */
  toProblem(
    request: Pick<UpstreamRequest, 'url' | 'apiKey' | 'authorizer'>,
    error: { status: number; message?: string | undefined; code?: string | undefined },
  ): Problem;
  close(): Promise<void>;
}

export interface UpstreamOptions {
  timeouts: Timeouts;
  proxies: Proxies;
  clock: Pick<Clock, 'now' | 'monotonicMs'>;
  log: Log;
  /** Replaces live secrets in a string that callers see. */
  hide: (text: string) => string;
  /** The `traceparent` header for the current call; undefined while calls are not traced. */
  traceparent?: (() => string | undefined) | undefined;
  /** The id of the current request, for the log. */
  requestId?: (() => string | undefined) | undefined;
}

const maxEventBytes = 1024 * 1024;
/** The largest answer that is not streamed. */
export const maxAnswerBytes = 32 * 1024 * 1024;

/**
 * The longest event of a stream. Events of the responses format can repeat the
 * request and the whole answer.
 */
export function maxEventBytesFor(rule: EndRule, { modalities }: { modalities: readonly string[] }): number {
  return rule === 'responses' || modalities.includes('image') ? maxAnswerBytes : maxEventBytes;
}

interface Transport {
  options: UpstreamOptions;
  dispatchers: ReturnType<typeof createDispatchers>;
  targets: ReturnType<typeof createTargets>;
}

export function createUpstream(options: UpstreamOptions): Upstream {
  const { clock, log, hide } = options;
  const dispatchers = createDispatchers(options);
  const transport: Transport = { options, dispatchers, targets: createTargets() };
  const usageRequests = createUsageRequests({ clock, log });
  const send = (request: UpstreamRequest) => sendOnce(transport, request);
  return {
    send(request) {
      const { bodyWithoutUsage } = request;
      return bodyWithoutUsage === undefined
        ? send(request)
        : usageRequests.send({ ...request, bodyWithoutUsage }, send);
    },
    toProblem: (request, { status, message, code }) =>
      problemOfErrorResponse({
        status,
        retryAfter: undefined,
        body: JSON.stringify({ error: { message, code } }),
        hide: secretsHider(request, hide),
        now: clock.now(),
      }),
    close: dispatchers.close,
  };
}

async function sendOnce(
  { options, dispatchers, targets }: Transport,
  request: UpstreamRequest,
): Promise<UpstreamAnswer> {
  const { timeouts, clock, hide, traceparent } = options;
  request.signal.throwIfAborted();
  const target = targets.of(request.url);
  const response = new ProviderResponse();
  const deadlines = new Deadlines(request, timeouts, response);
  try {
    const loadedDispatchers = await dispatchers.load();
    const credentials = await createCredentialHeaders(request, response);
    dispatch(loadedDispatchers, { request, target, response, credentials, traceparent });
    await response.head();
    if (response.statusCode === 401 || response.statusCode === 403) request.authorizer?.discard?.();
    const redirect = request.allowRedirect === true ? redirectLocation(response) : undefined;
    if (redirect === undefined && (response.statusCode < 200 || response.statusCode > 299)) {
      const problem = await readErrorResponse(response, {
        hide: secretsHider(request, hide),
        now: clock.now(),
      });
      request.signal.throwIfAborted();
      throw problem;
    }
    return {
      mediaType: mediaTypeOf(response.headers['content-type']),
      body: new ResponseBody(response, deadlines, (error) => logFailure(error, request, options)),
      abort: () => deadlines.abort(new Error('The answer was not read.')),
      redact: (text) => redactText(text, secretsHider(request, hide)),
      redirectUrl: redirect === undefined ? undefined : new URL(redirect, request.url).href,
    };
  } catch (error) {
    deadlines.release();
    const problem = toTransportProblem(error, response, 'before');
    logFailure(problem, request, options);
    throw problem;
  }
}

interface OutgoingRequest {
  request: UpstreamRequest;
  target: Target;
  response: ProviderResponse;
  credentials: Record<string, string>;
  traceparent: UpstreamOptions['traceparent'];
}

/**
 * Sends the request unless it was aborted meanwhile. Throws for an address that
 * must be public and is not.
 */
function dispatch(
  { standard, publicOnly }: Dispatchers,
  { request, target, response, credentials, traceparent }: OutgoingRequest,
): void {
  const { url, method = 'POST', body, requiresPublicAddress = false } = request;
  if (response.aborted) return;
  if (requiresPublicAddress) requirePublicUrl(url);
  (requiresPublicAddress ? publicOnly() : standard).dispatch(
    {
      origin: target.origin,
      path: target.path,
      method,
      headers: {
        ...requestHeaders(request, requiresPublicAddress ? undefined : traceparent?.()),
        ...credentials,
      },
      body: body ?? null,
      // deadlines.ts replaces these timeouts: undici has a resolution of seconds, and counts a
      // slow reader as a silent provider.
      headersTimeout: 0,
      bodyTimeout: 0,
    },
    response,
  );
}

// Logs failures of providers for the operator, but not callers that disconnect.
function logFailure(
  error: unknown,
  request: UpstreamRequest,
  { log, requestId }: Pick<UpstreamOptions, 'log' | 'requestId'>,
): void {
  if (!(error instanceof Problem)) return;
  if (error.kind !== 'upstream_failed' && error.kind !== 'upstream_timeout') return;
  const { code, cause } = error;
  const provider = new URL(request.url).host;
  log.warn({ requestId: requestId?.(), provider, code, err: cause }, 'model provider failed');
}

async function readErrorResponse(
  response: ProviderResponse,
  { hide, now }: { hide: (text: string) => string; now: Date },
): Promise<Problem> {
  const retryAfter = response.headers['retry-after'];
  return problemOfErrorResponse({
    status: response.statusCode,
    retryAfter: Array.isArray(retryAfter) ? retryAfter[0] : retryAfter,
    body: await readErrorBody(response),
    hide,
    now,
  });
}

/**
 * The headers with the key, or the headers of the authorizer. Stops waiting for a token when the
 * request is aborted or its deadline passes.
 */
async function createCredentialHeaders(
  { apiKey, keyHeader = 'authorization', authorizer, url, method = 'POST', body }: UpstreamRequest,
  response: ProviderResponse,
): Promise<Record<string, string>> {
  if (authorizer !== undefined) {
    const headers = authorizer.headers({ url, method, body, apiKey });
    // The request is sent after this, so `head` can only reject: on an abort or a missed deadline.
    return headers instanceof Promise ? Promise.race([headers, response.head().then(() => ({}))]) : headers;
  }
  if (apiKey === undefined) return {};
  return { [keyHeader]: keyHeader === 'authorization' ? `Bearer ${apiKey}` : apiKey };
}

// Redacts the key and the host of the request, in addition to the secrets of `hide`.
function secretsHider(
  { apiKey, authorizer, url }: Pick<UpstreamRequest, 'apiKey' | 'authorizer' | 'url'>,
  hide: (text: string) => string,
): (text: string) => string {
  const { host, hostname } = new URL(url);
  const secrets = authorizer?.secrets() ?? [];
  return (text) => hide(removeAll(text, [apiKey, ...secrets, host, hostname]));
}

/** The URL of a request, split as the dispatcher expects it. */
interface Target {
  origin: string;
  path: string;
}

const maximumTargets = 1_000;

/** Parses the URL of each model's endpoint once. Throws for an invalid URL. */
function createTargets() {
  const targets = new Map<string, Target>();
  return {
    of(url: string): Target {
      const existing = targets.get(url);
      if (existing !== undefined) return existing;
      if (!URL.canParse(url))
        throw new Problem(
          'upstream_failed',
          'upstream_failed',
          'The base URL that is configured for the model provider is not a valid URL.',
        );
      const { origin, pathname, search } = new URL(url);
      const target = { origin, path: pathname + search };
      // Links to the results of jobs differ for each call, so clear the map when they have filled
      // it.
      if (targets.size >= maximumTargets) targets.clear();
      targets.set(url, target);
      return target;
    },
  };
}

interface Dispatchers {
  standard: Undici.Dispatcher;
  /** Connects to public addresses only. */
  publicOnly(): Undici.Dispatcher;
  close(): Promise<unknown>;
}

// Loads undici with the first request: it would be the slowest import when the process starts, and
// local models do not need it.
function createDispatchers(options: UpstreamOptions) {
  let dispatchersPromise: Promise<Dispatchers> | undefined;

  async function create(): Promise<Dispatchers> {
    const undici = await import('undici');
    const standard = createAgent(undici, options);
    let publicOnly: Undici.Dispatcher | undefined;
    return {
      standard,
      publicOnly: () => (publicOnly ??= createAgent(undici, { ...options, publicAddressesOnly: true })),
      close: () => Promise.all([standard.destroy(), publicOnly?.destroy()]),
    };
  }

  return {
    load: () => (dispatchersPromise ??= create()),
    async close(): Promise<void> {
      await (await dispatchersPromise)?.close();
    },
  };
}

function requestHeaders(
  { headers, body, streams }: UpstreamRequest,
  traceparent: string | undefined,
): Record<string, string> {
  return {
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    accept: streams ? 'text/event-stream' : 'application/json',
    ...headers,
    'accept-encoding': 'identity',
    'user-agent': 'townhall',
    ...(traceparent === undefined ? {} : { traceparent }),
  };
}

function redirectLocation({ statusCode, headers }: ProviderResponse): string | undefined {
  const { location } = headers;
  return [301, 302, 303, 307, 308].includes(statusCode) &&
    typeof location === 'string' &&
    URL.canParse(location, 'http://any.invalid')
    ? location
    : undefined;
}

function mediaTypeOf(header: string | string[] | undefined): string {
  const text = Array.isArray(header) ? (header[0] ?? '') : (header ?? '');
  return (text.split(';')[0] ?? '').trim().toLowerCase();
}

// Parts below four characters stay, as they would match anywhere.
function removeAll(text: string, parts: readonly (string | undefined)[]): string {
  let redactedText = text;
  for (const part of parts)
    if (part !== undefined && part.length >= 4) redactedText = redactedText.replaceAll(part, '[redacted]');
  return redactedText;
}
