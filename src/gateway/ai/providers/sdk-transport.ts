// The network of a provider package: its `fetch` sends through upstream/client.ts, so that deadlines, errors
// and the rule for a truncated stream apply to every provider, and the package never gets a credential. The
// package gets only successful answers, and only well-formed events of a stream.
import { AsyncLocalStorage } from 'node:async_hooks';
import { ReadableStream } from 'node:stream/web';
import { setImmediate } from 'node:timers/promises';
import { nextTurn } from '../../../kernel/async.ts';
import { Problem } from '../../../kernel/problem.ts';
import { maxAnswerBytes, maxEventBytesFor, type UpstreamAnswer } from '../upstream/client.ts';
import { readConverseFrames } from '../upstream/aws-event-stream.ts';
import { readAll } from '../upstream/response-body.ts';
import { redactNestedErrorEdits } from '../upstream/error-text.ts';
import { completesAnswer, type EndRule, findError, readProviderEvents } from '../upstream/events.ts';
import { applyEdits, type Member, topLevelMembers } from '../upstream/json-members.ts';
import type { ModelAccess, SdkTransport, TransportCall } from './adapter/model-access.ts';
import type { SdkFormat } from './adapter/provider-adapter.ts';
import { upstreamFailed } from '../hub/problems.ts';

const largeBodyLength = 256 * 1024;

/**
 * A transport for one SDK model. The model serves many calls, so each call is found
 * by its asynchronous context.
 */
export function createSdkTransport(): SdkTransport {
  const calls = new AsyncLocalStorage<TransportCall>();
  const currentCall = (): TransportCall => {
    const call = calls.getStore();
    if (call === undefined) throw new Error('A provider package sent a request outside of a call.');
    return call;
  };
  return {
    deferBody(body) {
      currentCall().deferredBody = body;
      return { toJSON: () => null };
    },
    async fetch(url, init) {
      const call = currentCall();
      // Some packages download files that a prompt names by URL. Sent from here, such a request would carry
      // the provider's credentials to another server.
      if (!(url as string).startsWith(`${call.access.baseUrl}/`)) throw fileByUrl();
      call.wasSent = true;
      const { deferredBody } = call;
      return send(call, {
        url: url as string,
        body: deferredBody === undefined ? (init?.body as string) : await serializeInTurns(deferredBody),
        headers: new Headers(init?.headers),
      });
    },
    run: (call, work) => calls.run(call, work),
  };
}

async function send(
  call: TransportCall,
  { url, body, headers }: { url: string; body: string; headers: Headers },
): Promise<Response> {
  const { model, format, access, streams, signal } = call;
  const { upstream, apiKey, authorizer, idleMs, firstMs } = access;
  const requestsUsage = streams && format.requestsUsage?.(model) === true;
  const answer = await upstream.send({
    url,
    body: await withApprovedLimit(body, format, access),
    bodyWithoutUsage: requestsUsage ? () => withoutStreamOptions(body) : undefined,
    headers: {
      ...formatHeaders(format, headers),
      ...(streams && format.streamType !== undefined ? { accept: format.streamType } : {}),
    },
    streams,
    signal,
    apiKey,
    keyHeader: format.keyHeader,
    authorizer,
    idleMs,
    firstMs,
  });
  return streams ? streamResponse(answer, call) : toJsonResponse(answer);
}

/**
 * The request as JSON. Yields to the event loop between the items of its lists: in one turn, even 10 MiB of
 * line breaks would block it for 35 ms.
 */
export async function serializeInTurns(body: Record<string, unknown>): Promise<string> {
  const members: string[] = [];
  let pendingLength = 0;
  const serialize = async (value: unknown): Promise<string | undefined> => {
    if (pendingLength > largeBodyLength) {
      await nextTurn();
      pendingLength = 0;
    }
    const text = JSON.stringify(value) as string | undefined;
    pendingLength += text?.length ?? 0;
    return text;
  };
  for (const [name, value] of Object.entries(body)) {
    let text: string | undefined;
    if (Array.isArray(value)) {
      const items: string[] = [];
      for (const item of value) items.push((await serialize(item)) ?? 'null');
      text = `[${items.join(',')}]`;
    } else text = await serialize(value);
    if (text !== undefined) members.push(`${JSON.stringify(name)}:${text}`);
  }
  return `{${members.join(',')}}`;
}

function formatHeaders({ formatHeaders: names = [] }: SdkFormat, headers: Headers): Record<string, string> {
  return Object.fromEntries(
    names.flatMap((name) => {
      const text = headers.get(name);
      return text === null ? [] : [[name, text]];
    }),
  );
}

/**
 * The request with an output limit that the reservation covers. Some packages raise max_tokens for reasoning,
 * and the call could then cost more than was reserved. For a large body, which the package has just
 * serialized, encoding and scanning run in separate turns of the event loop, since each takes up to 30 ms for
 * 10 MiB of text.
 */
async function withApprovedLimit(
  body: string,
  { raisedLimit }: SdkFormat,
  { approveOutputLimit }: ModelAccess,
): Promise<string | Uint8Array> {
  const isLarge = body.length > largeBodyLength;
  const needsApproval = raisedLimit !== undefined && approveOutputLimit !== undefined;
  if (!isLarge && !needsApproval) return body;
  if (isLarge) await nextTurn();
  const bytes = Buffer.from(body, 'utf8');
  if (!needsApproval) return bytes;
  if (isLarge) await nextTurn();
  const members = topLevelMembers(bytes)?.members;
  if (members === undefined) throw tooDeep();
  const member = findMember(bytes, members, raisedLimit);
  if (member === undefined) return bytes;
  const limit = Number(bytes.toString('latin1', member.start, member.end));
  const approvedLimit = await approveOutputLimit(limit);
  return approvedLimit === limit ? bytes : applyEdits(bytes, [{ ...member, text: String(approvedLimit) }]);
}

/** The member at the path, such as `inferenceConfig.maxTokens`. */
function findMember(bytes: Buffer, members: readonly Member[], path: string): Member | undefined {
  const [firstName, ...innerNames] = path.split('.');
  const member = members.find(({ name }) => name === firstName);
  if (member === undefined || innerNames.length === 0) return member;
  const innerMembers = topLevelMembers(bytes, member.start, member.end)?.members ?? [];
  return findMember(bytes, innerMembers, innerNames.join('.'));
}

// Packages parse the arguments of earlier tool calls and send them as JSON values, so the provider's request
// can be nested deeper than the caller's body.
function tooDeep(): Problem {
  return new Problem(
    'impossible',
    'unsupported_by_model',
    'The request has too many nested values for this model; shorten the arguments of earlier tool calls.',
  );
}

function fileByUrl(): Problem {
  return new Problem(
    'impossible',
    'unsupported_by_model',
    'The model does not accept URLs of files in tool results; send the content of the files.',
  );
}

/** The request without the gateway's request for usage. */
function withoutStreamOptions(body: string): string {
  const { stream_options: _streamOptions, ...request } = JSON.parse(body) as Record<string, unknown>;
  return JSON.stringify(request);
}

async function toJsonResponse(answer: UpstreamAnswer): Promise<Response> {
  const bytes = await readAll(answer.body, maxAnswerBytes);
  const members = topLevelMembers(bytes);
  if (members === undefined)
    throw upstreamFailed(
      'The model provider answered with something that is not a JSON object, or that has too many parts.',
    );
  const error = findError(bytes, members);
  if (error !== undefined) throw error;
  return new Response(new Uint8Array(bytes), { headers: { 'content-type': 'application/json' } });
}

function streamResponse(answer: UpstreamAnswer, call: TransportCall): Response {
  const { streamType = 'text/event-stream', endRule } = call.format;
  if (answer.mediaType !== streamType) {
    answer.abort();
    throw upstreamFailed('The model provider did not answer with a stream.');
  }
  const pieces =
    endRule === 'converse' ? checkFrames(answer, call) : checkEvents(answer, { ...call, endRule });
  return new Response(webStream(pieces) as BodyInit, { headers: { 'content-type': streamType } });
}

/** Yields the bytes of each group of frames after checking them. */
async function* checkFrames(
  { body }: UpstreamAnswer,
  { model, access: { onAnswerComplete } }: TransportCall,
): AsyncGenerator<Uint8Array> {
  for await (const group of readConverseFrames(body, { maxFrameBytes: maxEventBytesFor('done', model) })) {
    if (onAnswerComplete !== undefined && group.some(({ completesAnswer: isComplete }) => isComplete))
      onAnswerComplete();
    yield new Uint8Array(Buffer.concat(group.map(({ bytes }) => bytes)));
  }
}

/** Yields the bytes of each group of events after checking them; error texts in them are redacted. */
async function* checkEvents(
  { body, redact }: UpstreamAnswer,
  { model, endRule, access: { onAnswerComplete } }: TransportCall & { endRule: EndRule },
): AsyncGenerator<Uint8Array> {
  for await (const group of readProviderEvents(body, {
    maxEventBytes: maxEventBytesFor(endRule, model),
    endRule,
  })) {
    if (onAnswerComplete !== undefined && group.some((event) => completesAnswer(event, endRule)))
      onAnswerComplete();
    const pieces = group.map(({ bytes, data, hasFailed }) =>
      hasFailed === true && data.kind === 'object'
        ? applyEdits(bytes, redactNestedErrorEdits(bytes, data.members, redact))
        : bytes,
    );
    yield new Uint8Array(Buffer.concat(pieces));
  }
}

function webStream(pieces: AsyncGenerator<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const next = await pieces.next().catch(rethrowNextTurn);
        if (next.done === true) controller.close();
        else controller.enqueue(next.value);
      },
      async cancel() {
        await pieces.return(undefined);
      },
    },
    { highWaterMark: 0 },
  );
}

/**
 * A web stream that fails discards its queue. Waiting one turn lets the reader take
 * the pieces before the failure.
 */
async function rethrowNextTurn(error: unknown): Promise<never> {
  await setImmediate();
  throw error;
}
