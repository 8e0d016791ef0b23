// One HTTP exchange of a client: request, deadline, answer or events, and the conversion of each
// failure into the client's error class. Nothing is sent twice unless the caller asks for retries.

import { type Fail, type FailedCall, callError, originOf, parseJson, readAnswer } from './answer.ts';
import type { CallOptions, Members, StreamCallOptions, Target } from './call-options.ts';
import { ClientError, describeMediaType, failureOfAnswer, problemIn } from './client-error.ts';
import { type AbortScope, createAbortScope } from './abort-scope.ts';
import { type PendingCall, createPendingCall, describeResponse } from './pending-call.ts';
import { type RequestSettings, buildRequest } from './request.ts';
import { withRetries } from './retry.ts';
import { readEvents } from './stream.ts';

/** How a stream ends and how it reports its failure. */
export interface StreamRule<Event> {
  /** Whether the event is the last one; a stream that ends without such an event counts as truncated. */
  isLast?: ((event: Event) => boolean) | undefined;
  /** Whether an event `{error: …}` is the failure of the whole stream. */
  failsByError?: boolean | undefined;
  /** Whether the stream ends with `[DONE]`; true by default. */
  hasEndMark?: boolean | undefined;
}

export interface OpenedStream<Event> extends ReturnType<typeof describeResponse> {
  events: AsyncGenerator<Event, void, undefined>;
  /** Closes the connection now; the events then end without an error. */
  close(): void;
}

export interface Transport {
  call(target: Target, members: Members, options?: CallOptions): PendingCall<unknown>;
  /** Resolves when the server has accepted the call; a refusal rejects with its typed error. */
  openStream<Event>(
    target: Target,
    members: Members,
    options?: StreamCallOptions,
    rule?: StreamRule<Event>,
    scope?: AbortScope,
  ): Promise<OpenedStream<Event>>;
}

interface TransportOptions extends RequestSettings {
  fail: Fail;
  /** The operations that honour an Idempotency-Key, as `POST /v1/ai/text`. */
  keyedOperations: ReadonlySet<string>;
}

type SendRequest = (url: string, init: RequestInit, scope: AbortScope) => Promise<Response>;

export function createTransport(settings: TransportOptions): Transport {
  const { fail } = settings;
  const timeoutMs = settings.timeoutMs ?? 300_000;
  const idleTimeoutMs = settings.idleTimeoutMs ?? 120_000;
  const sendRequest = createSender(settings);

  async function callWithRetries(target: Target, members: Members, options: CallOptions) {
    const { signal } = options;
    const limitMs = options.timeoutMs ?? timeoutMs;
    const startedMs = performance.now();
    const scope = createAbortScope(signal);
    scope.arm(limitMs);
    // The request is built once, so that all attempts carry one Idempotency-Key.
    const request = await buildWithin(buildRequest(settings, target, members, options), {
      scope,
      caller: signal,
      fail,
    });
    scope.release();
    return withRetries((leftMs) => callOnce({ ...request, signal, limitMs: leftMs }, sendRequest, fail), {
      maxRetries: options.maxRetries ?? settings.maxRetries ?? 0,
      limitMs: limitMs === 0 ? 0 : Math.max(1, limitMs - (performance.now() - startedMs)),
      signal,
      isRepeatable: isRepeatable(target, request.init, settings.keyedOperations),
    });
  }

  return {
    call: (target, members, options = {}) => createPendingCall(callWithRetries(target, members, options)),

    async openStream<Event>(
      target: Target,
      members: Members,
      options: StreamCallOptions = {},
      rule: StreamRule<Event> = {},
      scope = createAbortScope(options.signal),
    ) {
      scope.arm(options.timeoutMs ?? timeoutMs);
      const { url, init } = await buildWithin(
        buildRequest(settings, { ...target, streams: true }, members, options),
        { scope, caller: options.signal, fail },
      );
      const readOptions = { ...options, idleTimeoutMs: options.idleTimeoutMs ?? idleTimeoutMs, scope, fail };
      let response: Response | undefined;
      try {
        response = await sendRequest(url, init, scope);
        scope.disarm();
        requireEvents(response, fail);
        return {
          ...describeResponse(response),
          events: streamEvents(response, rule, readOptions),
          close: scope.close,
        };
      } catch (error) {
        scope.close();
        throw callError(error, { scope, caller: options.signal, response, fail });
      }
    },
  };
}

/**
 * The request, unless the scope ends first: a function that returns the token may take any time. An error of
 * the request itself is thrown unchanged.
 */
async function buildWithin<Request>(
  request: Promise<Request>,
  call: Omit<FailedCall, 'response'>,
): Promise<Request> {
  const { signal } = call.scope;
  const end = new Promise<never>((_resolve, reject) => {
    const giveUp = () => reject(signal.reason as Error);
    if (signal.aborted) giveUp();
    else signal.addEventListener('abort', giveUp, { once: true });
  });
  try {
    return await Promise.race([request, end]);
  } catch (error) {
    const failure = call.scope.end === 'open' ? error : callError(error, { ...call, response: undefined });
    call.scope.close();
    throw failure;
  }
}

interface SingleCall {
  url: string;
  init: RequestInit;
  signal: AbortSignal | undefined;
  limitMs: number;
}

async function callOnce({ url, init, signal, limitMs }: SingleCall, sendRequest: SendRequest, fail: Fail) {
  const scope = createAbortScope(signal);
  let response: Response | undefined;
  try {
    scope.arm(limitMs);
    response = await sendRequest(url, init, scope);
    const data = await readAnswer(response, fail);
    scope.release();
    return { data, ...describeResponse(response) };
  } catch (error) {
    scope.close();
    throw callError(error, { scope, caller: signal, response, fail });
  }
}

/** Whether a request that the server gets twice has the same effect as once. */
function isRepeatable(
  { method, url }: Target,
  { headers }: RequestInit,
  keyedOperations: ReadonlySet<string>,
): boolean {
  if (method !== 'POST' && method !== 'PATCH') return true;
  return keyedOperations.has(`${method} ${url}`) && new Headers(headers).has('idempotency-key');
}

/** Sends a request; rejects for an answer with an error status. */
function createSender({ fetch, fail }: TransportOptions): SendRequest {
  // Each call looks up `fetch`, so that a later replacement (by instrumentation) is used.
  const send: typeof globalThis.fetch = fetch ?? ((input, init) => globalThis.fetch(input, init));
  return async (url, init, scope) => {
    const response = await send(url, { ...init, signal: scope.signal });
    if (response.ok) return response;
    throw fail(failureOfAnswer(response, await response.text()));
  };
}

function requireEvents(response: Response, fail: Fail): void {
  if (describeMediaType(response) === 'text/event-stream') return;
  throw fail({
    ...originOf(response),
    code: 'invalid_response',
    message: `The server answered with ${describeMediaType(response)} where a stream was expected.`,
  });
}

interface ReadingOptions {
  scope: AbortScope;
  idleTimeoutMs: number;
  maxEventChars?: number | undefined;
  /** The caller's signal. */
  signal?: AbortSignal | undefined;
  fail: Fail;
}

/** Closes the connection after an error, and when the reader stops before the end. */
async function* streamEvents<Event>(
  response: Response,
  { isLast, failsByError, hasEndMark = true }: StreamRule<Event>,
  reading: ReadingOptions,
): AsyncGenerator<Event, void, undefined> {
  const { scope, signal, fail } = reading;
  let isComplete = isLast === undefined;
  try {
    for await (const data of readEvents(response, { ...reading, hasEndMark })) {
      const event = parseJson(data, response, fail) as Event;
      const failure = failsByError ? problemIn(event) : undefined;
      if (failure !== undefined) throw fail({ ...originOf(response), ...failure });
      isComplete ||= isLast?.(event) === true;
      yield event;
    }
  } catch (error) {
    if (scope.end === 'closed' && !(error instanceof ClientError)) return;
    throw callError(error, { scope, caller: signal, response, fail });
  } finally {
    // Has no effect after a complete stream, whose scope is already released.
    scope.close();
  }
  if (!isComplete)
    throw fail({
      ...originOf(response),
      code: 'stream_truncated',
      message: 'The stream ended before its answer was complete.',
    });
}
