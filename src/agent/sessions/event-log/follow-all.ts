// The stream of all sessions of an agent for one reader: durable events only, the events of each session once
// and in order. Its cursor is a time, because a seq counts the events of one session. Events get their time
// before their commit, so a reader that reconnects gets the events of the last seconds again; it recognizes
// duplicates by their session and seq.
import { createLruCache, type LruCache } from '../../../kernel/cache.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { AllSessionsStore, ChangedSession } from './all-sessions-store.ts';
import type { StoredEvent } from './events.ts';
import type { FollowLimits } from './follow.ts';
import { heartbeats, liveText, timedEventText } from './frames.ts';
import { createInbox, type Inbox, type InboxOptions } from './inbox.ts';
import type { LiveFeed } from './live-feed.ts';

export interface FollowAllOptions {
  feed: Pick<LiveFeed, 'subscribeAll'>;
  store: AllSessionsStore;
  agentId: string;
  /**
   * The session's own events after a seq, without those of a fork's ancestors; empty when there are no more.
   */
  readEvents(sessionKey: string, after: number): Promise<StoredEvent[]>;
  /** How often the events of other processes are read; null when this process is the only one. */
  pollMs: number | null;
  clock: Clock;
  limits: FollowLimits;
}

export interface FollowAllRequest {
  /** The time of the last event that the reader has; null for events from now on. */
  afterMs: number | null;
  /** The client has disconnected, or the agent stops. */
  signal: AbortSignal;
}

// Has to exceed the time between an event's timestamp and its commit, and the clock difference between
// processes.
const overlapMs = 10_000;
const pageSessions = 500;
// A reader that has missed more events of a session gets a `stream.reset` and loads the session instead.
const maxSessionEvents = 1_000;
// The number of sessions whose last sent seq is cached. Any other session counts as new: with replicas, the
// reader gets its events of the last seconds again.
const maxSessions = 10_000;

/** Yields frames. Throws, which destroys the connection, where the client should reconnect. */
export async function* followAll(
  { afterMs, signal }: FollowAllRequest,
  options: FollowAllOptions,
): AsyncGenerator<Uint8Array, void, void> {
  const { feed, pollMs, clock, limits } = options;
  const inbox = openInbox(feed, { maxBytes: limits.maxBufferBytes, signal });
  const startMs = clock.now().getTime();
  const reader = createReader(options, startMs);
  const quietMs = Math.min(limits.heartbeatMs, pollMs ?? limits.heartbeatMs);
  let [polledMs, sentMs] = [clock.monotonicMs(), clock.monotonicMs()];
  try {
    yield Buffer.from('retry: 1000\n\n');
    if (afterMs !== null) yield* reader.catchUp(afterMs - overlapMs);
    for (;;) {
      requireReadable(inbox, signal);
      if (inbox.hasItems()) {
        const frames = await reader.write(inbox.takeItems());
        sentMs = clock.monotonicMs();
        if (frames !== '') yield Buffer.from(frames);
      } else if (pollMs !== null && clock.monotonicMs() - polledMs >= pollMs) {
        polledMs = clock.monotonicMs();
        yield* reader.catchUp(recentMs(startMs, clock));
      } else if ((await inbox.waitForQuiet(quietMs)) && clock.monotonicMs() - sentMs >= limits.heartbeatMs) {
        sentMs = clock.monotonicMs();
        yield heartbeats.sse;
      }
    }
  } finally {
    inbox.close();
  }
}

/** Other processes may still commit events of this time or later. */
function recentMs(startMs: number, clock: Clock): number {
  return Math.max(startMs, clock.now().getTime() - overlapMs);
}

function requireReadable(inbox: Inbox<StoredEvent>, signal: AbortSignal): void {
  if (inbox.hasOverflowed())
    throw new Problem('unavailable', 'not_ready', 'The reader is too slow; reconnect with the last id.');
  if (signal.aborted)
    throw new Problem('unavailable', 'draining', 'The stream was cut; reconnect with the last id.');
}

// The approximate size of the members and the frame around an event.
const overheadBytes = 200;

function openInbox(feed: FollowAllOptions['feed'], options: InboxOptions): Inbox<StoredEvent> {
  const inbox = createInbox<StoredEvent>(options);
  const unsubscribe = feed.subscribeAll((events) =>
    inbox.push(
      events,
      events.reduce((sum, event) => sum + event.json.length + overheadBytes, 0),
    ),
  );
  return {
    ...inbox,
    close() {
      unsubscribe();
      inbox.close();
    },
  };
}

interface Reader {
  /** The unsent events since a time; for a session with too many of them a `stream.reset`. */
  catchUp(sinceMs: number): AsyncGenerator<Uint8Array, void, void>;
  /** The frames of live events; empty when the reader has all of them. */
  write(events: readonly StoredEvent[]): Promise<string>;
}

/** How much of a session the reader has received. */
interface SentSession {
  id: string;
  /**
   * The reader has the events up to this seq, or does not need them. Null before the first event when this
   * process is the only one: then no event before that one can be missing.
   */
  seq: number | null;
}

interface ReaderState {
  readonly options: FollowAllOptions;
  readonly sessions: LruCache<string, SentSession>;
  /** When the stream began; the reader needs no earlier events, apart from those after its cursor. */
  readonly startMs: number;
}

function createReader(options: FollowAllOptions, startMs: number): Reader {
  const reader: ReaderState = { options, sessions: createLruCache({ capacity: maxSessions }), startMs };
  return {
    catchUp: (sinceMs) => catchUp(reader, sinceMs),
    async write(events) {
      await loadSessions(reader, events);
      let frames = '';
      for (const event of events) frames += await writeEvent(reader, event);
      return frames;
    },
  };
}

async function* catchUp(reader: ReaderState, sinceMs: number): AsyncGenerator<Uint8Array, void, void> {
  const { store, agentId, limits } = reader.options;
  let budget = limits.maxReplayEvents;
  for (let afterKey = ''; ;) {
    const page = await store.changedSince({ agentId, sinceMs, afterKey, limit: pageSessions });
    for (const session of page) {
      const fromSeq = reader.sessions.peek(session.key)?.seq ?? session.fromSeq;
      const count = session.headSeq - fromSeq;
      if (count <= 0) continue;
      if (count <= Math.min(maxSessionEvents, budget)) {
        budget -= count;
        for await (const text of replay(reader, session, fromSeq)) yield Buffer.from(text);
      } else yield Buffer.from(resetText(reader, session, fromSeq));
    }
    if (page.length < pageSessions) return;
    afterKey = (page.at(-1) as ChangedSession).key;
  }
}

async function* replay(
  { options, sessions }: ReaderState,
  { key, id, headSeq }: Pick<ChangedSession, 'key' | 'id' | 'headSeq'>,
  fromSeq: number,
): AsyncGenerator<string, void, void> {
  for (let seq = fromSeq; seq < headSeq;) {
    const events = await options.readEvents(key, seq);
    if (events.length === 0) return;
    yield events.map((event) => timedEventText(event, id)).join('');
    seq = (events.at(-1) as StoredEvent).seq;
    sessions.set(key, { id, seq });
  }
}

/** The frame after which the client loads the session, because it misses too many events. */
function resetText(
  { options: { clock }, sessions }: ReaderState,
  { key, id, headSeq }: ChangedSession,
  fromSeq: number,
): string {
  sessions.set(key, { id, seq: headSeq });
  const time = clock.now().toISOString();
  const reset = { type: 'stream.reset', sessionId: id, time, after: fromSeq, headSeq, reason: 'too_old' };
  return liveText(reset, 'sse');
}

/** Loads the sessions of these events that the reader has no events of yet. */
async function loadSessions(
  { options: { store, agentId, pollMs, clock }, sessions, startMs }: ReaderState,
  events: readonly StoredEvent[],
): Promise<void> {
  const firstSeqs = new Map<string, number>();
  for (const { sessionKey, seq } of events)
    if (!sessions.peek(sessionKey) && !firstSeqs.has(sessionKey)) firstSeqs.set(sessionKey, seq);
  if (firstSeqs.size === 0) return;
  const sinceMs = recentMs(startMs, clock);
  for (const { key, id, fromSeq } of await store.find({
    agentId,
    sinceMs,
    sessionKeys: [...firstSeqs.keys()],
  })) {
    // Another process may have written earlier events since the last poll. The clocks may differ, so the
    // event itself counts as new whatever its time.
    const seq = pollMs === null ? null : Math.min(fromSeq, (firstSeqs.get(key) as number) - 1);
    sessions.set(key, { id, seq });
  }
}

async function writeEvent(reader: ReaderState, event: StoredEvent): Promise<string> {
  const { sessions } = reader;
  const { sessionKey: key } = event;
  const session = sessions.get(key);
  // The session was removed, or the reader has the event.
  if (session === undefined || (session.seq !== null && event.seq <= session.seq)) return '';
  const { id, seq } = session;
  let frames = '';
  if (seq !== null && event.seq > seq + 1) {
    // Another process has written the events in between; read them from the database.
    for await (const text of replay(reader, { key, id, headSeq: event.seq - 1 }, seq)) frames += text;
    if ((sessions.peek(key)?.seq ?? 0) >= event.seq) return frames;
  }
  sessions.set(key, { id, seq: event.seq });
  return frames + timedEventText(event, id);
}
