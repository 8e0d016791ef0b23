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

/**
 * Throws the errors of the parts, and a Problem when they end without a `finish`. The end of the content
 * waits for the finish reason: a chat of Google's client for Python forgets an answer with a chunk without
 * content.
 */
export async function* serializeChunks(
  parts: AsyncIterable<StreamPart>,
  options: GeminiAnswerOptions,
): AsyncGenerator<GeminiAnswer> {
  let pendingParts: GeminiPart[] = [];
  let hasBegun = false;
  try {
    for await (const part of parts) {
      if (part.type === 'error') throw part.error;
      if (part.type === 'finish') {
        const lastChunk = toChunk(pendingParts, options, toFinishReason(part.finishReason));
        pendingParts = [];
        yield { ...lastChunk, usageMetadata: toUsage(part.usage) };
        return;
      }
      const next = partsOfStream(part, options);
      if (next.length === 0) continue;
      const ready = joinTexts([...pendingParts, ...next]);
      pendingParts = takeEnd(ready);
      if (ready.length === 0) continue;
      hasBegun = true;
      yield toChunk(ready, options);
    }
    throw truncatedAnswer();
  } catch (error) {
    // A failure before the first chunk still gets an HTTP status.
    if (hasBegun && pendingParts.length > 0) yield toChunk(pendingParts, options);
    throw error;
  }
}

/** Joins the texts of adjacent parts. A part with a signature must stay as it is. */
function joinTexts(parts: readonly GeminiPart[]): GeminiPart[] {
  const result: GeminiPart[] = [];
  for (const part of parts) {
    const last = result.at(-1);
    if (isPlainText(last) && isPlainText(part) && last.thought === part.thought)
      result[result.length - 1] = { ...last, text: last.text + part.text };
    else result.push(part);
  }
  return result;
}

/** Removes and returns the end of the parts: the last character of a text, or the last part. */
function takeEnd(parts: GeminiPart[]): GeminiPart[] {
  const last = parts.pop();
  if (last === undefined) return [];
  if (!isPlainText(last)) return [last];
  const end = Array.from(last.text.slice(-2)).at(-1) ?? '';
  const start = last.text.slice(0, last.text.length - end.length);
  if (start !== '') parts.push({ ...last, text: start });
  return [{ ...last, text: end }];
}

function isPlainText(part: GeminiPart | undefined): part is GeminiPart & { text: string } {
  return part?.text !== undefined && part.thoughtSignature === undefined;
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
      return toTextPart(content.text, content.providerMetadata);
    case 'reasoning':
      return options.includeThoughts ? toThought(content.text, content.providerMetadata) : [];
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
      return toTextPart(part.delta, part.providerMetadata);
    case 'reasoning-delta':
      return includeThoughts ? toThought(part.delta, part.providerMetadata) : [];
    case 'tool-call':
      return toFunctionCalls(part);
    case 'file':
      return [toFilePart(part)];
    default:
      return [];
  }
}

// Google's models may send the signature of a text after it, in a part with an empty text.
function toTextPart(text: string, metadata: ProviderMetadata | undefined): GeminiPart[] {
  const signature = signatureOf(metadata);
  return text === '' && signature.thoughtSignature === undefined ? [] : [{ text, ...signature }];
}

function toThought(text: string, metadata: ProviderMetadata | undefined): GeminiPart[] {
  return toTextPart(text, metadata).map((part) => ({ ...part, thought: true }));
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
