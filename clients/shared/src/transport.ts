// One HTTP exchange of a client: address, headers, credential, deadline, and the one translation of everything that can
// go wrong into the client's error class. Nothing is ever sent twice: a retry is the caller's decision.

import { ClientError, type Failure, describeMediaType, failureOfAnswer, problemIn } from './client-error.ts';
import { type Lifeline, createLifeline } from './lifeline.ts';
import { readEvents } from './stream.ts';

/** What both clients are made with. */
export interface ConnectionOptions {
  /** Address of the server, with a path if it stands under one, such as `http://127.0.0.1:43127`. */
  baseUrl: string;
  /** The bearer credential, or a function that gives it; the function is asked for every request that needs one. */
  token?: string | (() => string | Promise<string>) | undefined;
  /** Used instead of the global `fetch`. */
  fetch?: typeof globalThis.fetch | undefined;
  /** Sent with every request. */
  headers?: Readonly<Record<string, string | undefined>> | undefined;
  /** Deadline of a whole call, for a stream until its headers; 5 minutes by default, 0 means none. */
  timeoutMs?: number | undefined;
  /** The longest silence of a stream, heartbeats counted; 2 minutes by default, 0 means none. */
  idleTimeoutMs?: number | undefined;
}

/** What a single call may say beside its members. */
export interface CallOptions {
  /** Ends the call and closes its connection; the call then rejects with the signal's reason, as `fetch` does. */
  signal?: AbortSignal | undefined;
  headers?: Readonly<Record<string, string | undefined>> | undefined;
  /** Query members of an operation that takes a body as well. */
  query?: Readonly<Record<string, unknown>> | undefined;
  timeoutMs?: number | undefined;
}

export interface StreamCallOptions extends CallOptions {
  idleTimeoutMs?: number | undefined;
  /** An event longer than this fails the stream with `stream_event_too_large`; 32 Mi characters by default. */
  maxEventChars?: number | undefined;
}

/** Where an operation lives, as the generated code knows it. */
export interface Target {
  method: string;
  url: string;
  secured: boolean;
  streams: boolean;
  /** Media type of the body; undefined when the operation takes none, null when fetch is to choose it (multipart). */
  bodyType: string | null | undefined;
  serializeBody: ((body: unknown) => unknown) | undefined;
}

/** How a stream tells its end and its failure apart from its other events. */
export interface StreamRule<Event> {
  /** Without such an event before `[DONE]` the stream counts as cut off. */
  isLast?: ((event: Event) => boolean) | undefined;
  /** Whether an event `{error: …}` is the failure of the whole stream. */
  failsByError?: boolean | undefined;
}

export interface OpenedStream<Event> {
  headers: Readonly<Record<string, string>>;
  events: AsyncGenerator<Event, void, undefined>;
  /** Closes the connection now; the events then end without an error. */
  close(): void;
}

type Members = Readonly<Record<string, unknown>>;

export interface Transport {
  call(target: Target, members: Members, options?: CallOptions): Promise<unknown>;
  /** Resolves when the server has accepted the call; a refusal rejects with its typed error. */
  openStream<Event>(
    target: Target,
    members: Members,
    options?: StreamCallOptions,
    rule?: StreamRule<Event>,
    lifeline?: Lifeline,
  ): Promise<OpenedStream<Event>>;
}

interface TransportOptions extends ConnectionOptions {
  buildUrl: (parts: { url: string; path: Members; query: Members }) => string;
  fail: (failure: Failure) => ClientError;
}

export function createTransport(settings: TransportOptions): Transport {
  const { fail } = settings;
  // Looked up at each call, so that a fetch that is replaced later (by instrumentation, say) is the one used.
  const send: typeof globalThis.fetch = settings.fetch ?? ((input, init) => globalThis.fetch(input, init));
  const timeoutMs = settings.timeoutMs ?? 300_000;
  const idleTimeoutMs = settings.idleTimeoutMs ?? 120_000;

  /** Everything that can fail by the caller's mistake, before anything is sent; such errors are thrown as they are. */
  async function prepare(
    target: Target,
    members: Members,
    options: CallOptions,
  ): Promise<{ url: string; init: RequestInit }> {
    const { path, rest } = splitMembers(target.url, members);
    const takesBody = target.bodyType !== undefined;
    const url = settings.buildUrl({
      url: target.url,
      path,
      query: { ...(takesBody ? {} : rest), ...options.query },
    });
    const headers = new Headers();
    if (target.streams) headers.set('accept', 'text/event-stream');
    if (target.bodyType) headers.set('content-type', target.bodyType);
    for (const [name, value] of [
      ...Object.entries(settings.headers ?? {}),
      ...Object.entries(options.headers ?? {}),
    ]) {
      if (value !== undefined) headers.set(name, value);
    }
    if (target.secured && !headers.has('authorization')) {
      const token = await readToken(settings.token);
      if (token !== '') headers.set('authorization', `Bearer ${token}`);
    }
    // Makes the call safe to send again, by whoever sits between the two sides or by a caller that gives the same key.
    if (target.method === 'POST' && target.secured && !target.streams && !headers.has('idempotency-key')) {
      // Absent from pages that were not loaded over https.
      const key = globalThis.crypto?.randomUUID?.();
      if (key !== undefined) headers.set('idempotency-key', key);
    }
    const body = takesBody ? ((target.serializeBody ?? JSON.stringify)(rest) as BodyInit) : null;
    // A redirect is reported, not followed: following one would turn a POST into a GET.
    return { url, init: { method: target.method, headers, body, redirect: 'manual' } };
  }

  async function exchange(url: string, init: RequestInit, lifeline: Lifeline): Promise<Response> {
    const response = await send(url, { ...init, signal: lifeline.signal });
    if (response.ok) return response;
    throw fail(failureOfAnswer(response, await response.text()));
  }

  function translate(
    error: unknown,
    lifeline: Lifeline,
    caller: AbortSignal | undefined,
    response: Response | undefined,
  ): unknown {
    if (lifeline.end === 'aborted') return caller?.reason;
    const status = response?.status;
    const requestId = response?.headers.get('x-request-id') ?? undefined;
    if (lifeline.end === 'late' || isFetchTimeout(error)) {
      return fail({
        status,
        requestId,
        code: 'timeout',
        message: 'The server did not answer in time.',
        cause: error,
      });
    }
    if (error instanceof ClientError) return error;
    return response === undefined
      ? fail({
          code: 'connection_failed',
          message: 'The server could not be reached.',
          retryable: true,
          cause: error,
        })
      : fail({
          status,
          requestId,
          code: 'connection_failed',
          message: 'The connection broke in the middle of the answer.',
          cause: error,
        });
  }

  function parse(text: string, response: Response): unknown {
    try {
      return JSON.parse(text);
    } catch (cause) {
      throw fail({
        ...origin(response),
        code: 'invalid_response',
        message: 'The server sent something that is not JSON.',
        cause,
      });
    }
  }

  async function readAnswer(response: Response): Promise<unknown> {
    const mediaType = describeMediaType(response);
    if (response.status === 204) return undefined;
    if (mediaType === 'application/json' || mediaType.endsWith('+json'))
      return parse(await response.text(), response);
    if (/^(audio|image|video)\/|^application\/octet-stream$/.test(mediaType)) return response.blob();
    throw fail({
      ...origin(response),
      code: 'invalid_response',
      message: `The server answered with ${mediaType} where JSON was expected; is the base address right?`,
    });
  }

  return {
    async call(target, members, options = {}) {
      const { url, init } = await prepare(target, members, options);
      const lifeline = createLifeline(options.signal);
      let response: Response | undefined;
      try {
        lifeline.arm(options.timeoutMs ?? timeoutMs);
        response = await exchange(url, init, lifeline);
        const answer = await readAnswer(response);
        lifeline.release();
        return answer;
      } catch (error) {
        lifeline.close();
        throw translate(error, lifeline, options.signal, response);
      }
    },

    async openStream<Event>(
      target: Target,
      members: Members,
      options: StreamCallOptions = {},
      rule: StreamRule<Event> = {},
      lifeline = createLifeline(options.signal),
    ) {
      const { url, init } = await prepare({ ...target, streams: true }, members, options);
      let received: Response | undefined;
      try {
        lifeline.arm(options.timeoutMs ?? timeoutMs);
        const response = await exchange(url, init, lifeline);
        received = response;
        lifeline.disarm();
        if (describeMediaType(response) !== 'text/event-stream') {
          throw fail({
            ...origin(response),
            code: 'invalid_response',
            message: `The server answered with ${describeMediaType(response)} where a stream was expected.`,
          });
        }
        return {
          headers: Object.fromEntries(response.headers),
          events: events(response),
          close: lifeline.close,
        };
      } catch (error) {
        lifeline.close();
        throw translate(error, lifeline, options.signal, received);
      }

      async function* events(response: Response): AsyncGenerator<Event, void, undefined> {
        const reading = {
          lifeline,
          idleTimeoutMs: options.idleTimeoutMs ?? idleTimeoutMs,
          maxEventChars: options.maxEventChars,
          fail,
        };
        let complete = rule.isLast === undefined;
        try {
          for await (const data of readEvents(response, reading)) {
            const event = parse(data, response) as Event;
            const failure = rule.failsByError ? problemIn(event) : undefined;
            if (failure !== undefined) throw fail({ ...origin(response), ...failure });
            complete ||= rule.isLast?.(event) === true;
            yield event;
          }
        } catch (error) {
          if (lifeline.end === 'closed' && !(error instanceof ClientError)) return;
          throw translate(error, lifeline, options.signal, response);
        } finally {
          // Nothing to close after a whole stream; after an error, or when the reader stops early, it closes the socket.
          lifeline.close();
        }
        if (!complete)
          throw fail({
            ...origin(response),
            code: 'stream_truncated',
            message: 'The stream ended before its answer was complete.',
          });
      }
    },
  };
}

function origin(response: Response): Pick<Failure, 'status' | 'requestId' | 'headers'> {
  const headers = Object.fromEntries(response.headers);
  return { status: response.status, requestId: headers['x-request-id'], headers };
}

/** Takes the members that the path names out of the others. */
function splitMembers(url: string, members: Members): { path: Members; rest: Members } {
  const path: Record<string, unknown> = {};
  const rest: Record<string, unknown> = { ...members };
  for (const [, name = ''] of url.matchAll(/\{([^{}]+)\}/g)) {
    const value = rest[name];
    // An empty or dotted segment would silently name another route.
    if (value === undefined || value === null || value === '' || value === '.' || value === '..') {
      throw new TypeError(`${name} must name something; it is part of the address ${url}.`);
    }
    path[name] = value;
    delete rest[name];
  }
  return { path, rest };
}

async function readToken(source: ConnectionOptions['token']): Promise<string> {
  // Trimmed, because a credential is often read from a file that ends with a newline.
  const token = (typeof source === 'function' ? await source() : (source ?? '')).trim();
  // Said here without the value: the error of Headers would quote it.
  if (!/^[\x21-\x7e]*$/.test(token))
    throw new TypeError('The token has characters that a header cannot carry.');
  return token;
}

// Node's fetch gives up by itself after five minutes without headers or without a byte.
function isFetchTimeout(error: unknown): boolean {
  const code = error instanceof Error ? (error.cause as { code?: unknown } | undefined)?.code : undefined;
  return code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT';
}
