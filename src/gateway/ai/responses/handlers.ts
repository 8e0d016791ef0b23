// Handlers of OpenAI's responses format: create responses, and read, cancel and delete stored responses.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { ResponseAnswer, ResponseInputItem } from '../../../contract/gateway/types.gen.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import { id } from '../../../kernel/ids.ts';
import type { JsonRecord } from '../../../kernel/json-value.ts';
import { invalidMember, type Problem } from '../../../kernel/problem.ts';
import type { Identity } from '../../identity.ts';
import type { AiHandlers } from '../calls/context.ts';
import { cancelResponse, createInBackground, readResponse } from './background-handlers.ts';
import { ownerOf } from '../calls/owner.ts';
import { viewerOf } from '../catalog/catalog.ts';
import { createResponseObject } from '../formats/responses/answer.ts';
import { type JoinableReply, joinStream } from './joined-streams.ts';
import { sizeOf } from '../metering/measure.ts';
import { tokensOfRequest } from '../metering/token-count.ts';
import type { DetachedCall } from './background.ts';
import {
  planOf,
  type ResponseCall,
  type ResponseReply,
  responses,
  type ResponsesContext,
  withBody,
} from './calls.ts';
import { compactResponse } from './compaction.ts';
import { needsPlan, planResponse } from './plan.ts';
import { pageOfItems } from './stored/items.ts';
import { answerTranslated } from '../handlers/translated-format.ts';
import { unsupportedMember } from '../hub/problems.ts';
import { unixSeconds } from '../../../kernel/clock.ts';
import { plannedFormat } from './planned-format.ts';

type TokensOperation = Operations['ai.getResponseTokens'];
type TokensCall = Call<TokensOperation, Identity>;

type ResponseHandlers = Pick<
  AiHandlers,
  | 'ai.createResponse'
  | 'ai.compactResponse'
  | 'ai.getResponseTokens'
  | 'ai.getResponse'
  | 'ai.cancelResponse'
  | 'ai.removeResponse'
  | 'ai.listResponseInputItems'
>;

export function responseHandlers(context: ResponsesContext): ResponseHandlers {
  const { storedResponses } = context;
  return {
    'ai.createResponse': (call) => createResponse(context, call),
    async 'ai.compactResponse'(call) {
      refuseConversation(call.body);
      return compactResponse(context, call, responses);
    },
    'ai.getResponseTokens': (call) => estimateTokens(context, call),
    async 'ai.getResponse'(call) {
      const { path, query } = call;
      const afterSequence =
        query.stream === true ? (query.starting_after ?? lastEventId(call) ?? -1) : undefined;
      return readResponse(context, call, { responseId: path.response_id, afterSequence });
    },
    'ai.cancelResponse': (call) => cancelResponse(context, call),
    'ai.removeResponse': async ({ path, identity }) => {
      await storedResponses.remove({ responseId: path.response_id, owner: ownerOf(identity) });
      await context.background.cancel(path.response_id);
      return { status: 200, body: { id: path.response_id, object: 'response', deleted: true } };
    },
    'ai.listResponseInputItems': async ({ path, query, identity }) => {
      const items = await storedResponses.inputItems({
        responseId: path.response_id,
        owner: ownerOf(identity),
      });
      const page = pageOfItems(items, query);
      if (page === undefined) throw unknownItem();
      return { status: 200, body: { ...page, data: page.data as ResponseInputItem[] } };
    },
  };
}

/**
 * The estimate that the gateway charges when a provider reports no usage. Throws like `ai.createResponse`.
 */
async function estimateTokens(
  { catalog, storedResponses }: ResponsesContext,
  call: TokensCall,
): Promise<Reply<TokensOperation>> {
  refuseConversation(call.body);
  const model = catalog.callableModel(viewerOf(call.identity), call.body.model);
  const { body } = needsPlan(call.body) ? await planResponse(storedResponses, call, model) : call;
  const tokens = tokensOfRequest(sizeOf(body, 'responses'));
  return { status: 200, body: { object: 'response.input_tokens', input_tokens: tokens } };
}

async function createResponse(context: ResponsesContext, call: ResponseCall): Promise<ResponseReply> {
  const { body, remember } = call;
  refuseConversation(body);
  if (body.background === true) return createInBackground(context, call);
  if (body.stream !== true || call.headers['idempotency-key'] === undefined)
    return answerCall(context, call, {});
  const { runs, storedResponses, background, clock, rejoinMs: graceMs } = context;
  const nowSeconds = () => unixSeconds(clock.now());
  return joinStream({
    runs,
    storedResponses,
    background,
    log: call.log,
    owner: ownerOf(call.identity),
    response: createResponseObject({
      modelId: body.model,
      responseId: id('resp'),
      nowSeconds,
      body,
    }) as JsonRecord,
    remember,
    signal: call.signal,
    graceMs,
    afterSequence: lastEventId(call) ?? -1,
    answer: (detached, beforeSend) =>
      answerCall(context, call, { detached, beforeSend }) as Promise<JoinableReply>,
  }) as Promise<ResponseReply>;
}

interface AnswerOptions {
  detached?: DetachedCall;
  beforeSend?: () => Promise<void>;
}

async function answerCall(
  context: ResponsesContext,
  call: ResponseCall,
  { detached, beforeSend }: AnswerOptions,
): Promise<ResponseReply> {
  const { body, rawBody } = call;
  if (!needsPlan(body))
    return answerTranslated(context, responses, {
      call: detached === undefined ? call : withBody(call, { body, rawBody }, detached),
      beforeSend,
    });
  const plan = await planOf(context, call);
  const { format, saveWhole } = plannedFormat(responses, plan, {
    storedResponses: context.storedResponses,
    log: call.log,
  });
  const reply = await answerTranslated(context, format, { call: withBody(call, plan, detached), beforeSend });
  const result = await saveWhole();
  if (typeof result === 'string') return reply;
  return { status: 200, body: result.unsaved as ResponseAnswer, headers: reply.headers };
}

/** The header by which a client that rejoins a stream names the last event that it has received. */
function lastEventId({ headers }: { headers: { 'last-event-id'?: string | undefined } }): number | undefined {
  const value = headers['last-event-id'];
  return value === undefined ? undefined : Number(value);
}

function refuseConversation(body: Readonly<Record<string, unknown>>): void {
  if ((body['conversation'] ?? null) !== null)
    throw unsupportedMember(
      'conversation',
      'Conversations are not stored; continue a stored response with previous_response_id.',
    );
}

function unknownItem(): Problem {
  return invalidMember('after', 'is not an item of this response');
}
