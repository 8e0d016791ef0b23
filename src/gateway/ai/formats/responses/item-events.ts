// Serializes the blocks of a streamed answer as events. Each item is added, receives its content in deltas,
// and is done before the next item is added.
import type { ResponseEvent, ResponseOutputItem } from '../../../../contract/gateway/types.gen.ts';
import type { BlockEvent } from '../translation/blocks.ts';
import { type BlockItem, createItem, outputText, replayItem, serializeItem, summaryText } from './items.ts';
import type { ToolTable } from './tool-table.ts';
import { readCustomInput } from './tools.ts';

/** An event without its `sequence_number`. */
export type UnnumberedEvent = ResponseEvent;

export interface ItemEvents {
  serialize(event: BlockEvent): Generator<UnnumberedEvent>;
  /** The completed items. */
  readonly output: ResponseOutputItem[];
}

export function createItemEvents(table: ToolTable): ItemEvents {
  const output: ResponseOutputItem[] = [];
  let item: BlockItem | undefined;
  let hasSentReplay = false;
  let hasContent = false;

  function* addWholeItem(outputItem: ResponseOutputItem): Generator<UnnumberedEvent> {
    yield { type: 'response.output_item.added', output_index: output.length, item: outputItem };
    yield* finish(outputItem);
  }

  function* finish(outputItem: ResponseOutputItem): Generator<UnnumberedEvent> {
    yield { type: 'response.output_item.done', output_index: output.length, item: outputItem };
    output.push(outputItem);
  }

  function* end(openItem: BlockItem): Generator<UnnumberedEvent> {
    yield* contentEnd(openItem, output.length);
    yield* finish(serializeItem(openItem, 'completed'));
    if (openItem.block.kind === 'tool' && openItem.block.replay !== undefined && !hasSentReplay)
      yield* addWholeItem(replayItem(openItem));
  }

  return {
    output,
    *serialize(event) {
      if (event.type === 'start') {
        item = createItem(event.block, table);
        hasSentReplay = event.block.kind === 'tool' && event.block.replay !== undefined;
        if (hasSentReplay) yield* addWholeItem(replayItem(item));
        const newItem = serializeItem(item, 'in_progress');
        yield { type: 'response.output_item.added', output_index: output.length, item: newItem };
        hasContent = false;
        if (event.block.kind === 'text') yield* contentStart(item, output.length);
      } else if (item !== undefined) {
        if (event.type === 'end') yield* end(item);
        else {
          // The first delta opens the summary, because some reasoning arrives only in encrypted form.
          if (event.block.kind === 'reasoning' && !hasContent) yield* contentStart(item, output.length);
          hasContent = true;
          yield* contentDelta(item, output.length, event.delta);
        }
      }
    },
  };
}

function* contentStart({ itemId, block }: BlockItem, outputIndex: number): Generator<UnnumberedEvent> {
  const itemMembers = { item_id: itemId, output_index: outputIndex };
  yield block.kind === 'text'
    ? { type: 'response.content_part.added', ...itemMembers, content_index: 0, part: outputText('') }
    : {
        type: 'response.reasoning_summary_part.added',
        ...itemMembers,
        summary_index: 0,
        part: summaryText(''),
      };
}

function* contentDelta(
  { itemId, block, tool }: BlockItem,
  outputIndex: number,
  delta: string,
): Generator<UnnumberedEvent> {
  const itemMembers = { item_id: itemId, output_index: outputIndex };
  if (block.kind === 'text')
    yield { type: 'response.output_text.delta', ...itemMembers, content_index: 0, delta, logprobs: [] };
  else if (block.kind === 'reasoning')
    yield { type: 'response.reasoning_summary_text.delta', ...itemMembers, summary_index: 0, delta };
  else if (!tool.isCustom) yield { type: 'response.function_call_arguments.delta', ...itemMembers, delta };
}

function* contentEnd({ itemId, block, tool }: BlockItem, outputIndex: number): Generator<UnnumberedEvent> {
  const itemMembers = { item_id: itemId, output_index: outputIndex };
  const { text } = block;
  if (block.kind === 'text') {
    const partMembers = { ...itemMembers, content_index: 0 };
    yield { type: 'response.output_text.done', ...partMembers, text, logprobs: [] };
    yield { type: 'response.content_part.done', ...partMembers, part: outputText(text) };
  } else if (block.kind === 'reasoning') {
    if (text === '') return;
    const partMembers = { ...itemMembers, summary_index: 0 };
    yield { type: 'response.reasoning_summary_text.done', ...partMembers, text };
    yield { type: 'response.reasoning_summary_part.done', ...partMembers, part: summaryText(text) };
  } else if (tool.isCustom) {
    // The model writes the text inside a JSON value, so it is sent once the JSON is complete.
    const input = readCustomInput(text);
    yield { type: 'response.custom_tool_call_input.delta', ...itemMembers, delta: input };
    yield { type: 'response.custom_tool_call_input.done', ...itemMembers, input };
  } else
    yield {
      type: 'response.function_call_arguments.done',
      ...itemMembers,
      name: tool.name,
      arguments: text,
    };
}
