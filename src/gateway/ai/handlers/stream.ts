// Handlers of the AI SDK's language-model format: an answer streamed in parts, or whole.
import type { StreamRequest } from '../../../contract/gateway/types.gen.ts';
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { Reply } from '../../../kernel/contract/operation.ts';
import { id } from '../../../kernel/ids.ts';
import { Problem } from '../../../kernel/problem.ts';
import {
  type AiContext,
  type AiHandlers,
  asEvents,
  creditsHeader,
  firstByteDeadlineMs,
  openBill,
  type PaidRequest,
  settleAndRender,
  streamErrorBody,
} from '../calls/context.ts';
import type { Bill } from '../billing/bill.ts';
import {
  attemptHeaders,
  callModel,
  type ModelAttempt,
  type ModelRequest,
  type ModelResult,
} from '../calls/call.ts';
import { type CatalogModel, viewerOf } from '../catalog/catalog.ts';
import { effortOrDefault } from '../catalog/reasoning.ts';
import {
  checkAnswerFormat,
  checkLocalInput,
  checkPromptInputs,
} from '../formats/translation/input-checks.ts';
import * as specification from '../formats/language-model.ts';
import { checkDefinitions } from '../formats/tool-definitions.ts';
import { checkToolValues } from '../formats/translation/tool-values.ts';
import type { ModelCall } from '../hub/language-model.ts';
import { type Demand, requirePrice } from '../metering/bound.ts';
import { usesHourCache, sizeOf } from '../metering/measure.ts';
import { generate, streamParts } from '../calls/model-calls.ts';
import { sessionHash } from '../upstream/session-hash.ts';
import { checkProviderTools } from '../upstream/tool-guard.ts';

export interface StreamCall extends PaidRequest {
  body: StreamRequest;
  headers: Operations['ai.streamText']['headers'];
}

type StreamReply = Reply<Operations['ai.createLanguageModelAnswer']>;

export function streamHandlers(
  context: AiContext,
): Pick<AiHandlers, 'ai.streamText' | 'ai.createLanguageModelAnswer'> {
  return {
    'ai.streamText': (call) => streamAnswer(context, call, 'stream'),

    'ai.createLanguageModelAnswer': (call): Promise<StreamReply> =>
      call.headers['ai-language-model-streaming'] === 'false'
        ? answerWhole(context, call, 'language-model')
        : streamAnswer(context, call, 'language-model'),
  };
}

async function streamAnswer(context: AiContext, call: StreamCall, action: string) {
  const result = await callInFormat(context, call, {
    action,
    streams: true,
    send: (attempt, { hub, bill }) =>
      specification.serializeStream(streamParts(context, attempt, { hub, bill }), {
        ...serializeOptions(context, call, attempt.model),
        renderError: (error) => streamErrorBody(context, call, { error, attempt })?.error,
      }),
  });
  return {
    status: 200 as const,
    events: asEvents(result.answer),
    end: '[DONE]',
    headers: attemptHeaders(result),
  };
}

async function answerWhole(context: AiContext, call: StreamCall, action: string) {
  const result = await callInFormat(context, call, {
    action,
    streams: false,
    send: (attempt, { hub, bill }) => generate(context, attempt, { hub, bill }),
  });
  const options = serializeOptions(context, call, result.model);
  const { body, headers } = await settleAndRender(call, result.bill, (credits) => ({
    body: specification.serializeAnswer(
      {
        ...result.answer,
        providerMetadata: { ...result.answer.providerMetadata, townhall: { credits } },
      },
      options,
    ),
    headers: { ...attemptHeaders(result), ...creditsHeader(credits) },
  }));
  return { status: 200 as const, body, headers };
}

interface FormatCall<T> {
  action: string;
  streams: boolean;
  send: (attempt: ModelAttempt, call: { hub: ModelCall; bill: Bill }) => Promise<T>;
}

/** Calls the model; common to streamed and whole answers. */
export async function callInFormat<T>(
  context: AiContext,
  call: StreamCall,
  { action, streams, send }: FormatCall<T>,
): Promise<ModelResult<T> & { bill: Bill }> {
  const { body, headers, identity, signal } = call;
  checkDefinitions(body);
  const modelId = requireModelId(body, headers['ai-language-model-id']);
  const chain = context.catalog.chain(viewerOf(identity), modelId, 'stream');
  const requestedEffort = specification.requestedEffort(body);
  const effortMember = body.reasoning_effort === undefined ? 'reasoning' : 'reasoning_effort';
  const hub = specification.toModelCall(body, undefined, signal);
  checkToolValues(hub);
  const bill = openBill(context, call, { action, demand: demandOf(body) });
  const request: ModelRequest<T> = {
    chain,
    signal,
    streams,
    session: () => sessionHash(call),
    deadlineMs: firstByteDeadlineMs(context, streams),
    check(model) {
      requirePrice(model, ['input', 'output']);
      checkPromptInputs(model, hub.prompt);
      checkLocalInput(model, body);
      checkAnswerFormat(model, hub.responseFormat, 'responseFormat');
      checkProviderTools(model, body.tools);
    },
    effort: (model) => effortOrDefault(model, requestedEffort, effortMember),
    send: (attempt) => send(attempt, { hub, bill }),
  };
  return { ...(await callModel(request, { ...context, bill })), bill };
}

function demandOf(body: StreamRequest): Demand {
  const tokens = body.maxOutputTokens;
  const member = 'maxOutputTokens';
  return {
    size: sizeOf(body, 'stream'),
    hasTools: (body.tools?.length ?? 0) > 0,
    usesHourCache: usesHourCache(body),
    limit: tokens === undefined ? undefined : { tokens, member },
    limitMember: member,
  };
}

function serializeOptions({ clock }: AiContext, { headers }: StreamCall, model: CatalogModel) {
  return {
    version: headers['ai-language-model-specification-version'] ?? '3',
    modelId: model.id,
    responseId: id('msg'),
    now: clock.now(),
  };
}

function requireModelId(body: StreamRequest, header: string | undefined): string {
  const modelId = body.model ?? header;
  if (modelId !== undefined && (body.model === undefined || header === undefined || body.model === header))
    return modelId;
  const explanation =
    modelId === undefined
      ? 'is required, here or in the header ai-language-model-id'
      : 'differs from the header ai-language-model-id';
  throw new Problem('bad_request', 'invalid_request', `The member model ${explanation}.`, {
    param: 'model',
    details: [{ path: 'model', message: explanation }],
  });
}
