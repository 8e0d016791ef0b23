// Handlers of background responses: start, read, join and cancel one.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { ResponseAnswer, ResponseEvent } from '../../../contract/gateway/types.gen.ts';
import { pause } from '../../../kernel/async.ts';
import type { Call, Reply, SseEvent } from '../../../kernel/contract/operation.ts';
import type { JsonRecord } from '../../../kernel/json-value.ts';
import { type Problem, invalidMember } from '../../../kernel/problem.ts';
import type { Identity } from '../../identity.ts';
import { createResponseObject } from '../formats/responses/answer.ts';
import { type StreamReply, startedResponse } from './background.ts';
import {
  planOf,
  type ResponseCall,
  type ResponseReply,
  responses,
  type ResponsesContext,
  withBody,
} from './calls.ts';
import { ownerOf } from '../calls/owner.ts';
import { streamNotAvailable } from './runs/event-log.ts';
import type { ResponseAddress } from './stored/store.ts';
import { isRunning } from './stored/stored-responses.ts';
import { answerTranslated } from '../handlers/translated-format.ts';
import { unixSeconds } from '../../../kernel/clock.ts';
import { plannedFormat, present } from './planned-format.ts';

export async function createInBackground(
  context: ResponsesContext,
  call: ResponseCall,
): Promise<ResponseReply> {
  const { background, storedResponses, clock } = context;
  const { body, remember, signal, log } = call;
  if (body.store === false) throw backgroundNeedsStore();
  const earlierResponseId = startedResponse(remember);
  if (earlierResponseId !== undefined)
    return readResponse(context, call, {
      responseId: earlierResponseId,
      afterSequence: body.stream === true ? -1 : undefined,
    });
  const plan = await planOf(context, call);
  const streamBody = { ...plan.body, stream: true };
  const streamRequest = { body: streamBody, rawBody: Buffer.from(JSON.stringify(streamBody)) };
  const { format } = plannedFormat(responses, plan, { storedResponses, log });
  const nowSeconds = () => unixSeconds(clock.now());
  const { response, events } = await background.start({
    plan,
    response: present(
      createResponseObject({ modelId: body.model, responseId: plan.responseId, nowSeconds, body }),
      plan,
    ) as JsonRecord,
    remember,
    signal,
    answer: (detached, beforeSend) =>
      answerTranslated(context, format, {
        call: withBody(call, streamRequest, detached),
        beforeSend,
      }) as Promise<StreamReply>,
  });
  if (body.stream === true) return { status: 200, events: events() };
  return { status: 200, body: response as ResponseAnswer };
}

interface ResponseRead {
  responseId: string;
  /** Reads the events after this sequence number; undefined reads the response itself. */
  afterSequence: number | undefined;
}

/** Throws a 404 for an unknown response, and a 409 when its events are not in this process's memory. */
export async function readResponse(
  { storedResponses, background }: ResponsesContext,
  { identity }: { identity: Identity },
  { responseId, afterSequence }: ResponseRead,
): Promise<
  { status: 200; body: ResponseAnswer } | { status: 200; events: AsyncIterable<SseEvent<ResponseEvent>> }
> {
  const response = await storedResponses.find({ responseId, owner: ownerOf(identity) });
  if (afterSequence === undefined) return { status: 200, body: response as ResponseAnswer };
  const events = background.events(responseId, afterSequence);
  if (events === undefined) throw streamNotAvailable();
  return { status: 200, events };
}

const cancelWaitMs = 5_000;
const cancelPollMs = 250;

export async function cancelResponse(
  { storedResponses, background, clock }: ResponsesContext,
  { path, identity, signal }: Call<Operations['ai.cancelResponse'], Identity>,
): Promise<Reply<Operations['ai.cancelResponse']>> {
  const address = { responseId: path.response_id, owner: ownerOf(identity) };
  const response = await storedResponses.find(address);
  if (response['background'] !== true) throw notInBackground();
  if (isRunning(response) && !(await background.cancel(address.responseId))) {
    // The response runs in another gateway, which polls the database for cancellations every second.
    await storedResponses.requestCancel(address);
    await waitForEnd({ storedResponses, clock }, address, signal);
  }
  return { status: 200, body: (await storedResponses.find(address)) as ResponseAnswer };
}

/** Returns when the response has ended, after `cancelWaitMs`, or when the client disconnects. */
async function waitForEnd(
  { storedResponses, clock }: Pick<ResponsesContext, 'storedResponses' | 'clock'>,
  address: ResponseAddress,
  signal: AbortSignal,
): Promise<void> {
  const deadlineMs = clock.monotonicMs() + cancelWaitMs;
  while (clock.monotonicMs() < deadlineMs && !signal.aborted) {
    await pause(cancelPollMs, { clock, signal });
    if (!isRunning(await storedResponses.find(address))) return;
  }
}

function backgroundNeedsStore(): Problem {
  return invalidMember('store', 'must not be false with background: true');
}

function notInBackground(): Problem {
  return invalidMember('response_id', 'must be a response with background: true');
}
