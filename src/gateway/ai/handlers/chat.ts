// The handler of chat completions. Providers that support the format get the
// caller's bytes; for all others the call is translated.
import type { ChatCompletion, ChatCompletionChunk } from '../../../contract/gateway/types.gen.ts';
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import { id } from '../../../kernel/ids.ts';
import type { Identity } from '../../identity.ts';
import {
  type AiContext,
  type AiHandlers,
  asEvents,
  creditsHeader,
  firstByteDeadlineMs,
  openBill,
  settleAndRender,
} from '../calls/context.ts';
import type { Bill } from '../billing/bill.ts';
import { attemptHeaders, callModel, type ModelAttempt, type ModelResult } from '../calls/call.ts';
import { type CatalogModel, viewerOf } from '../catalog/catalog.ts';
import { checkEffort } from '../catalog/reasoning.ts';
import { serializeChunks, serializeCompletion } from '../formats/chat-completions/answer.ts';
import { droppedMemberWarnings } from '../formats/chat-completions/dropped-members.ts';
import { parseResponseFormat, toModelCall } from '../formats/chat-completions/request.ts';
import { collectDroppedHints } from '../formats/translation/dropped-hints.ts';
import { checkReplays } from '../formats/translation/replay.ts';
import { checkAnswerFormat, checkChatInputs, checkLocalInput } from '../formats/translation/input-checks.ts';
import type { PassthroughResult } from '../formats/passthrough/calls.ts';
import * as format from '../formats/passthrough/formats.ts';
import { unpackChat } from '../formats/passthrough/replay.ts';
import { checkDefinitions } from '../formats/tool-definitions.ts';
import { checkToolValues } from '../formats/translation/tool-values.ts';
import { waitForFirst } from '../calls/first-item.ts';
import type { Answer, ModelCall, Warning } from '../hub/language-model.ts';
import { requirePrice } from '../metering/bound.ts';
import { generate, streamParts } from '../calls/model-calls.ts';
import { passthroughDemand, createPassthroughReply, toPassthroughCall } from './passthrough-reply.ts';
import { refuseUnsafeMembers } from '../upstream/request-guard.ts';
import { sessionHash } from '../upstream/session-hash.ts';
import { checkChatTools } from '../upstream/tool-guard.ts';
import { warningHeaders } from './warning-headers.ts';

type ChatCall = Call<Operations['ai.createChatCompletion'], Identity>;
type ChatReply = Reply<Operations['ai.createChatCompletion']>;

/** The result of an attempt: the provider's bytes, or an answer to translate. */
type ChatResult =
  | (PassthroughResult & { warnings: readonly Warning[] })
  | { kind: 'answer'; answer: Answer }
  | { kind: 'chunks'; chunks: AsyncIterable<ChatCompletionChunk>; warnings: readonly Warning[] };

export function chatHandlers(context: AiContext): Pick<AiHandlers, 'ai.createChatCompletion'> {
  return {
    'ai.createChatCompletion': async (call): Promise<ChatReply> => {
      const { identity, body, signal } = call;
      checkDefinitions(body);
      checkReplays(body);
      const chain = context.catalog.chain(viewerOf(identity), body.model, 'openai');
      const demand = passthroughDemand(body, format.chat, chain[0]);
      const bill = openBill(context, call, { action: 'chat/completions', demand });
      const result = await callModel(
        {
          chain,
          signal,
          streams: body.stream === true,
          session: () => sessionHash(call),
          deadlineMs: firstByteDeadlineMs(context, body.stream === true),
          check: (model) => checkModel(model, body),
          effort: (model) => checkEffort(model, body.reasoning_effort),
          content: (model, effort) => toContent(call, model, effort),
          send: (attempt) => send(context, call, { attempt, bill }),
        },
        { ...context, bill },
      );
      return render(context, call, { result, bill });
    },
  };
}

function speaksChat({ providerEntry }: CatalogModel): boolean {
  return providerEntry.formats.includes('chat');
}

function checkModel(model: CatalogModel, body: ChatCall['body']): void {
  requirePrice(model, ['input', 'output']);
  checkChatInputs(model, body.messages);
  checkLocalInput(model, body);
  if (!speaksChat(model)) checkAnswerFormat(model, parseResponseFormat(body), 'response_format');
}

/** The content for one model: the caller's bytes, or the translated call. */
type ChatContent =
  | { kind: 'bytes'; rawBody: Uint8Array; warnings: readonly Warning[] }
  | { kind: 'hub'; hub: ModelCall };

/** Throws a 400 or 422 for members that must not reach the provider, or that the model does not support. */
function toContent(
  { body, rawBody, signal }: ChatCall,
  model: CatalogModel,
  effort: string | undefined,
): ChatContent {
  refuseUnsafeMembers(body, model.providerEntry, { limits: format.chat.limitMembers });
  checkChatTools(model, body);
  if (!speaksChat(model)) {
    const hub = toModelCall(body, { provider: model.providerEntry, effort, signal });
    checkToolValues(hub);
    return { kind: 'hub', hub };
  }
  const hints = collectDroppedHints();
  return { kind: 'bytes', rawBody: unpackChat(body, rawBody, hints), warnings: hints.warnings };
}

async function send(
  context: AiContext,
  call: ChatCall,
  { attempt, bill }: { attempt: ModelAttempt<ChatContent>; bill: Bill },
): Promise<ChatResult> {
  const { body } = call;
  const { model, content } = attempt;
  if (content.kind === 'bytes') {
    const { rawBody, warnings } = content;
    const bytesCall = { ...toPassthroughCall(context, call, { bill }), rawBody };
    return { ...(await context.passthrough.send(format.chat, bytesCall, attempt)), warnings };
  }
  const { hub } = content;
  if (body.stream !== true)
    return { kind: 'answer', answer: await generate(context, attempt, { hub, bill }) };
  let warnings: readonly Warning[] = [];
  const chunks = await waitForFirst(
    serializeChunks(streamParts(context, attempt, { hub, bill }), {
      ...serializeOptions(context, model),
      includeUsage: body.stream_options?.include_usage === true,
      onWarnings: (streamWarnings) => (warnings = streamWarnings),
    }),
  );
  return { kind: 'chunks', chunks, warnings };
}

async function render(
  context: AiContext,
  call: ChatCall,
  { result: modelResult, bill }: { result: ModelResult<ChatResult>; bill: Bill },
): Promise<ChatReply> {
  const { answer: result, model } = modelResult;
  const attempts = attemptHeaders(modelResult);
  if (result.kind === 'whole' || result.kind === 'stream') {
    const headers = { ...attempts, ...warningHeaders(result.warnings) };
    return createPassthroughReply(format.chat, call, { result, bill, headers });
  }
  const memberWarnings = droppedMemberWarnings(call.body, model);
  if (result.kind === 'chunks')
    return {
      status: 200,
      events: asEvents(result.chunks, (error) => context.health.recordStreamFailure(modelResult, error)),
      end: '[DONE]',
      headers: { ...warningHeaders([...memberWarnings, ...result.warnings]), ...attempts },
    };
  const { answer } = result;
  const options = serializeOptions(context, model);
  const warnings = warningHeaders([...memberWarnings, ...answer.warnings]);
  const { body, headers } = await settleAndRender<ChatCompletion>(call, bill, (credits) => ({
    body: serializeCompletion(answer, options),
    headers: { ...warnings, ...attempts, ...creditsHeader(credits) },
  }));
  return { status: 200, body, headers };
}

function serializeOptions({ clock }: AiContext, model: CatalogModel) {
  return {
    modelId: model.id,
    completionId: id('chatcmpl').replace('_', '-'),
    createdSeconds: Math.floor(clock.now().getTime() / 1000),
  };
}
