// One HTTP exchange of a client: request, deadline, answer or events, and the translation of each failure into the client's
// error class. Nothing is ever sent twice: a retry is the caller's decision.

import { type Fail, callError, originOf, parseJson, readAnswer } from './answer.ts';
import type { CallOptions, Members, StreamCallOptions, Target } from './call-options.ts';
import { ClientError, describeMediaType, failureOfAnswer, problemIn } from './client-error.ts';
import { type Lifeline, createLifeline } from './lifeline.ts';
import { type RequestSettings, buildRequest } from './request.ts';
import { readEvents } from './stream.ts';

/** Which events of a stream are its end and its failure. */
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

interface TransportOptions extends RequestSettings {
  fail: Fail;
}

type Exchange = (url: string, init: RequestInit, lifeline: Lifeline) => Promise<Response>;

export function createTransport(settings: TransportOptions): Transport {
  const { fail } = settings;
  const timeoutMs = settings.timeoutMs ?? 300_000;
  const idleTimeoutMs = settings.idleTimeoutMs ?? 120_000;
  const exchange = createExchange(settings);

  return {
    async call(target, members, options = {}) {
      const { url, init } = await buildRequest(settings, target, members, options);
      const lifeline = createLifeline(options.signal);
      let response: Response | undefined;
      try {
        lifeline.arm(options.timeoutMs ?? timeoutMs);
        response = await exchange(url, init, lifeline);
        const answer = await readAnswer(response, fail);
        lifeline.release();
        return answer;
      } catch (error) {
        lifeline.close();
        throw callError(error, { lifeline, caller: options.signal, response, fail });
      }
    },

    async openStream<Event>(
      target: Target,
      members: Members,
      options: StreamCallOptions = {},
      rule: StreamRule<Event> = {},
      lifeline = createLifeline(options.signal),
    ) {
      const { url, init } = await buildRequest(settings, { ...target, streams: true }, members, options);
      const reading = { ...options, idleTimeoutMs: options.idleTimeoutMs ?? idleTimeoutMs, lifeline, fail };
      let response: Response | undefined;
      try {
        lifeline.arm(options.timeoutMs ?? timeoutMs);
        response = await exchange(url, init, lifeline);
        lifeline.disarm();
        requireEvents(response, fail);
        return {
          headers: Object.fromEntries(response.headers),
          events: streamEvents(response, rule, reading),
          close: lifeline.close,
        };
      } catch (error) {
        lifeline.close();
        throw callError(error, { lifeline, caller: options.signal, response, fail });
      }
    },
  };
}

/** Sends a request; rejects with the error of an answer whose status is none of success. */
function createExchange({ fetch, fail }: TransportOptions): Exchange {
  // Looked up at each call, so that a fetch that is replaced later (by instrumentation, say) is the one used.
  const send: typeof globalThis.fetch = fetch ?? ((input, init) => globalThis.fetch(input, init));
  return async (url, init, lifeline) => {
    const response = await send(url, { ...init, signal: lifeline.signal });
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

interface Reading {
  lifeline: Lifeline;
  idleTimeoutMs: number;
  maxEventChars?: number | undefined;
  /** The caller's. */
  signal?: AbortSignal | undefined;
  fail: Fail;
}

/** Closes the connection after an error, and when the reader stops before the end. */
async function* streamEvents<Event>(
  response: Response,
  { isLast, failsByError }: StreamRule<Event>,
  reading: Reading,
): AsyncGenerator<Event, void, undefined> {
  const { lifeline, signal, fail } = reading;
  let isComplete = isLast === undefined;
  try {
    for await (const data of readEvents(response, reading)) {
      const event = parseJson(data, response, fail) as Event;
      const failure = failsByError ? problemIn(event) : undefined;
      if (failure !== undefined) throw fail({ ...originOf(response), ...failure });
      isComplete ||= isLast?.(event) === true;
      yield event;
    }
  } catch (error) {
    if (lifeline.end === 'closed' && !(error instanceof ClientError)) return;
    throw callError(error, { lifeline, caller: signal, response, fail });
  } finally {
    // After a whole stream the lifeline is released, and this does nothing.
    lifeline.close();
  }
  if (!isComplete)
    throw fail({
      ...originOf(response),
      code: 'stream_truncated',
      message: 'The stream ended before its answer was complete.',
    });
}
