// Serializes answers of the hub in the format of Gemini's API, whole or as chunks of a stream.
import type { GeminiAnswer, GeminiPart } from '../../../../contract/gateway/types.gen.ts';
import { isRecord, parseToolInput } from '../../../../kernel/json-value.ts';
import {
  type Answer,
  type Content,
  type FinishReason,
  type ProviderMetadata,
  type StreamPart,
  type Usage,
  validTokenCount,
} from '../../hub/language-model.ts';
import { toolCallReplay } from '../translation/replay.ts';
import { requireSuccess, truncatedAnswer } from '../translation/finish.ts';

export interface GeminiAnswerOptions {
  modelId: string;
  responseId: string;
  /** Whether the caller requested the model's reasoning. */
  includeThoughts: boolean;
}

type GeminiFinishReason = NonNullable<NonNullable<GeminiAnswer['candidates']>[number]['finishReason']>;

/** Throws for a failed answer: the format has no finish reason for it. */
export function serializeAnswer(answer: Answer, options: GeminiAnswerOptions): GeminiAnswer {
  const parts = answer.content.flatMap((content) => toParts(content, options));
  return {
    ...toChunk(parts, options, toFinishReason(answer.finishReason)),
    usageMetadata: toUsage(answer.usage),
  };
}

/** Throws the errors of the parts, and a Problem when they end without a `finish`. */
export async function* serializeChunks(
  parts: AsyncIterable<StreamPart>,
  options: GeminiAnswerOptions,
): AsyncGenerator<GeminiAnswer> {
  for await (const part of parts) {
    if (part.type === 'error') throw part.error;
    if (part.type === 'finish') {
      yield {
        ...toChunk([], options, toFinishReason(part.finishReason)),
        usageMetadata: toUsage(part.usage),
      };
      return;
    }
    const deltas = partsOfStream(part, options);
    if (deltas.length > 0) yield toChunk(deltas, options);
  }
  throw truncatedAnswer();
}

function toChunk(
  parts: GeminiPart[],
  { modelId, responseId }: GeminiAnswerOptions,
  finishReason?: GeminiFinishReason,
): GeminiAnswer {
  return {
    candidates: [
      {
        index: 0,
        content: { role: 'model', parts },
        ...(finishReason === undefined ? {} : { finishReason }),
      },
    ],
    modelVersion: modelId,
    responseId,
  };
}

function toParts(content: Content, options: GeminiAnswerOptions): GeminiPart[] {
  switch (content.type) {
    case 'text':
      return [{ text: content.text, ...signatureOf(content.providerMetadata) }];
    case 'reasoning':
      return options.includeThoughts
        ? [{ text: content.text, thought: true, ...signatureOf(content.providerMetadata) }]
        : [];
    case 'tool-call':
      return toFunctionCalls(content);
    case 'file':
      return [toFilePart(content)];
    default:
      return [];
  }
}

// The parts of a stream are deltas; a function call or a file is one whole part.
function partsOfStream(part: StreamPart, { includeThoughts }: GeminiAnswerOptions): GeminiPart[] {
  switch (part.type) {
    case 'text-delta':
      return toTextDelta(part);
    case 'reasoning-delta':
      return includeThoughts ? toTextDelta(part).map((delta) => ({ ...delta, thought: true })) : [];
    case 'tool-call':
      return toFunctionCalls(part);
    case 'file':
      return [toFilePart(part)];
    default:
      return [];
  }
}

// Google's models may send the signature of a text after it, in a part with an empty text.
function toTextDelta({
  delta,
  providerMetadata,
}: Extract<StreamPart, { type: 'text-delta' | 'reasoning-delta' }>): GeminiPart[] {
  const signature = signatureOf(providerMetadata);
  return delta === '' && signature.thoughtSignature === undefined ? [] : [{ text: delta, ...signature }];
}

function toFilePart({ mediaType: mimeType, data: file }: Extract<Content, { type: 'file' }>): GeminiPart {
  if (file.type === 'url') return { fileData: { mimeType, fileUri: String(file.url) } };
  const data = typeof file.data === 'string' ? file.data : Buffer.from(file.data).toString('base64');
  return { inlineData: { mimeType, data } };
}

/** The call as a part; none if the provider runs the tool, since clients run every call of an answer. */
function toFunctionCalls(call: Extract<Content, { type: 'tool-call' }>): GeminiPart[] {
  if (call.providerExecuted === true) return [];
  const input = parseToolInput(call.input);
  return [
    {
      functionCall: {
        id: call.toolCallId,
        name: call.toolName,
        // The format requires an object; models sometimes write another value.
        args: isRecord(input) ? input : { input },
      },
      ...signatureOf(call.providerMetadata),
    },
  ];
}

/** Google's models require the thought signature of a part when the next turn sends the part back. */
function signatureOf(metadata: ProviderMetadata | undefined): { thoughtSignature?: string } {
  const signature = toolCallReplay(metadata)?.['google']?.['thoughtSignature'];
  return typeof signature === 'string' ? { thoughtSignature: signature } : {};
}

function toFinishReason(reason: FinishReason): GeminiFinishReason {
  requireSuccess(reason);
  switch (reason.unified) {
    case 'length':
      return 'MAX_TOKENS';
    case 'content-filter':
      return 'SAFETY';
    case 'stop':
    case 'tool-calls':
      return 'STOP';
    default:
      return 'OTHER';
  }
}

/** Output tokens without reasoning tokens, which Gemini counts separately. */
function toUsage({ inputTokens, outputTokens }: Usage): NonNullable<GeminiAnswer['usageMetadata']> {
  const prompt = validTokenCount(inputTokens.total) ?? 0;
  const output = validTokenCount(outputTokens.total) ?? 0;
  const reasoningTokens = Math.min(validTokenCount(outputTokens.reasoning) ?? 0, output);
  const cachedTokens = validTokenCount(inputTokens.cacheRead) ?? 0;
  return {
    promptTokenCount: prompt,
    candidatesTokenCount: output - reasoningTokens,
    totalTokenCount: prompt + output,
    ...(reasoningTokens > 0 ? { thoughtsTokenCount: reasoningTokens } : {}),
    ...(cachedTokens > 0 ? { cachedContentTokenCount: cachedTokens } : {}),
  };
}
