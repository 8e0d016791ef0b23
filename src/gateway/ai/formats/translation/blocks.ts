// An answer of the hub as a sequence of blocks: text, reasoning and tool calls, one at a
// time. Providers may interleave the parts of a stream (parallel tool calls, or text that ends after
// a tool call began), but the messages and responses formats send one block after another.
import {
  formatSourceList,
  type Answer,
  type FinishReason,
  type ProviderMetadata,
  type ProviderOptions,
  type Source,
  type StreamPart,
  type Usage,
  type Warning,
} from '../../hub/language-model.ts';
import { requireSuccess, truncatedAnswer } from './finish.ts';
import { mergeReplay, reasoningReplay, toolCallReplay } from './replay.ts';

export interface Block {
  kind: 'text' | 'reasoning' | 'tool';
  /** The content so far: text, reasoning, or a tool's input as JSON. */
  text: string;
  /** The id of the tool call; empty in other blocks. */
  toolCallId: string;
  toolName: string;
  /** The provider's replay metadata of the block. */
  replay: ProviderOptions | undefined;
}

export type BlockEvent =
  | { type: 'start'; block: Block }
  | { type: 'end'; block: Block }
  | { type: 'delta'; block: Block; delta: string };

export interface StreamOptions {
  /** Called before the first event with the options of the call that the model ignores. */
  onWarnings: (warnings: readonly Warning[]) => void;
}

export interface AnswerEnd {
  type: 'finish';
  finishReason: FinishReason;
  usage: Usage;
}

/**
 * The blocks of a stream, and its end. Throws the errors of the parts, and a Problem when they
 * end without a `finish` or with a failure. `onWarnings` is called before the first event.
 */
export async function* streamBlocks(
  parts: AsyncIterable<StreamPart>,
  onWarnings: StreamOptions['onWarnings'],
): AsyncGenerator<BlockEvent | AnswerEnd> {
  const queue = new BlockQueue();
  const sources: Source[] = [];
  for await (const part of parts) {
    if (part.type === 'error') throw part.error;
    if (part.type === 'stream-start') onWarnings(part.warnings);
    else if (part.type === 'source') sources.push(part);
    else if (part.type === 'finish') {
      requireSuccess(part.finishReason);
      queue.append('text', 'sources', formatSourceList(sources));
      queue.endAll();
      yield* queue.take();
      yield { type: 'finish', finishReason: part.finishReason, usage: part.usage };
      return;
    } else if (queue.accept(part)) yield* queue.take();
  }
  throw truncatedAnswer();
}

/** The blocks of a whole answer. Throws a Problem for a failed one. */
export function answerBlocks({ content, finishReason }: Answer): Block[] {
  requireSuccess(finishReason);
  const sources = content.filter((part) => part.type === 'source');
  const blocks: Block[] = [];
  for (const part of content) {
    if (part.type === 'text' && part.text !== '') blocks.push({ ...emptyBlock('text'), text: part.text });
    else if (part.type === 'reasoning') {
      const replay = reasoningReplay(part.providerMetadata);
      if (part.text !== '' || replay !== undefined)
        blocks.push({ ...emptyBlock('reasoning'), text: part.text, replay });
    } else if (part.type === 'tool-call' && part.providerExecuted !== true) {
      const { toolCallId, toolName, input: text } = part;
      blocks.push({
        kind: 'tool',
        text,
        toolCallId,
        toolName,
        replay: toolCallReplay(part.providerMetadata),
      });
    }
  }
  const sourceList = formatSourceList(sources);
  if (sourceList !== '') blocks.push({ ...emptyBlock('text'), text: sourceList });
  return blocks;
}

function emptyBlock(kind: Block['kind']): Block {
  return { kind, text: '', toolCallId: '', toolName: '', replay: undefined };
}

interface QueuedBlock {
  key: string;
  block: Block;
  /** Deltas that wait until the preceding blocks are complete. */
  pending: string[];
  hasStarted: boolean;
  hasEnded: boolean;
}

type TextKind = 'text' | 'reasoning';

/** The incomplete blocks. Only the first block is being sent; the others wait for it to end. */
class BlockQueue {
  readonly #blocks: QueuedBlock[] = [];
  /** Tool calls whose blocks are complete: SDK packages may report a streamed call a second time. */
  readonly #toolCalls = new Set<string>();

  /** Applies a part of the answer; false for a part without a counterpart in the formats. */
  accept(part: StreamPart): boolean {
    switch (part.type) {
      case 'text-start':
      case 'reasoning-start':
        this.#open(part.type === 'text-start' ? 'text' : 'reasoning', part.id, part.providerMetadata);
        return true;
      case 'text-delta':
      case 'reasoning-delta':
        this.append(
          part.type === 'text-delta' ? 'text' : 'reasoning',
          part.id,
          part.delta,
          part.providerMetadata,
        );
        return true;
      case 'text-end':
      case 'reasoning-end':
        this.#end(part.type === 'text-end' ? 'text' : 'reasoning', part.id, part.providerMetadata);
        return true;
      case 'tool-input-start':
        if (part.providerExecuted !== true) this.#openTool(part.id, part.toolName, part.providerMetadata);
        return true;
      case 'tool-input-delta':
        this.#find('tool', part.id)?.pending.push(part.delta);
        return true;
      case 'tool-call':
        if (part.providerExecuted !== true) this.#endTool(part);
        return true;
      default:
        return false;
    }
  }

  /** Appends to a text or reasoning block. If a later block has ended it, a new block continues it. */
  append(kind: TextKind, id: string, delta: string, metadata?: ProviderMetadata): void {
    const queued = this.#find(kind, id) ?? (delta === '' ? undefined : this.#open(kind, id, metadata));
    if (queued === undefined) return;
    this.#addReplay(queued, metadata);
    if (delta !== '') queued.pending.push(delta);
  }

  endAll(): void {
    for (const queued of this.#blocks) queued.hasEnded = true;
  }

  /** Removes and returns the events that can be sent now. */
  take(): BlockEvent[] {
    const events: BlockEvent[] = [];
    for (let firstBlock = this.#blocks[0]; firstBlock !== undefined; firstBlock = this.#blocks[0]) {
      const { block } = firstBlock;
      if (!firstBlock.hasStarted && hasContent(firstBlock)) {
        firstBlock.hasStarted = true;
        events.push({ type: 'start', block });
      }
      if (firstBlock.hasStarted)
        for (const delta of firstBlock.pending.splice(0)) {
          block.text += delta;
          events.push({ type: 'delta', block, delta });
        }
      if (!firstBlock.hasEnded) break;
      if (firstBlock.hasStarted) events.push({ type: 'end', block });
      this.#blocks.shift();
    }
    return events;
  }

  #open(kind: TextKind, id: string, metadata?: ProviderMetadata): QueuedBlock {
    return this.#push(`${kind} ${id}`, emptyBlock(kind), metadata);
  }

  #openTool(toolCallId: string, toolName: string, metadata?: ProviderMetadata): QueuedBlock {
    return this.#push(`tool ${toolCallId}`, { ...emptyBlock('tool'), toolCallId, toolName }, metadata);
  }

  // A new block ends all earlier text and reasoning, because the formats cannot resume an earlier block.
  #push(key: string, block: Block, metadata: ProviderMetadata | undefined): QueuedBlock {
    for (const earlierBlock of this.#blocks)
      if (earlierBlock.block.kind !== 'tool') earlierBlock.hasEnded = true;
    const queued = { key, block, pending: [], hasStarted: false, hasEnded: false };
    this.#addReplay(queued, metadata);
    this.#blocks.push(queued);
    return queued;
  }

  #end(kind: TextKind, id: string, metadata: ProviderMetadata | undefined): void {
    const queued = this.#find(kind, id);
    if (queued === undefined) return;
    this.#addReplay(queued, metadata);
    queued.hasEnded = true;
  }

  #endTool(part: Extract<StreamPart, { type: 'tool-call' }>): void {
    const { toolCallId, toolName, input, providerMetadata } = part;
    if (this.#toolCalls.has(toolCallId)) return;
    this.#toolCalls.add(toolCallId);
    const existing = this.#find('tool', toolCallId);
    const queued = existing ?? this.#openTool(toolCallId, toolName);
    this.#addReplay(queued, providerMetadata);
    // The deltas of a streamed call carried all of its input.
    if (queued.block.text === '' && queued.pending.length === 0 && input !== '') queued.pending.push(input);
    queued.hasEnded = true;
  }

  #find(kind: Block['kind'], id: string): QueuedBlock | undefined {
    const key = `${kind} ${id}`;
    return this.#blocks.findLast((queued) => queued.key === key && !queued.hasEnded);
  }

  #addReplay({ block }: QueuedBlock, metadata: ProviderMetadata | undefined): void {
    if (metadata === undefined || block.kind === 'text') return;
    const replay = block.kind === 'tool' ? toolCallReplay(metadata) : reasoningReplay(metadata);
    block.replay = mergeReplay(block.replay, replay);
  }
}

// Empty texts are dropped, except for reasoning that a provider returns only in encrypted form.
function hasContent({ block, pending, hasEnded }: QueuedBlock): boolean {
  return block.kind === 'tool' || pending.length > 0 || (hasEnded && block.replay !== undefined);
}
