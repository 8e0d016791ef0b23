// Serializes answers of the hub as chat completions, whole or as chunks of a stream.
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatDelta,
  ChatToolCall,
} from '../../../../contract/gateway/types.gen.ts';
import {
  formatSourceList,
  validTokenCount,
  type Answer,
  type FinishReason,
  type ProviderMetadata,
  type ProviderOptions,
  type Source,
  type StreamPart,
  type Usage,
  type Warning,
} from '../../hub/language-model.ts';
import { encodeReplay, mergeReplay, reasoningReplay, toolCallReplay } from '../translation/replay.ts';
import { requireSuccess, truncatedAnswer } from '../translation/finish.ts';

export interface CompletionOptions {
  modelId: string;
  /** `chatcmpl-…`, or `cmpl-…` for the older completions. */
  completionId: string;
  createdSeconds: number;
}

/**
 * The whole answer as one `chat.completion`. Throws for a failed answer: the format
 * has no finish reason for it.
 */
export function serializeCompletion(
  answer: Answer,
  { modelId, completionId, createdSeconds }: CompletionOptions,
): ChatCompletion {
  requireSuccess(answer.finishReason);
  const texts = answer.content.flatMap((part) => (part.type === 'text' ? [part.text] : []));
  const reasoning = answer.content.flatMap((part) => (part.type === 'reasoning' ? [part.text] : [])).join('');
  const details = answer.content
    .flatMap((part) => {
      const replay = part.type === 'reasoning' ? reasoningReplay(part.providerMetadata) : undefined;
      return part.type === 'reasoning' && replay !== undefined ? [{ text: part.text, replay }] : [];
    })
    .map(serializeDetail);
  const calls = answer.content.flatMap((part) =>
    part.type === 'tool-call' && part.providerExecuted !== true
      ? [{ ...serializeToolCall(part), ...extraContent(part) }]
      : [],
  );
  const text = texts.join('') + formatSourceList(answer.content.filter((part) => part.type === 'source'));
  return {
    id: completionId,
    object: 'chat.completion',
    created: createdSeconds,
    model: modelId,
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: text === '' && calls.length > 0 ? null : text,
          refusal: null,
          ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
          ...(details.length === 0 ? {} : { reasoning_details: details }),
          ...(calls.length === 0 ? {} : { tool_calls: calls }),
        },
        logprobs: null,
        finish_reason: serializeFinishReason(answer.finishReason),
      },
    ],
    usage: serializeUsage(answer.usage),
  };
}

export interface ChunkOptions extends CompletionOptions {
  includeUsage: boolean;
  /** Called before the first chunk with the options of the call that the model ignores. */
  onWarnings: (warnings: readonly Warning[]) => void;
}

/**
 * The parts of a stream as chunks. A last chunk without choices carries the usage when the caller
 * requested it. Throws the errors of the parts, and a Problem when the parts end without a `finish`.
 */
export async function* serializeChunks(
  parts: AsyncIterable<StreamPart>,
  options: ChunkOptions,
): AsyncGenerator<ChatCompletionChunk> {
  const { includeUsage, onWarnings } = options;
  const createChunk = chunkFactory(options);
  const deltas = new DeltaSerializer();
  const sources: Source[] = [];
  for await (const part of parts) {
    switch (part.type) {
      case 'stream-start':
        onWarnings(part.warnings);
        break;
      case 'source':
        sources.push(part);
        break;
      case 'error':
        throw part.error;
      case 'finish': {
        requireSuccess(part.finishReason);
        const sourceList = formatSourceList(sources);
        if (sourceList !== '') yield createChunk(deltas.withRole({ content: sourceList }));
        yield createChunk(deltas.withRole({}), serializeFinishReason(part.finishReason));
        if (includeUsage) yield { ...createChunk({}), choices: [], usage: serializeUsage(part.usage) };
        return;
      }
      default: {
        const delta = deltas.serialize(part);
        if (delta !== undefined) yield createChunk(delta);
      }
    }
  }
  throw truncatedAnswer();
}

function chunkFactory({ modelId, completionId, createdSeconds, includeUsage }: ChunkOptions) {
  return (delta: ChatDelta, finishReason: string | null = null): ChatCompletionChunk => ({
    id: completionId,
    object: 'chat.completion.chunk',
    created: createdSeconds,
    model: modelId,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finishReason }],
    ...(includeUsage ? { usage: null } : {}),
  });
}

/**
 * Serializes the parts of one stream. The first delta carries the role, and tool calls are numbered in the
 * order in which they start.
 */
class DeltaSerializer {
  readonly #toolIndexes = new Map<string, number>();
  readonly #reasonings = new Map<string, { text: string; replay: ProviderOptions | undefined }>();
  #detailCount = 0;
  /** Calls whose first delta carries the provider's replay metadata. */
  readonly #signedCalls = new Set<string>();
  #isFirst = true;

  /** The part as a delta; undefined for a part without a counterpart in the format. */
  serialize(part: StreamPart): ChatDelta | undefined {
    switch (part.type) {
      case 'text-start':
        // Like OpenAI, a stream of text begins with the role and an empty text.
        return this.#isFirst ? this.withRole({ content: '' }) : undefined;
      case 'text-delta':
        return this.withRole({ content: part.delta });
      case 'reasoning-start':
        this.#addReasoning(part.id, '', part.providerMetadata);
        return undefined;
      case 'reasoning-delta':
        this.#addReasoning(part.id, part.delta, part.providerMetadata);
        return part.delta === '' ? undefined : this.withRole({ reasoning_content: part.delta });
      case 'reasoning-end':
        this.#addReasoning(part.id, '', part.providerMetadata);
        return this.#endReasoning(part.id);
      case 'tool-input-start': {
        if (part.providerExecuted === true) return undefined;
        const { id: toolCallId, toolName } = part;
        const call = serializeToolCall({ toolCallId, toolName, input: '' });
        return this.#startToolCall(toolCallId, { ...call, ...extraContent(part) });
      }
      case 'tool-input-delta': {
        const index = this.#toolIndexes.get(part.id);
        return index === undefined
          ? undefined
          : { tool_calls: [{ index, function: { arguments: part.delta } }] };
      }
      case 'tool-call': {
        // A tool that the provider runs itself: clients run every call that they get.
        if (part.providerExecuted === true) return undefined;
        // If the model streams its input, the deltas before this part already carried all of it.
        const index = this.#toolIndexes.get(part.toolCallId);
        return index === undefined
          ? this.#startToolCall(part.toolCallId, { ...serializeToolCall(part), ...extraContent(part) })
          : this.#endToolCall(index, part);
      }
      default:
        return undefined;
    }
  }

  withRole(delta: ChatDelta): ChatDelta {
    const role = this.#isFirst ? { role: 'assistant', refusal: null } : {};
    this.#isFirst = false;
    return { ...role, ...delta };
  }

  #addReasoning(id: string, text: string, metadata: ProviderMetadata | undefined): void {
    const earlierReasoning = this.#reasonings.get(id) ?? { text: '', replay: undefined };
    const replay = mergeReplay(earlierReasoning.replay, reasoningReplay(metadata));
    this.#reasonings.set(id, { text: earlierReasoning.text + text, replay });
  }

  /** The provider's replay metadata of the reasoning, once it is complete. */
  #endReasoning(id: string): ChatDelta | undefined {
    const { text = '', replay } = this.#reasonings.get(id) ?? {};
    this.#reasonings.delete(id);
    if (replay === undefined) return undefined;
    const detail = serializeDetail({ text, replay }, this.#detailCount);
    this.#detailCount += 1;
    return this.withRole({ reasoning_details: [detail] });
  }

  #startToolCall(id: string, call: SerializedCall): ChatDelta {
    const index = this.#toolIndexes.size;
    this.#toolIndexes.set(id, index);
    if (call.extra_content !== undefined) this.#signedCalls.add(id);
    return this.withRole({ tool_calls: [{ index, ...call }] });
  }

  /** The replay metadata of a call that its first delta did not carry. */
  #endToolCall(index: number, part: Extract<StreamPart, { type: 'tool-call' }>): ChatDelta | undefined {
    const extraMember = extraContent(part);
    return 'extra_content' in extraMember && !this.#signedCalls.has(part.toolCallId)
      ? { tool_calls: [{ index, ...extraMember }] }
      : undefined;
  }
}

type SerializedCall = ChatToolCall & { function: { name: string; arguments: string } };

function serializeToolCall(part: { toolCallId: string; toolName: string; input: string }): SerializedCall {
  return { id: part.toolCallId, type: 'function', function: { name: part.toolName, arguments: part.input } };
}

// Clients return `reasoning_details` unchanged, a convention of OpenRouter. OpenAI's client for Python joins
// the items of a list in the deltas of a stream by their `index`, and throws if a second delta has none.
function serializeDetail(
  { text, replay }: { text: string; replay: ProviderOptions },
  index: number,
): Record<string, unknown> {
  const signature = encodeReplay({ options: replay });
  return { type: 'reasoning.text', text, signature, format: 'townhall.1', index };
}

// Google's own chat completions have the signature of a tool call in `extra_content`.
function extraContent({ providerMetadata }: { providerMetadata?: ProviderMetadata }): {
  extra_content?: Record<string, unknown>;
} {
  const signature = toolCallReplay(providerMetadata)?.['google']?.['thoughtSignature'];
  return signature === undefined ? {} : { extra_content: { google: { thought_signature: signature } } };
}

export function serializeFinishReason({ unified }: FinishReason): string {
  switch (unified) {
    case 'length':
      return 'length';
    case 'content-filter':
      return 'content_filter';
    case 'tool-calls':
      return 'tool_calls';
    default:
      // The format has no finish reason for `other` and `interrupted`.
      return 'stop';
  }
}

export function serializeUsage({ inputTokens, outputTokens }: Usage): NonNullable<ChatCompletion['usage']> {
  const prompt = validTokenCount(inputTokens.total) ?? 0;
  const output = validTokenCount(outputTokens.total) ?? 0;
  return {
    prompt_tokens: prompt,
    completion_tokens: output,
    total_tokens: prompt + output,
    prompt_tokens_details: { cached_tokens: validTokenCount(inputTokens.cacheRead) ?? 0 },
    completion_tokens_details: { reasoning_tokens: validTokenCount(outputTokens.reasoning) ?? 0 },
  };
}
