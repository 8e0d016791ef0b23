// A call whose response the gateway stores (`store: true`), or that continues a stored response
// (`previous_response_id`). The provider gets the whole conversation and stores nothing, so both work
// alike on every model. The response gets an id of the gateway, also where the provider has its own.
import type { ResponseAnswer, ResponseEvent, ResponseRequest } from '../../../contract/gateway/types.gen.ts';
import { id } from '../../../kernel/ids.ts';
import type { JsonRecord } from '../../../kernel/json-value.ts';
import { invalidMember, type Problem } from '../../../kernel/problem.ts';
import type { Identity } from '../../identity.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { TranslatedFormat } from '../handlers/translated-format.ts';
import { isCompaction, summaryMessage } from '../formats/responses/compaction.ts';
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
  /** The call runs on without its client. */
  isBackground: boolean;
  /** The request of the caller. */
  request: ResponseRequest;
  /** The request for the model: with the whole conversation, and without what the gateway does itself. */
  body: ResponseRequest;
  rawBody: Uint8Array;
}

/** Whether the gateway stores the response, continues another one, or has sealed a summary in its input. */
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
 * Reads the conversation of the call. Throws a 400 for a missing response, and a 413 for a
 * conversation that is too long.
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
  const conversation = await expand(storedResponses, { body, owner, previousId, isStored, model });
  const rawBody = Buffer.from(JSON.stringify(conversation));
  if (previousId !== null && rawBody.length > maxConversationBytes) throw conversationTooLong();
  return {
    responseId: id('resp'),
    owner,
    previousId,
    isStored,
    isBackground,
    request: body,
    body: conversation,
    rawBody,
  };
}

async function expand(
  storedResponses: StoredResponses,
  {
    body,
    owner,
    previousId,
    isStored,
    model,
  }: Pick<ResponsePlan, 'body' | 'owner' | 'previousId' | 'isStored'> & { model: CatalogModel },
): Promise<ResponseRequest> {
  const { previous_response_id: _previous, background: _background, ...modelBody } = body;
  const request: ResponseRequest = { ...modelBody, store: false };
  const items = await readItems(storedResponses, { body, owner, model });
  if (previousId !== null || items.some(hasSealedSummary))
    request.input = openSummaries(storedResponses, owner, items) as ResponseRequest['input'];
  // OpenAI's reasoning can be sent again only with its encrypted content.
  if (isStored && adapterOf(model).encryptsReasoning === true && model.reasoning !== undefined)
    request['include'] = withEncryptedReasoning(body['include']);
  return request;
}

/** The items of the conversation that the call continues, then its own. */
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

// Opening takes some microseconds, in one turn of the event loop.
const maxSummaries = 100;

/** The items with the summaries of the gateway as messages. Throws a 400 for one that cannot be opened. */
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
    return summaryMessage(summary);
  });
}

function unreadableSummary(): Problem {
  return invalidMember(
    'input',
    `has a compaction of another user, one that is changed, or more than ${maxSummaries} of them`,
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
