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
  /** `chatcmpl-…`. */
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
  const details = answer.content.flatMap((part) => {
    const replay = part.type === 'reasoning' ? reasoningReplay(part.providerMetadata) : undefined;
    return part.type === 'reasoning' && replay !== undefined ? [serializeDetail(part.text, replay)] : [];
  });
  const calls = answer.content.flatMap((part) =>
    part.type === 'tool-call' ? [{ ...serializeToolCall(part), ...extraContent(part) }] : [],
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
  const deltas = createDeltaSerializer();
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
        const list = formatSourceList(sources);
        if (list !== '') yield createChunk(deltas.withRole({ content: list }));
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

// Tracks the state of the deltas: the first one carries the role, and tool calls are
// numbered in order of appearance.
function createDeltaSerializer() {
  const toolIndexes = new Map<string, number>();
  const reasonings = new Map<string, { text: string; replay: ProviderOptions | undefined }>();
  /** Calls whose first delta carries the provider's replay metadata. */
  const signedCalls = new Set<string>();
  let isFirst = true;

  function withRole(delta: ChatDelta): ChatDelta {
    const role = isFirst ? { role: 'assistant', refusal: null } : {};
    isFirst = false;
    return { ...role, ...delta };
  }

  function addReasoning(id: string, text: string, metadata: ProviderMetadata | undefined): void {
    const earlierReasoning = reasonings.get(id) ?? { text: '', replay: undefined };
    const replay = mergeReplay(earlierReasoning.replay, reasoningReplay(metadata));
    reasonings.set(id, { text: earlierReasoning.text + text, replay });
  }

  /** The provider's replay metadata of the reasoning, once it is complete. */
  function endReasoning(id: string): ChatDelta | undefined {
    const { text = '', replay } = reasonings.get(id) ?? {};
    reasonings.delete(id);
    return replay && withRole({ reasoning_details: [serializeDetail(text, replay)] });
  }

  function startToolCall(id: string, call: SerializedCall): ChatDelta {
    const index = toolIndexes.size;
    toolIndexes.set(id, index);
    if (call.extra_content !== undefined) signedCalls.add(id);
    return withRole({ tool_calls: [{ index, ...call }] });
  }

  function endToolCall(part: Extract<StreamPart, { type: 'tool-call' }>): ChatDelta | undefined {
    const extraMember = extraContent(part);
    const index = toolIndexes.get(part.toolCallId) ?? 0;
    return 'extra_content' in extraMember && !signedCalls.has(part.toolCallId)
      ? { tool_calls: [{ index, ...extraMember }] }
      : undefined;
  }

  /** The part as a delta; undefined for a part without a counterpart in the format. */
  function serialize(part: StreamPart): ChatDelta | undefined {
    switch (part.type) {
      case 'text-start':
        return isFirst ? withRole({ content: '' }) : undefined;
      case 'text-delta':
        return withRole({ content: part.delta });
      case 'reasoning-start':
        addReasoning(part.id, '', part.providerMetadata);
        return undefined;
      case 'reasoning-delta':
        addReasoning(part.id, part.delta, part.providerMetadata);
        return part.delta === '' ? undefined : withRole({ reasoning_content: part.delta });
      case 'reasoning-end':
        addReasoning(part.id, '', part.providerMetadata);
        return endReasoning(part.id);
      case 'tool-input-start':
        return startToolCall(part.id, {
          ...serializeToolCall({ toolCallId: part.id, toolName: part.toolName, input: '' }),
          ...extraContent(part),
        });
      case 'tool-input-delta':
        return {
          tool_calls: [{ index: toolIndexes.get(part.id) ?? 0, function: { arguments: part.delta } }],
        };
      case 'tool-call':
        // If the model streams its input, the deltas before this part already carried all of it.
        return toolIndexes.has(part.toolCallId)
          ? endToolCall(part)
          : startToolCall(part.toolCallId, { ...serializeToolCall(part), ...extraContent(part) });
      default:
        return undefined;
    }
  }

  return { serialize, withRole };
}

type SerializedCall = ChatToolCall & { function: { name: string; arguments: string } };

function serializeToolCall(part: { toolCallId: string; toolName: string; input: string }): SerializedCall {
  return { id: part.toolCallId, type: 'function', function: { name: part.toolName, arguments: part.input } };
}

// Clients return `reasoning_details` unchanged, a convention of OpenRouter.
function serializeDetail(text: string, replay: ProviderOptions): Record<string, unknown> {
  return { type: 'reasoning.text', text, signature: encodeReplay({ options: replay }), format: 'townhall.1' };
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
      // The format has no finish reason for the others (`other`, `interrupted`).
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
