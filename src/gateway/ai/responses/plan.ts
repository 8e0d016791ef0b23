// A call whose response the gateway stores (`store: true`), or that continues a stored response
// (`previous_response_id`). The provider gets the whole conversation and stores nothing, so both work
// alike on every model. The gateway assigns the id of the response, even if the provider sends its own.
import type { ResponseAnswer, ResponseEvent, ResponseRequest } from '../../../contract/gateway/types.gen.ts';
import { id } from '../../../kernel/ids.ts';
import type { JsonRecord } from '../../../kernel/json-value.ts';
import { invalidMember, type Problem } from '../../../kernel/problem.ts';
import type { Identity } from '../../identity.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { TranslatedFormat } from '../handlers/translated-format.ts';
import { isCompaction, toSummaryMessage } from '../formats/responses/compaction.ts';
import { adapterOf } from '../providers/adapters.ts';
import { toContextItems } from './stored/items.ts';
import { isSealedSummary } from './stored/summaries.ts';
import { type Owner, ownerOf } from '../calls/owner.ts';
import {
  conversationTooLong,
  maxConversationBytes,
  type StoredResponses,
} from './stored/stored-responses.ts';

/** The responses format, for calls and for the formats that wrap it. */
export type ResponsesFormat = TranslatedFormat<ResponseRequest, ResponseAnswer, ResponseEvent>;

export interface ResponsePlan {
  responseId: string;
  owner: Owner;
  previousId: string | null;
  isStored: boolean;
  /** Whether the call keeps running when its client disconnects. */
  isBackground: boolean;
  /** The request of the caller. */
  request: ResponseRequest;
  /** The request for the model: the whole conversation, without the members that the gateway implements. */
  body: ResponseRequest;
  rawBody: Uint8Array;
}

/**
 * Whether the call needs the gateway's storage: it stores its response, continues another response, or has a
 * summary in its input that the gateway has sealed.
 */
export function needsPlan({
  store,
  background,
  previous_response_id: previousId = null,
  input,
}: ResponseRequest): boolean {
  return (
    store === true ||
    background === true ||
    previousId !== null ||
    (Array.isArray(input) && input.some(hasSealedSummary))
  );
}

function hasSealedSummary(item: unknown): item is JsonRecord {
  return isCompaction(item) && isSealedSummary(item['encrypted_content']);
}

/**
 * Reads the conversation of the call. Throws a 400 when a response of the conversation is missing, and a 413
 * when the conversation is too long.
 */
export async function planResponse(
  storedResponses: StoredResponses,
  { body, identity }: { body: ResponseRequest; identity: Identity },
  model: CatalogModel,
): Promise<ResponsePlan> {
  const previousId = body.previous_response_id ?? null;
  const isBackground = body.background === true;
  const isStored = body.store === true || isBackground;
  const owner = ownerOf(identity);
  const modelBody = await toModelRequest(storedResponses, { body, owner, previousId, isStored, model });
  const rawBody = Buffer.from(JSON.stringify(modelBody));
  if (previousId !== null && rawBody.length > maxConversationBytes) throw conversationTooLong();
  return {
    responseId: id('resp'),
    owner,
    previousId,
    isStored,
    isBackground,
    request: body,
    body: modelBody,
    rawBody,
  };
}

interface PlannedCall extends Pick<ResponsePlan, 'body' | 'owner' | 'previousId' | 'isStored'> {
  model: CatalogModel;
}

async function toModelRequest(
  storedResponses: StoredResponses,
  { body, owner, previousId, isStored, model }: PlannedCall,
): Promise<ResponseRequest> {
  const { previous_response_id: _previous, background: _background, ...modelBody } = body;
  const request: ResponseRequest = { ...modelBody, store: false };
  const items = await readItems(storedResponses, { body, owner, model });
  if (previousId !== null || items.some(hasSealedSummary))
    request.input = openSummaries(storedResponses, owner, items) as ResponseRequest['input'];
  // A later call can send OpenAI's reasoning items again only if they have their encrypted content.
  if (isStored && adapterOf(model).encryptsReasoning === true && model.reasoning !== undefined)
    request['include'] = withEncryptedReasoning(body['include']);
  return request;
}

/** The items of the conversation that the call continues, followed by the call's own items. */
export async function readItems(
  storedResponses: Pick<StoredResponses, 'conversation'>,
  { body, owner, model }: { body: ResponseRequest; owner: Owner; model: CatalogModel },
): Promise<unknown[]> {
  const newItems = ownItems(body.input);
  const previousId = body.previous_response_id ?? null;
  if (previousId === null) return newItems;
  const passesThrough = model.providerEntry.formats.includes('responses');
  const earlierItems = await storedResponses.conversation({ responseId: previousId, owner });
  return [...toContextItems(earlierItems, { passesThrough }), ...newItems];
}

// Decrypting a summary takes some microseconds and blocks the event loop.
const maxSummaries = 100;

/**
 * Replaces the gateway's sealed summaries with messages. Throws a 400 for a summary that cannot be opened.
 */
export function openSummaries(
  { summaries }: Pick<StoredResponses, 'summaries'>,
  owner: Owner,
  items: readonly unknown[],
): unknown[] {
  let count = 0;
  return items.map((item) => {
    if (!hasSealedSummary(item)) return item;
    count += 1;
    const summary =
      count > maxSummaries ? undefined : summaries.open(owner, item['encrypted_content'] as string);
    if (summary === undefined) throw unreadableSummary();
    return toSummaryMessage(summary);
  });
}

function unreadableSummary(): Problem {
  return invalidMember(
    'input',
    `has a compaction of another user, a modified compaction, or more than ${maxSummaries} compactions`,
  );
}

function ownItems(input: ResponseRequest['input']): unknown[] {
  if (typeof input === 'string') return [{ type: 'message', role: 'user', content: input }];
  return input ?? [];
}

const encryptedReasoning = 'reasoning.encrypted_content';

function withEncryptedReasoning(include: unknown): unknown {
  if (include === undefined || include === null) return [encryptedReasoning];
  if (!Array.isArray(include) || include.includes(encryptedReasoning)) return include;
  return [...(include as unknown[]), encryptedReasoning];
}
