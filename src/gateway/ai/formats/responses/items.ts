// Builds items of the responses format from the blocks of the hub's answer.
import type { ResponseContentPart, ResponseOutputItem } from '../../../../contract/gateway/types.gen.ts';
import { id } from '../../../../kernel/ids.ts';
import type { Block } from '../translation/blocks.ts';
import { encodeReplay } from '../translation/replay.ts';
import type { CallerTool, ToolTable } from './tool-table.ts';
import { readCustomInput } from './tools.ts';

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

/** A block with the id of its item. */
export interface BlockItem {
  itemId: string;
  block: Block;
  /** The tool that the block calls; its name is empty in other blocks. */
  tool: CallerTool;
}

export function createItem(block: Block, table: ToolTable): BlockItem {
  const tool = table.find(block.toolName);
  const { isCustom } = tool;
  const prefixes = { text: 'msg', reasoning: 'rs', tool: isCustom ? 'ctc' : 'fc' };
  return { itemId: id(prefixes[block.kind]), block, tool };
}

/** The item with the content of its block; an `in_progress` item has no content. */
export function serializeItem(item: BlockItem, status: ItemStatus): ResponseOutputItem {
  const { itemId, block } = item;
  const isEmpty = status === 'in_progress';
  switch (block.kind) {
    case 'text':
      return {
        type: 'message',
        id: itemId,
        status,
        role: 'assistant',
        content: isEmpty ? [] : [outputText(block.text)],
      };
    case 'reasoning':
      return {
        type: 'reasoning',
        id: itemId,
        summary: isEmpty || block.text === '' ? [] : [summaryText(block.text)],
        ...(isEmpty ? {} : { encrypted_content: encodeReplay({ options: block.replay ?? {} }) }),
      };
    case 'tool':
      return serializeToolCall(item, status);
  }
}

function serializeToolCall({ itemId, block, tool }: BlockItem, status: ItemStatus): ResponseOutputItem {
  const { name, namespace, isCustom } = tool;
  const call = {
    id: itemId,
    call_id: block.toolCallId,
    ...(namespace === undefined ? {} : { namespace }),
    name,
    status,
  };
  const text = status === 'in_progress' ? '' : block.text;
  return isCustom
    ? { type: 'custom_tool_call', ...call, input: text === '' ? '' : readCustomInput(text) }
    : { type: 'function_call', ...call, arguments: text };
}

/** A reasoning item with the replay metadata of a tool call: clients return reasoning items unchanged. */
export function replayItem({ block: { toolCallId, replay = {} } }: BlockItem): ResponseOutputItem {
  const encryptedReplay = encodeReplay({ toolCallId, options: replay });
  return { type: 'reasoning', id: id('rs'), summary: [], encrypted_content: encryptedReplay };
}

export function outputText(text: string): ResponseContentPart {
  return { type: 'output_text', text, annotations: [], logprobs: [] };
}

export function summaryText(text: string): ResponseContentPart {
  return { type: 'summary_text', text };
}
