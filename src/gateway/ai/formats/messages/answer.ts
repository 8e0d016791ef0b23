// Serializes answers of the hub in Anthropic's messages format, whole or as the events of a stream.
import type {
  MessageAnswer,
  MessageBlock,
  MessageEvent,
  MessageUsage,
} from '../../../../contract/gateway/types.gen.ts';
import { isRecord, parseJsonOrUndefined } from '../../../../kernel/json-value.ts';
import {
  validTokenCount,
  type Answer,
  type FinishReason,
  type StreamPart,
  type Usage,
} from '../../hub/language-model.ts';
import {
  answerBlocks,
  type Block,
  type BlockEvent,
  streamBlocks,
  type StreamOptions,
} from '../translation/blocks.ts';
import { encodeReplay } from '../translation/replay.ts';

export interface MessageOptions {
  modelId: string;
  /** `msg_…`. */
  messageId: string;
}

/** The whole answer as one message. Throws for a failed answer: the format has no stop reason for it. */
export function serializeMessage(answer: Answer, { modelId, messageId }: MessageOptions): MessageAnswer {
  const blocks = answerBlocks(answer);
  return {
    id: messageId,
    type: 'message',
    role: 'assistant',
    model: modelId,
    content: blocks.flatMap(serializeBlock),
    stop_reason: serializeStopReason(
      answer.finishReason,
      blocks.some(({ kind }) => kind === 'tool'),
    ),
    stop_sequence: null,
    usage: serializeUsage(answer.usage),
  };
}

export type MessageStreamOptions = MessageOptions & StreamOptions;

/**
 * The parts of a stream as events. Throws the errors of the parts, and a Problem when they end without a
 * `finish`. The first event follows the first content, so that an earlier failure still gets an HTTP status.
 */
export async function* serializeMessageEvents(
  parts: AsyncIterable<StreamPart>,
  { onWarnings, ...options }: MessageStreamOptions,
): AsyncGenerator<MessageEvent> {
  const blocks = createBlockSerializer();
  let hasStarted = false;
  for await (const event of streamBlocks(parts, onWarnings)) {
    if (!hasStarted) yield* messageStart(options);
    hasStarted = true;
    if (event.type !== 'finish') {
      yield* blocks.serialize(event);
      continue;
    }
    yield {
      type: 'message_delta',
      delta: {
        stop_reason: serializeStopReason(event.finishReason, blocks.hasToolUse()),
        stop_sequence: null,
      },
      usage: serializeUsage(event.usage),
    };
    yield { type: 'message_stop' };
  }
}

// The usage is known only at the end; clients replace these counts with the counts of `message_delta`.
function* messageStart({ modelId, messageId }: MessageOptions): Generator<MessageEvent> {
  yield {
    type: 'message_start',
    message: {
      id: messageId,
      type: 'message',
      role: 'assistant',
      model: modelId,
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: {
        input_tokens: 0,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: 0,
        output_tokens: 0,
      },
    },
  };
  yield { type: 'ping' };
}

/** A block of a whole answer, preceded by the replay metadata of a tool call. */
function serializeBlock(block: Block): MessageBlock[] {
  switch (block.kind) {
    case 'text':
      return [{ type: 'text', text: block.text }];
    case 'reasoning': {
      if (isRedacted(block)) return [redactedThinking(block)];
      return [{ type: 'thinking', thinking: block.text, signature: signatureOf(block) }];
    }
    case 'tool': {
      const { toolCallId: id, toolName: name, text } = block;
      const call: MessageBlock = { type: 'tool_use', id, name, input: parseInput(text) };
      return block.replay === undefined ? [call] : [redactedThinking(block), call];
    }
  }
}

// The format requires an object; models sometimes write another value.
function parseInput(text: string): Record<string, unknown> {
  const input = parseJsonOrUndefined(text === '' ? '{}' : text);
  return isRecord(input) ? input : { input: input ?? text };
}

function createBlockSerializer() {
  let index = -1;
  let hasToolUse = false;
  let hasSentReplay = false;

  function* wholeBlock(block: MessageBlock): Generator<MessageEvent> {
    index += 1;
    yield { type: 'content_block_start', index, content_block: block };
    yield { type: 'content_block_stop', index };
  }

  function* start(block: Block): Generator<MessageEvent> {
    hasSentReplay = block.kind === 'tool' && block.replay !== undefined;
    if (block.kind === 'tool') hasToolUse = true;
    if (hasSentReplay) yield* wholeBlock(redactedThinking(block));
    if (isRedacted(block)) return;
    index += 1;
    yield { type: 'content_block_start', index, content_block: emptyBlock(block) };
  }

  function* end(block: Block): Generator<MessageEvent> {
    if (isRedacted(block)) {
      yield* wholeBlock(redactedThinking(block));
      return;
    }
    if (block.kind === 'reasoning')
      yield {
        type: 'content_block_delta',
        index,
        delta: { type: 'signature_delta', signature: signatureOf(block) },
      };
    yield { type: 'content_block_stop', index };
    if (block.kind === 'tool' && block.replay !== undefined && !hasSentReplay)
      yield* wholeBlock(redactedThinking(block));
  }

  return {
    hasToolUse: () => hasToolUse,
    *serialize(event: BlockEvent): Generator<MessageEvent> {
      if (event.type === 'start') yield* start(event.block);
      else if (event.type === 'end') yield* end(event.block);
      else yield { type: 'content_block_delta', index, delta: serializeDelta(event) };
    },
  };
}

function emptyBlock({ kind, toolCallId: id, toolName: name }: Block): MessageBlock {
  if (kind === 'text') return { type: 'text', text: '' };
  return kind === 'reasoning'
    ? { type: 'thinking', thinking: '', signature: '' }
    : { type: 'tool_use', id, name, input: {} };
}

function serializeDelta({
  block,
  delta,
}: Extract<BlockEvent, { type: 'delta' }>): Extract<MessageEvent, { type: 'content_block_delta' }>['delta'] {
  if (block.kind === 'text') return { type: 'text_delta', text: delta };
  return block.kind === 'reasoning'
    ? { type: 'thinking_delta', thinking: delta }
    : { type: 'input_json_delta', partial_json: delta };
}

// Anthropic's redacted thinking has no text and no signature.
function isRedacted({ kind, text, replay }: Block): boolean {
  if (kind !== 'reasoning' || text !== '') return false;
  const { redactedData, redactedContent } = replay?.['anthropic'] ?? replay?.['amazonBedrock'] ?? {};
  return redactedData !== undefined || redactedContent !== undefined;
}

function redactedThinking({ kind, toolCallId, replay = {} }: Block): MessageBlock {
  const data = encodeReplay({ toolCallId: kind === 'tool' ? toolCallId : undefined, options: replay });
  return { type: 'redacted_thinking', data };
}

// Some clients do not return thinking without a signature, so every thinking block has one.
function signatureOf({ replay = {} }: Block): string {
  return encodeReplay({ options: replay });
}

function serializeStopReason({ unified, raw }: FinishReason, hasToolUse: boolean): string {
  if (unified === 'length') return 'max_tokens';
  if (unified === 'content-filter') return 'refusal';
  // Some servers report another reason with tool calls, but clients run tools only for `tool_use`.
  if (unified === 'tool-calls' || hasToolUse) return 'tool_use';
  return raw === 'stop_sequence' ? 'stop_sequence' : 'end_turn';
}

function serializeUsage({ inputTokens, outputTokens }: Usage): MessageUsage {
  const cachedTokens = validTokenCount(inputTokens.cacheRead) ?? 0;
  const cacheWrite = validTokenCount(inputTokens.cacheWrite) ?? 0;
  const uncachedTokens = Math.max((validTokenCount(inputTokens.total) ?? 0) - cachedTokens - cacheWrite, 0);
  const reasoning = validTokenCount(outputTokens.reasoning);
  return {
    input_tokens: validTokenCount(inputTokens.noCache) ?? uncachedTokens,
    cache_creation_input_tokens: cacheWrite,
    cache_read_input_tokens: cachedTokens,
    output_tokens: validTokenCount(outputTokens.total) ?? 0,
    ...(reasoning === undefined ? {} : { output_tokens_details: { thinking_tokens: reasoning } }),
  };
}
