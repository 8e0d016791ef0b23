// Handlers of OpenAI's responses format: create a response, and read those that the gateway stores.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import type {
  ResponseAnswer,
  ResponseEvent,
  ResponseInputItem,
  ResponseRequest,
} from '../../contract/gateway/types.gen.ts';
import type { Call, Reply } from '../../kernel/contract/operation.ts';
import { id } from '../../kernel/ids.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Identity } from '../identity.ts';
import type { AiContext, AiHandlers } from './ai-context.ts';
import { viewerOf } from './catalog/catalog.ts';
import { checkEffort } from './catalog/reasoning.ts';
import * as formats from './formats/passthrough/formats.ts';
import { unpackResponses } from './formats/passthrough/replay.ts';
import { serializeResponse, serializeResponseEvents } from './formats/responses/answer.ts';
import { toModelCall } from './formats/responses/request.ts';
import { sizeOf } from './metering/measure.ts';
import { tokensOfRequest } from './metering/token-count.ts';
import { pageOfItems } from './stored-responses/items.ts';
import { compactResponse } from './response-compaction.ts';
import { type ResponsePlan, formatOf, needsPlan, ownerOf, planResponse } from './response-plan.ts';
import type { StoredResponses } from './stored-responses/stored-responses.ts';
import { answerTranslated, type TranslatedFormat } from './translated-format.ts';

type ResponseCall = Call<Operations['ai.createResponse'], Identity>;
type TokensOperation = Operations['ai.getResponseTokens'];
type TokensCall = Call<TokensOperation, Identity>;
type ResponseReply = Reply<Operations['ai.createResponse']>;

interface ResponsesContext extends AiContext {
  storedResponses: StoredResponses;
}

const responses: TranslatedFormat<ResponseRequest, ResponseAnswer, ResponseEvent> = {
  passthrough: formats.responses,
  effort: (model, body) => checkEffort(model, body.reasoning?.effort, 'reasoning.effort'),
  unpackReplay: unpackResponses,
  toModelCall,
  serializeAnswer: (answer, options) => serializeResponse(answer, { ...options, responseId: id('resp') }),
  serializeStream: (parts, options) => serializeResponseEvents(parts, { ...options, responseId: id('resp') }),
  // Clients of this format read the event's type, or its member `error`.
  errorEvent: ({ error }, count) => ({
    type: 'error',
    code: error.code,
    message: error.message,
    param: error.param,
    error,
    sequence_number: count,
  }),
};

type ResponseHandlers = Pick<
  AiHandlers,
  | 'ai.createResponse'
  | 'ai.compactResponse'
  | 'ai.getResponseTokens'
  | 'ai.getResponse'
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
    'ai.getResponse': async ({ path, identity }) => {
      const response = await storedResponses.find({ responseId: path.response_id, owner: ownerOf(identity) });
      return { status: 200, body: response as ResponseAnswer };
    },
    'ai.removeResponse': async ({ path, identity }) => {
      await storedResponses.remove({ responseId: path.response_id, owner: ownerOf(identity) });
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

/** The gateway's own estimate, as for an answer without usage. Throws as `ai.createResponse` does. */
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
  refuseBackground(call.body);
  refuseConversation(call.body);
  if (!needsPlan(call.body)) return answerTranslated(context, responses, { call });
  const { catalog, storedResponses } = context;
  const [model] = catalog.chain(viewerOf(call.identity), call.body.model);
  if (model === undefined) throw new Error(`The chain of ${call.body.model} is empty.`);
  const plan = await planResponse(storedResponses, call, model);
  return answerPlanned(context, call, plan);
}

async function answerPlanned(
  context: ResponsesContext,
  call: ResponseCall,
  plan: ResponsePlan,
): Promise<ResponseReply> {
  const { format, saveWhole } = formatOf(responses, plan, {
    storedResponses: context.storedResponses,
    log: call.log,
  });
  const reply = await answerTranslated(context, format, { call: withBody(call, plan) });
  const result = await saveWhole();
  if (typeof result === 'string') return reply;
  return { status: 200, body: result.unsaved as ResponseAnswer, headers: reply.headers };
}

/** The call with another body. It is a class with getters, so it cannot be spread. */
function withBody(call: ResponseCall, { body, rawBody }: ResponsePlan) {
  const { operationId, requestId, identity, signal, log, note, timing, remember } = call;
  return { operationId, requestId, identity, signal, log, note, timing, remember, body, rawBody };
}

// A background answer arrives outside of the call, so the gateway could not meter it.
function refuseBackground({ background }: ResponseRequest): void {
  if (background === true)
    throw unsupported('background', 'Answers in the background are not supported; leave background out.');
}

function refuseConversation(body: Readonly<Record<string, unknown>>): void {
  if ((body['conversation'] ?? null) !== null)
    throw unsupported(
      'conversation',
      'Conversations are not stored; continue a stored response with previous_response_id.',
    );
}

function unsupported(param: string, message: string): Problem {
  return new Problem('impossible', 'unsupported_by_model', message, { param });
}

function unknownItem(): Problem {
  const message = 'is not an item of this response';
  return new Problem('bad_request', 'invalid_request', `\`after\` ${message}.`, {
    param: 'after',
    details: [{ path: 'after', message }],
  });
}
