// Unpacks replay metadata in a request that passes through. A conversation that was translated before may
// continue at a provider that supports the format. Metadata that came from this provider is restored to its
// own members. The provider would reject metadata of another provider, so the reasoning with it is left out,
// with a warning.
import { isRecord } from '../../../../kernel/json-value.ts';
import {
  applyEdits,
  arrayItems,
  type Edit,
  itemRemovals,
  memberRemovals,
  type Member,
  type Members,
  type Span,
  topLevelMembers,
} from '../../upstream/json-members.ts';
import type { DroppedHints } from '../translation/dropped-hints.ts';
import { decodeReplay, isReplay } from '../translation/replay.ts';

type JsonObject = Readonly<Record<string, unknown>>;

/** Returns the request with its replay metadata unpacked; unchanged if it contains none. */
export type UnpackReplay = (body: object, rawBody: Uint8Array, hints: DroppedHints) => Uint8Array;

/** A block of reasoning after unpacking: new values of its members, or null when it is left out. */
type UnpackedBlock = Readonly<Record<string, string>> | null;

/** Returns undefined for a block without packed metadata. */
type UnpackBlock = (block: JsonObject) => UnpackedBlock | undefined;

export const unpackMessages: UnpackReplay = (body, rawBody, hints) =>
  unpack(body, rawBody, { turns: 'messages', blocks: 'content', unpackBlock: unpackThinking, hints });

export const unpackChat: UnpackReplay = (body, rawBody, hints) =>
  unpack(body, rawBody, { turns: 'messages', blocks: 'reasoning_details', unpackBlock: unpackDetail, hints });

export const unpackResponses: UnpackReplay = (body, rawBody, hints) =>
  unpack(body, rawBody, { turns: 'input', unpackBlock: unpackReasoningItem, hints });

function unpackThinking({ type, signature, data }: JsonObject): UnpackedBlock | undefined {
  if (type === 'thinking' && isReplay(signature)) {
    const ownData = decodeReplay(signature)?.options['anthropic']?.['signature'];
    return typeof ownData === 'string' ? { signature: ownData } : null;
  }
  if (type !== 'redacted_thinking' || !isReplay(data)) return undefined;
  const ownData = decodeReplay(data)?.options['anthropic']?.['redactedData'];
  return typeof ownData === 'string' ? { data: ownData } : null;
}

function unpackReasoningItem({ type, encrypted_content: content }: JsonObject): UnpackedBlock | undefined {
  if (type !== 'reasoning' || !isReplay(content)) return undefined;
  const { reasoningEncryptedContent: ownContent, itemId } = decodeReplay(content)?.options['openai'] ?? {};
  if (typeof ownContent !== 'string') return null;
  return { encrypted_content: ownContent, ...(typeof itemId === 'string' ? { id: itemId } : {}) };
}

// A provider that supports this format returns its own details, so a packed detail is from another provider.
function unpackDetail({ signature }: JsonObject): UnpackedBlock | undefined {
  return isReplay(signature) ? null : undefined;
}

interface UnpackOptions {
  /** The member with the turns, or with the blocks themselves. */
  turns: string;
  /** The member of a turn with its blocks. */
  blocks?: string;
  unpackBlock: UnpackBlock;
  hints: DroppedHints;
}

function unpack(body: object, rawBody: Uint8Array, options: UnpackOptions): Uint8Array {
  const { turns, blocks, unpackBlock } = options;
  const isPacked = (block: JsonObject): boolean => unpackBlock(block) !== undefined;
  const hasPacked =
    blocks === undefined ? isPacked : (turn: JsonObject) => someObject(turn[blocks], isPacked);
  if (!someObject((body as JsonObject)[turns], hasPacked)) return rawBody;
  const bytes = Buffer.from(rawBody.buffer, rawBody.byteOffset, rawBody.byteLength);
  const edits = (topLevelMembers(bytes)?.members ?? [])
    .filter(({ name }) => name === turns)
    .flatMap((member) =>
      blocks === undefined
        ? editsOfBlocks(bytes, member, options).edits
        : editsOfTurns(bytes, member, { ...options, blocks }),
    );
  return applyEdits(bytes, edits);
}

function someObject(list: unknown, matches: (item: JsonObject) => boolean): boolean {
  return Array.isArray(list) && list.some((item) => isRecord(item) && matches(item));
}

/** The edits of a list of turns. Removes a turn that would become empty, which providers reject. */
function editsOfTurns(bytes: Buffer, list: Span, options: UnpackOptions & { blocks: string }): Edit[] {
  const turns = arrayItems(bytes, list.start, list.end) ?? [];
  const edits: Edit[] = [];
  const removedIndexes: number[] = [];
  for (const [index, turn] of turns.entries()) {
    const object = topLevelMembers(bytes, turn.start, turn.end);
    if (object === undefined) continue;
    const turnEdits = editsOfTurn(bytes, object, options);
    if (turnEdits.isEmpty) removedIndexes.push(index);
    else edits.push(...turnEdits.edits);
  }
  return [...edits, ...itemRemovals(turns, removedIndexes)];
}

function editsOfTurn(
  bytes: Buffer,
  object: Members,
  options: UnpackOptions & { blocks: string },
): { edits: Edit[]; isEmpty: boolean } {
  const edits: Edit[] = [];
  const emptyMemberIndexes: number[] = [];
  for (const [index, member] of object.members.entries()) {
    if (member.name !== options.blocks) continue;
    const blockEdits = editsOfBlocks(bytes, member, options);
    if (blockEdits.isEmpty) emptyMemberIndexes.push(index);
    else edits.push(...blockEdits.edits);
  }
  // A turn without `content` has nothing left; without `reasoning_details` it still has its text.
  const isEmpty = emptyMemberIndexes.length > 0 && options.blocks === 'content';
  return { edits: [...edits, ...memberRemovals(bytes, object, emptyMemberIndexes)], isEmpty };
}

/** The edits of a list of blocks, and whether they remove all of its blocks. */
function editsOfBlocks(
  bytes: Buffer,
  list: Span,
  { unpackBlock, blocks, hints }: UnpackOptions,
): { edits: Edit[]; isEmpty: boolean } {
  const items = arrayItems(bytes, list.start, list.end) ?? [];
  const edits: Edit[] = [];
  const removedIndexes: number[] = [];
  for (const [index, item] of items.entries()) {
    const members = topLevelMembers(bytes, item.start, item.end)?.members ?? [];
    const texts = textsOf(bytes, members);
    const content = unpackBlock(texts);
    if (content === undefined) continue;
    if (content === null) {
      removedIndexes.push(index);
      const feature = blocks === 'reasoning_details' ? blocks : (texts['type'] ?? 'reasoning');
      hints.add(feature, 'of another provider is not sent to this model');
      continue;
    }
    for (const { name, start, end } of members) {
      const text = content[name];
      if (text !== undefined) edits.push({ start, end, text: JSON.stringify(text) });
    }
  }
  const isEmpty = items.length > 0 && removedIndexes.length === items.length;
  return { edits: [...edits, ...itemRemovals(items, removedIndexes)], isEmpty };
}

// The members that `UnpackBlock` reads. Other members can be megabytes long, so they are not parsed again.
const readMembers = new Set(['type', 'signature', 'data', 'encrypted_content']);
const quote = 0x22;

function textsOf(bytes: Buffer, members: readonly Member[]): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const { name, start, end } of members)
    if (readMembers.has(name) && bytes[start] === quote)
      texts[name] = JSON.parse(bytes.toString('utf8', start, end)) as string;
  return texts;
}
