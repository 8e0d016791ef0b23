// LRU cache of sessions: the row as this process last left it, and the conversation.
// The row saves a SELECT FOR UPDATE per write and is never trusted: a write that was
// planned from it carries `expectedSeq`, and every change of the row raises that.
// The conversation never becomes wrong, only incomplete, since a log only grows.
import { createLruCache, type LruCache } from '../../../kernel/cache.ts';
import { applyEvent, type ConversationProjection } from './conversation.ts';
import type { StoredEvent } from './events.ts';
import type { SessionLocator, SessionRecord } from './session-store.ts';
import type { AppliedAppend, SessionChange } from './unit.ts';

export interface SessionCache {
  /** Returns a copy. */
  record(locator: SessionLocator): SessionRecord | undefined;
  putRecord(session: SessionRecord): void;
  conversation(sessionKey: string): CachedConversation | undefined;
  putConversation(sessionKey: string, conversation: CachedConversation): void;
  /** Applies what a unit of work has committed. */
  apply(events: readonly StoredEvent[], applied: readonly AppliedAppend[]): void;
  delete(sessionKey: string): void;
}

export interface CachedConversation {
  projection: ConversationProjection;
  /** All events up to this seq are applied. */
  upToSeq: number;
  /** Characters of the applied events, at least those of their texts and files. */
  length: number;
}

interface Entry {
  record: SessionRecord | null;
  conversation: CachedConversation | null;
}

// Capacity in characters. An entry without a conversation counts 2,000, so that there are at most
// 2,000 of them.
const capacity = 4_000_000;
const baseWeight = 2_000;

interface CacheState {
  readonly entries: LruCache<string, Entry>;
  /** The keys of cached records by the names of their locators. */
  readonly keys: Map<string, string>;
}

export function createSessionCache(): SessionCache {
  const keys = new Map<string, string>();
  const onEvict = (_key: string, entry: Entry): void => unlink(keys, entry);
  const entries = createLruCache<string, Entry>({ capacity, onEvict });
  const cache: CacheState = { entries, keys };
  return {
    record(locator) {
      const key = 'key' in locator ? locator.key : keys.get(nameOf(locator));
      const record = key === undefined ? undefined : entries.get(key)?.record;
      return record ? { ...record } : undefined;
    },
    putRecord(session) {
      // Do not cache a fork with ancestors: when they are copied, its lineage becomes empty without an event,
      // and the cached row would not show it.
      if (session.lineage.length > 0) return;
      dropRecord(cache, session.key);
      put(cache, session.key, { record: { ...session } });
      for (const name of locatorNames(session)) keys.set(name, session.key);
    },
    conversation: (sessionKey) => entries.get(sessionKey)?.conversation ?? undefined,
    putConversation: (sessionKey, conversation) => put(cache, sessionKey, { conversation }),
    apply(events, applied) {
      for (const append of applied) applyAppend(cache, append);
      for (const event of events) applyToConversation(cache, event);
    },
    delete(sessionKey) {
      dropRecord(cache, sessionKey);
      entries.delete(sessionKey);
    },
  };
}

function put({ entries }: CacheState, sessionKey: string, change: Partial<Entry>): void {
  const empty: Entry = { record: null, conversation: null };
  const { record, conversation } = { ...empty, ...entries.peek(sessionKey), ...change };
  entries.set(sessionKey, { record, conversation }, baseWeight + (conversation?.length ?? 0));
}

function dropRecord({ entries, keys }: CacheState, sessionKey: string): void {
  const entry = entries.peek(sessionKey);
  if (!entry) return;
  unlink(keys, entry);
  entry.record = null;
}

function unlink(keys: CacheState['keys'], { record }: Entry): void {
  if (record === null) return;
  for (const name of locatorNames(record)) if (keys.get(name) === record.key) keys.delete(name);
}

function applyAppend(
  cache: CacheState,
  { append: { sessionKey, events, change = {} }, headSeq }: AppliedAppend,
): void {
  const record = cache.entries.peek(sessionKey)?.record;
  if (!record) return;
  // Another process wrote in between, or the events changed members that are not in `change`.
  if (record.headSeq + events.length !== headSeq || events.some(({ type }) => type.startsWith('session.')))
    return dropRecord(cache, sessionKey);
  record.headSeq = headSeq;
  applyChange(record, change);
}

function applyToConversation(cache: CacheState, event: StoredEvent): void {
  const conversation = cache.entries.peek(event.sessionKey)?.conversation;
  // Events before this one are missing; the next reader loads them from the database.
  if (conversation?.upToSeq !== event.seq - 1) return;
  addToConversation(conversation, event);
  put(cache, event.sessionKey, { conversation });
}

function applyChange(record: SessionRecord, change: SessionChange): void {
  if (change.activeRunId !== undefined) record.activeRunId = change.activeRunId;
  record.queueLength += change.queue ?? 0;
  record.pendingApprovals += change.approvals ?? 0;
  record.messageCount += change.messages ?? 0;
  record.inputTokens += change.inputTokens ?? 0;
  record.outputTokens += change.outputTokens ?? 0;
  record.cachedInputTokens += change.cachedInputTokens ?? 0;
  record.reasoningTokens += change.reasoningTokens ?? 0;
  record.credits += change.credits ?? 0;
  record.title ??= change.title ?? null;
}

export function addToConversation(conversation: CachedConversation, event: StoredEvent): void {
  conversation.upToSeq = event.seq;
  conversation.length += event.json.length;
  applyEvent(conversation.projection, event);
}

/** A string that is unique to the locator's session. */
export function nameOf(locator: SessionLocator): string {
  if ('id' in locator) return `id ${locator.id}`;
  return 'chatId' in locator ? `chat ${locator.chatId}` : `key ${locator.key}`;
}

function locatorNames({ id, chatId }: SessionRecord): string[] {
  return chatId === null ? [nameOf({ id })] : [nameOf({ id }), nameOf({ chatId })];
}
