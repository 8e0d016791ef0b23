// Handlers of Gemini's API. A request is converted to the AI SDK's language-model
// format and handled as such; only the answer is serialized in Gemini's own format.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { GeminiAnswer, GeminiRequest } from '../../../contract/gateway/types.gen.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import { id } from '../../../kernel/ids.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Identity } from '../../identity.ts';
import {
  type AiContext,
  type AiHandlers,
  asEvents,
  callMembers,
  creditsHeader,
  settleAndRender,
} from '../calls/context.ts';
import { attemptHeaders, type ModelResult } from '../calls/call.ts';
import { viewerOf } from '../catalog/catalog.ts';
import { waitForFirst } from '../calls/first-item.ts';
import { type GeminiAnswerOptions, serializeAnswer, serializeChunks } from '../formats/gemini/answer.ts';
import { checkReplays } from '../formats/translation/replay.ts';
import { functionPath, ignoredHints, toStreamRequest } from '../formats/gemini/request.ts';
import { sizeOf } from '../metering/measure.ts';
import { tokensOfRequest } from '../metering/token-count.ts';
import type { StreamPart, Warning } from '../hub/language-model.ts';
import { generate, streamParts } from '../calls/model-calls.ts';
import { type RenameMember, withMemberNames } from './member-names.ts';
import { callInFormat, type StreamCall } from './stream.ts';
import { warningHeaders } from './warning-headers.ts';

type GeminiOperation = 'ai.generateGeminiContent' | 'ai.streamGeminiContent' | 'ai.getGeminiTokenCount';
type GenerateCall = Call<Operations['ai.generateGeminiContent'], Identity>;

export function geminiHandlers(context: AiContext): Pick<AiHandlers, GeminiOperation> {
  return {
    'ai.generateGeminiContent': (call) => generateContent(context, call),
    'ai.streamGeminiContent': (call) => streamContent(context, call),
    'ai.getGeminiTokenCount': async ({ identity, path, body }) => {
      const request = body.generateContentRequest ?? { contents: body.contents ?? [] };
      if (request.contents.length === 0)
        throw new Problem('bad_request', 'invalid_request', 'The member contents is required.', {
          param: 'contents',
        });
      checkReplays(request);
      const model = context.catalog.callableModel(viewerOf(identity), path.model_id, 'stream');
      const size = sizeOf(toStreamRequest(model.id, request), 'stream');
      return { status: 200, body: { totalTokens: tokensOfRequest(size) } };
    },
  };
}

async function generateContent(
  context: AiContext,
  call: GenerateCall,
): Promise<Reply<Operations['ai.generateGeminiContent']>> {
  const streamCall = toStreamCall(call);
  const result = await withMemberNames(geminiMembers(call.body), () =>
    callInFormat(context, streamCall, {
      action: 'generateContent',
      streams: false,
      send: (attempt, { hub, bill }) => generate(context, attempt, { hub, bill }),
    }),
  );
  const options = answerOptions(call.body, result);
  const { body, headers } = await settleAndRender<GeminiAnswer>(streamCall, result.bill, (credits) => ({
    body: serializeAnswer(result.answer, options),
    headers: { ...headersOf(call.body, result, result.answer.warnings), ...creditsHeader(credits) },
  }));
  return { status: 200, body, headers };
}

async function streamContent(
  context: AiContext,
  call: Call<Operations['ai.streamGeminiContent'], Identity>,
): Promise<Reply<Operations['ai.streamGeminiContent']>> {
  let warnings: readonly Warning[] = [];
  const streamCall = toStreamCall(call);
  const result = await withMemberNames(geminiMembers(call.body), () =>
    callInFormat(context, streamCall, {
      action: 'streamGenerateContent',
      streams: true,
      send: async (attempt, { hub, bill }) => {
        const parts = withWarnings(streamParts(context, attempt, { hub, bill }), (list) => {
          warnings = list;
        });
        return waitForFirst(serializeChunks(parts, answerOptions(call.body, attempt)));
      },
    }),
  );
  return {
    status: 200,
    events: asEvents(result.answer, (error) => context.health.recordStreamFailure(result, error)),
    headers: headersOf(call.body, result, warnings),
  };
}

/** Yields the parts unchanged, and reports the warnings of the first part before any text. */
async function* withWarnings(
  parts: AsyncIterable<StreamPart>,
  onWarnings: (warnings: readonly Warning[]) => void,
): AsyncGenerator<StreamPart> {
  for await (const part of parts) {
    if (part.type === 'stream-start') onWarnings(part.warnings);
    yield part;
  }
}

/**
 * The names of the members in the request. One entry of `contents` can become two messages of the prompt, so
 * an index of the prompt would mislead: only `contents` is named.
 */
const geminiMembers =
  (body: GeminiRequest): RenameMember =>
  (member) => {
    if (/^prompt(?:$|\[)/.test(member)) return 'contents';
    const [, toolIndex] = /^tools\[(\d+)\]/.exec(member) ?? [];
    if (toolIndex !== undefined) return functionPath(body, Number(toolIndex));
    // A JSON answer without a schema, which some models require, or a schema that is too large.
    if (member === 'responseFormat') return 'generationConfig.responseSchema';
    if (member === 'reasoning_effort') return 'generationConfig.thinkingConfig.thinkingLevel';
    return member === 'maxOutputTokens' ? 'generationConfig.maxOutputTokens' : undefined;
  };

function toStreamCall(call: GenerateCall | Call<Operations['ai.streamGeminiContent'], Identity>): StreamCall {
  const { headers, path, body } = call;
  checkReplays(body);
  return { ...callMembers(call), body: toStreamRequest(path.model_id, body), headers };
}

function answerOptions(
  { generationConfig }: GeminiRequest,
  { model }: Pick<ModelResult<unknown>, 'model'>,
): GeminiAnswerOptions {
  return {
    modelId: model.id,
    responseId: id('msg'),
    includeThoughts: generationConfig?.thinkingConfig?.includeThoughts === true,
  };
}

function headersOf(
  body: GeminiRequest,
  result: ModelResult<unknown>,
  warnings: readonly Warning[],
): Record<string, string> {
  const hints = ignoredHints(body).map((feature): Warning => ({
    type: 'unsupported',
    feature,
    details: 'is not sent to this model',
  }));
  return { ...attemptHeaders(result), ...warningHeaders([...hints, ...warnings]) };
}
