// The event log: every write to a session goes through it, and it keeps the session cache and the live feed
// up to date. Events are published after their commit, in the order of the log.
import { createBatcher } from '../../../kernel/async.ts';
import type { UiMessage } from '../../../contract/agent/types.gen.ts';
import type { Database } from '../../../kernel/data/database.ts';
import type { Problem } from '../../../kernel/problem.ts';
import { createCommitPath, isRolledBack, maxBatchItems, type CommitPath } from './commit-path.ts';
import { emptyProjection, type Conversation } from './conversation.ts';
import { firstEvents } from './first-events.ts';
import { createLiveFeed, type LiveFeed } from './live-feed.ts';
import { addToConversation, createSessionCache, nameOf, type SessionCache } from './session-cache.ts';
import {
  insertSessions,
  lockSessions,
  openSegmentsOf,
  removeSession,
  sessionStore,
  type NewSession,
  type SessionLocator,
  type SessionRecord,
  type SessionStore,
} from './session-store.ts';
import { appendAll, eventStore, type EventQuery, type EventStore } from './store.ts';
import type { Append, UnitOfWork } from './unit.ts';

export interface EventLog extends Omit<LiveFeed, 'publish'> {
  /** The session, from the cache or the database; a cached one may be out of date. */
  find(locator: SessionLocator): Promise<SessionRecord | undefined>;
  /**
   * Writes a session with its first events. Undefined when its id is taken or its parent is gone. Batched.
   */
  create(session: NewSession): Promise<SessionRecord | undefined>;
  /**
   * Writes events and nothing else, in one statement with appends of other sessions.
   * Null when the fence is closed.
   */
  append(append: Append): Promise<number | null>;
  /**
   * Resolves after the commit. The work may run twice, so it only writes. To refuse
   * it returns a Problem before it has written anything; that Problem is thrown here.
   */
  transact<T>(work: (unit: UnitOfWork) => Promise<T | Problem>): Promise<T>;
  /**
   * Writes what depends on the state of sessions. The first attempt is optimistic: it plans from cached
   * sessions and writes one statement without a lock. Items whose result is `stale` are decided again in a
   * transaction that locks their sessions. Results are in the order of the items; an item stays `stale` only
   * when it is stale under the lock too.
   */
  decide<Item, Result>(
    items: readonly Item[],
    decision: Decision<Item, Result>,
  ): Promise<(Result | 'stale')[]>;
  /**
   * The conversation up to this seq or a later one. `first` is the first input of a session while it is the
   * whole conversation, which then needs no query; null otherwise. `seq` is then that of the last event of
   * the start of its run, and counts as the message's: no other event of the conversation lies between.
   */
  conversation(session: SessionRecord, seq: number, first: UiMessage | null): Promise<Conversation>;
  /** The seq of an event of a run, after the seq `after`; undefined when the log has no such event. */
  findEvent(query: EventQuery): Promise<number | undefined>;
  /** Removes a session, or hides it while forks refer to its events. */
  remove(sessionKey: string): Promise<'hidden' | 'gone'>;
}

export interface Decision<Item, Result> {
  /** Null for an item whose session cannot exist yet. */
  locate(item: Item): SessionLocator | null;
  /**
   * Without a lock its appends need `expectedSeq`, and it may write with one
   * statement only, its last one. Larger writes and every refusal return `stale`.
   */
  run(
    unit: UnitOfWork,
    items: readonly Item[],
    context: { sessions: readonly SessionRecord[]; isLocked: boolean },
  ): Promise<readonly (Result | 'stale')[]>;
}

interface Context extends Pick<CommitPath, 'runStatement' | 'transact'> {
  readonly agentId: string;
  readonly cache: SessionCache;
  readonly sessions: SessionStore;
  readonly events: EventStore;
}

export function createEventLog({
  database,
  agentId,
}: {
  database: Pick<Database, 'sql' | 'tx' | 'engine'>;
  agentId: string;
}): EventLog {
  const { publish, ...feed } = createLiveFeed();
  const cache = createSessionCache();
  const { runStatement, transact } = createCommitPath(database, ({ appended, applied }) => {
    cache.apply(appended, applied);
    publish(appended);
  });
  const sessions = sessionStore(database);
  const events = eventStore(database);
  const context: Context = { agentId, cache, sessions, events, runStatement, transact };
  return {
    ...feed,
    find: (locator) => find(context, locator),
    create: createBatcher(
      async (newSessions: readonly NewSession[]) => {
        const rows = await insertSessions(database.sql, newSessions);
        for (const session of rows.values()) cache.putRecord(session);
        publish(firstEvents(newSessions, rows));
        return newSessions.map(({ key }) => rows.get(key));
      },
      { maxItems: maxBatchItems, hadNoEffect: isRolledBack },
    ),
    append: createBatcher(
      async (appends: readonly Append[]) => {
        const headSeqs = await runStatement((unit) => appendAll(unit, appends));
        return appends.map(({ sessionKey }) => headSeqs.get(sessionKey) ?? null);
      },
      { maxItems: maxBatchItems, keyOf: ({ sessionKey }) => sessionKey, hadNoEffect: isRolledBack },
    ),
    transact,
    decide: (items, decision) => decide(context, items, decision),
    conversation: (session, seq, first) => readConversation(context, session, { seq, first }),
    findEvent: (query) => events.findEvent(query),
    async remove(sessionKey) {
      const outcome = await transact((unit) => removeSession(unit, sessionKey));
      cache.delete(sessionKey);
      feed.announceRemoval(sessionKey);
      return outcome;
    },
  };
}

async function find(
  { agentId, cache, sessions }: Context,
  locator: SessionLocator,
): Promise<SessionRecord | undefined> {
  const cachedRecord = cache.record(locator);
  if (cachedRecord) return cachedRecord;
  const session = await sessions.session(agentId, locator);
  if (session) cache.putRecord(session);
  return session;
}

async function decide<Item, Result>(
  context: Context,
  items: readonly Item[],
  { locate, run }: Decision<Item, Result>,
): Promise<(Result | 'stale')[]> {
  const { agentId, runStatement, transact } = context;
  const locators = distinctLocators(items.map(locate));
  const sessions = await Promise.all(locators.map((locator) => find(context, locator)));
  const records = sessions.filter((session) => session !== undefined);
  const results = await runStatement((unit) => run(unit, items, { sessions: records, isLocked: false }));
  const staleItems = items.filter((_, index) => results[index] === 'stale');
  if (staleItems.length === 0) return [...results];
  const lockedResults = await transact(async (unit) => {
    const lockedSessions = await lockSessions(unit, agentId, distinctLocators(staleItems.map(locate)));
    return run(unit, staleItems, { sessions: lockedSessions, isLocked: true });
  });
  const resultsInOrder = lockedResults.values();
  return results.map((result) => (result === 'stale' ? (resultsInOrder.next().value ?? 'stale') : result));
}

/** Reads only what the cache does not have. */
async function readConversation(
  { cache, events }: Context,
  session: SessionRecord,
  { seq, first }: { seq: number; first: UiMessage | null },
): Promise<Conversation> {
  const cachedConversation = cache.conversation(session.key) ?? {
    projection: emptyProjection(),
    upToSeq: 0,
    length: 0,
  };
  const { projection } = cachedConversation;
  if (first !== null && cachedConversation.upToSeq < seq) {
    // The query of an earlier reader ends at the last event that it needs, so it may have the input already.
    if (!projection.messages.some(({ message }) => message.id === first.id))
      projection.messages.push({ seq, message: first });
    cachedConversation.upToSeq = seq;
    cachedConversation.length += inputLength(first);
  }
  if (cachedConversation.upToSeq < seq) {
    const segments = openSegmentsOf(session);
    const newEvents = await events.conversationEvents(segments, cachedConversation.upToSeq);
    // Appends may have added some of them during the query.
    for (const event of newEvents)
      if (event.seq > cachedConversation.upToSeq) addToConversation(cachedConversation, event);
    cachedConversation.upToSeq = Math.max(cachedConversation.upToSeq, seq);
  }
  cache.putConversation(session.key, cachedConversation);
  const { summary, messages, cut, prunedUpToSeq } = projection;
  return { summary, messages: [...messages], cut, prunedUpToSeq };
}

/** The characters of an input's texts and files, which are nearly all of its event. */
function inputLength({ parts }: UiMessage): number {
  return parts.reduce((sum, part) => {
    if (part.type === 'text') return sum + part.text.length;
    return part.type === 'file' ? sum + part.url.length : sum;
  }, 0);
}

function distinctLocators(locators: readonly (SessionLocator | null)[]): SessionLocator[] {
  const knownLocators = locators.filter((locator) => locator !== null);
  return [...new Map(knownLocators.map((locator) => [nameOf(locator), locator])).values()];
}
