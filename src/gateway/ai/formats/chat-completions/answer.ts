// Serializes answers of the hub as chat completions, whole or as chunks of a stream.
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatDelta,
  ChatToolCall,
} from '../../../../contract/gateway/types.gen.ts';
import { Problem } from '../../../../kernel/problem.ts';
import {
  formatSourceList,
  validTokenCount,
  type Answer,
  type FinishReason,
  type Source,
  type StreamPart,
  type Usage,
  type Warning,
} from '../../hub/language-model.ts';

export interface CompletionOptions {
  modelId: string;
  /** `chatcmpl-…`. */
  completionId: string;
  createdSeconds: number;
}

/** The whole answer as one `chat.completion`. Throws for a failed answer: the format has no finish reason for it. */
export function serializeCompletion(
  answer: Answer,
  { modelId, completionId, createdSeconds }: CompletionOptions,
): ChatCompletion {
  requireSuccess(answer.finishReason);
  const texts = answer.content.flatMap((part) => (part.type === 'text' ? [part.text] : []));
  const reasoning = answer.content.flatMap((part) => (part.type === 'reasoning' ? [part.text] : [])).join('');
  const calls = answer.content.flatMap((part) =>
    part.type === 'tool-call' ? [serializeToolCall(part)] : [],
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
 * The parts of a stream as chunks. A last chunk without choices carries the usage if the caller asked for it. Throws what
 * the parts throw, and a Problem when the parts end without a `finish`.
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
  throw new Problem(
    'upstream_failed',
    'upstream_truncated',
    'The model broke off before its answer was complete.',
  );
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

// Tracks what a `delta` depends on: the first one carries the role, and tool calls are numbered in order of appearance.
function createDeltaSerializer() {
  const toolIndexes = new Map<string, number>();
  let isFirst = true;

  function withRole(delta: ChatDelta): ChatDelta {
    const role = isFirst ? { role: 'assistant', refusal: null } : {};
    isFirst = false;
    return { ...role, ...delta };
  }

  function startToolCall(id: string, call: SerializedCall): ChatDelta {
    const index = toolIndexes.size;
    toolIndexes.set(id, index);
    return withRole({ tool_calls: [{ index, ...call }] });
  }

  /** The part as a delta; undefined for parts that the format does not have. */
  function serialize(part: StreamPart): ChatDelta | undefined {
    switch (part.type) {
      case 'text-start':
        return isFirst ? withRole({ content: '' }) : undefined;
      case 'text-delta':
        return withRole({ content: part.delta });
      case 'reasoning-delta':
        return withRole({ reasoning_content: part.delta });
      case 'tool-input-start':
        return startToolCall(
          part.id,
          serializeToolCall({ toolCallId: part.id, toolName: part.toolName, input: '' }),
        );
      case 'tool-input-delta':
        return {
          tool_calls: [{ index: toolIndexes.get(part.id) ?? 0, function: { arguments: part.delta } }],
        };
      case 'tool-call':
        // If the model streams its input, the deltas before this part already carried all of it.
        return toolIndexes.has(part.toolCallId)
          ? undefined
          : startToolCall(part.toolCallId, serializeToolCall(part));
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

// Every finish reason of the format describes a usable answer, so a failed one is an error.
function requireSuccess({ unified, raw = 'error' }: FinishReason): void {
  if (unified === 'error')
    throw new Problem(
      'upstream_failed',
      'upstream_failed',
      `The model gave its answer up (${raw.slice(0, 64)}).`,
    );
}

function serializeFinishReason({ unified }: FinishReason): string {
  switch (unified) {
    case 'length':
      return 'length';
    case 'content-filter':
      return 'content_filter';
    case 'tool-calls':
      return 'tool_calls';
    default:
      // The format has no word for the others (`other`, `interrupted`).
      return 'stop';
  }
}

function serializeUsage({ inputTokens, outputTokens }: Usage): NonNullable<ChatCompletion['usage']> {
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
