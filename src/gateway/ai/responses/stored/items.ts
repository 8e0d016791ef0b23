// Items of stored responses: the form in which they are stored and listed, and the form in which a
// later call sends them to a model again.
import { id } from '../../../../kernel/ids.ts';
import { isRecord, type JsonRecord } from '../../../../kernel/json-value.ts';
import { decodeReplay } from '../../formats/translation/replay.ts';

const idPrefixes: Readonly<Record<string, string>> = {
  message: 'msg',
  reasoning: 'rs',
  function_call: 'fc',
  function_call_output: 'fco',
  custom_tool_call: 'ctc',
  custom_tool_call_output: 'cto',
};

/** The input of a request as items with an id and a type, the content of messages as parts. */
export function toStoredItems(input: unknown): JsonRecord[] {
  if (typeof input === 'string') return toStoredItems([{ role: 'user', content: input }]);
  if (!Array.isArray(input)) return [];
  return input.filter(isRecord).map(toStoredItem);
}

function toStoredItem(item: JsonRecord): JsonRecord {
  const { role, content } = item;
  const type = typeof item['type'] === 'string' ? item['type'] : 'message';
  const itemId = typeof item['id'] === 'string' ? item['id'] : id(idPrefixes[type] ?? 'item');
  const isText = type === 'message' && typeof content === 'string';
  return { ...item, type, id: itemId, ...(isText ? { content: [textPart(role, content)] } : {}) };
}

function textPart(role: unknown, text: string): JsonRecord {
  return role === 'assistant' ? { type: 'output_text', text, annotations: [] } : { type: 'input_text', text };
}

// Items that are complete without their id. It is left out, because a provider refuses the id of an item
// that it has not stored itself.
const typesWithoutId = new Set([
  'message',
  'function_call',
  'function_call_output',
  'custom_tool_call',
  'custom_tool_call_output',
]);

/**
 * The items as input of a later call. Reasoning that the next provider cannot read is left out: reasoning
 * without encrypted content, and with `passesThrough` also content that another provider encrypted.
 */
export function toContextItems(
  items: readonly JsonRecord[],
  { passesThrough }: { passesThrough: boolean },
): JsonRecord[] {
  return items.flatMap((item): JsonRecord[] => {
    const { type } = item;
    if (type === 'reasoning') return isReadable(item, passesThrough) ? [item] : [];
    if (typeof type !== 'string' || !typesWithoutId.has(type)) return [item];
    const { id: _id, ...itemWithoutId } = item;
    return [itemWithoutId];
  });
}

function isReadable({ encrypted_content: content }: JsonRecord, passesThrough: boolean): boolean {
  if (typeof content !== 'string' || content === '') return false;
  return !passesThrough || decodeReplay(content) === undefined;
}

export interface PageQuery {
  limit?: number | undefined;
  order?: 'asc' | 'desc' | undefined;
  after?: string | undefined;
}

export interface ItemPage {
  object: 'list';
  data: JsonRecord[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

/** One page of the items; undefined when no item has the id `after`. */
export function pageOfItems(
  items: readonly JsonRecord[],
  { limit = 20, order = 'desc', after }: PageQuery,
): ItemPage | undefined {
  const orderedItems = order === 'asc' ? items : items.toReversed();
  const start = after === undefined ? 0 : orderedItems.findIndex((item) => item['id'] === after) + 1;
  if (start === 0 && after !== undefined) return undefined;
  const data = orderedItems.slice(start, start + limit);
  return {
    object: 'list',
    data,
    first_id: (data[0]?.['id'] as string | undefined) ?? null,
    last_id: (data.at(-1)?.['id'] as string | undefined) ?? null,
    has_more: orderedItems.length > start + limit,
  };
}
