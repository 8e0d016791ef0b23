// The event stream of one reader: first stored events from the database, then live events. It goes live only
// when it has sent every event up to the newest, and reads the database again whenever a live event does not
// have the next seq. So no event is missing and no event is sent twice.
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';
import { readEvent, type StoredEvent } from './events.ts';
import {
  deltaBytes,
  eventBytes,
  eventText,
  heartbeats,
  liveText,
  snapshotText,
  toolDeltaBytes,
  type StreamFormat,
} from './frames.ts';
import { createInbox, type Inbox, type InboxOptions } from './inbox.ts';
import type { LiveFeed, OpenPart, TextDelta, ToolDelta } from './live-feed.ts';

/** The session as read at the start of the request. */
export interface FollowedSession {
  key: string;
  id: string;
  headSeq: number;
  status: 'idle' | 'running' | 'requires_action';
  activeRunId: string | null;
  queueLength: number;
}

export interface FollowOptions {
  feed: Pick<LiveFeed, 'subscribe' | 'openParts'>;
  session: FollowedSession;
  /** The newest seq; undefined when the session has been removed. */
  readHeadSeq(): Promise<number | undefined>;
  /** Events after a seq in their order, those of a fork's ancestors included. */
  readEvents(after: number, limit: number): Promise<StoredEvent[]>;
  clock: Clock;
  limits: FollowLimits;
}

export interface FollowLimits {
  heartbeatMs: number;
  /** How many events a reader may have missed; with more it gets a `stream.reset`. */
  maxReplayEvents: number;
  /** Bytes that may wait for a slow reader; beyond them its connection is destroyed. */
  maxBufferBytes: number;
}

export interface FollowRequest {
  after: number;
  untilIdle: boolean;
  format: StreamFormat;
  /** The client has disconnected, or the agent stops. */
  signal: AbortSignal;
}

const pageSize = 1_000;

/**
 * Yields frames, `stream.ready` first. Throws, which destroys the connection, where
 * the client should reconnect.
 */
export async function* follow(
  request: FollowRequest,
  { feed, session, readHeadSeq, readEvents, clock, limits }: FollowOptions,
): AsyncGenerator<Uint8Array, void, void> {
  const inbox = openInbox(feed, session.key, {
    maxBytes: limits.maxBufferBytes,
    signal: request.signal,
  });
  const writer = createFrameWriter(session, request);
  const now = () => clock.now().toISOString();
  let nextPage: Promise<StoredEvent[]> | undefined;
  try {
    // After the subscription, so that no event falls between the lookup of the
    // session and the first live event.
    inbox.advanceHead(await readHeadSeq());
    yield writer.start(now(), limits.maxReplayEvents);
    for (;;) {
      requireReadable(inbox, request.signal);
      if (inbox.hasItems()) {
        const bytes = writer.writeItems(inbox.takeItems());
        if (bytes) yield bytes;
      } else if (inbox.isRemoved()) {
        return;
      } else if (!inbox.isLive() && writer.lastSeq() < inbox.headSeq()) {
        const page = writer.writePage(await (nextPage ?? readEvents(writer.lastSeq(), pageSize)));
        nextPage = undefined;
        if (writer.lastSeq() < inbox.headSeq()) {
          // Overlap the next query with sending this page.
          nextPage = readEvents(writer.lastSeq(), pageSize);
          nextPage.catch(() => {});
        }
        yield page;
      } else if (!inbox.isLive()) {
        // Synchronous up to `goLive`, so no event can come between the snapshots and the live events.
        const snapshots = writer.writeSnapshots(feed.openParts(session.key), now());
        inbox.goLive(writer.lastSeq());
        if (snapshots) yield snapshots;
      } else if (request.untilIdle && writer.isIdle()) {
        return;
      } else if (await inbox.waitForQuiet(limits.heartbeatMs)) {
        yield heartbeats[request.format];
      }
    }
  } finally {
    inbox.close();
  }
}

function requireReadable(inbox: SessionInbox, signal: AbortSignal): void {
  if (inbox.hasOverflowed())
    throw new Problem(
      'unavailable',
      'not_ready',
      'The reader is too slow; reconnect with the seq of the last event.',
    );
  // Throw, since a regular end of the stream would tell the client that no more events follow.
  if (signal.aborted)
    throw new Problem(
      'unavailable',
      'draining',
      'The stream was cut; reconnect with the seq of the last event.',
    );
}

type FeedItem = StoredEvent | TextDelta | ToolDelta;

interface SessionInbox extends Omit<Inbox<FeedItem>, 'push' | 'wake'> {
  headSeq(): number;
  /** Undefined for a session that has been removed. */
  advanceHead(seq: number | undefined): void;
  /** Whether live events are delivered; otherwise the reader has to read the database first. */
  isLive(): boolean;
  isRemoved(): boolean;
  /** Delivers live events after this seq from now on. */
  goLive(lastSeq: number): void;
}

// The approximate size of the members and frames around the text of an item.
const eventOverheadBytes = 200;
const deltaOverheadBytes = 250;

/** What the inbox has delivered, of a session whose log ends at `headSeq`. */
interface InboxPosition {
  isLive: boolean;
  isRemoved: boolean;
  headSeq: number;
  deliveredSeq: number;
}

function openInbox(
  feed: Pick<LiveFeed, 'subscribe'>,
  sessionKey: string,
  options: Omit<InboxOptions, 'isDue'>,
): SessionInbox {
  const position: InboxPosition = { isLive: false, isRemoved: false, headSeq: 0, deliveredSeq: 0 };
  const inbox = createInbox<FeedItem>({ ...options, isDue: () => !position.isLive || position.isRemoved });
  const onHead = (seq: number | undefined): void => {
    if (advanceHead(position, seq)) inbox.wake();
  };
  const unsubscribe = feed.subscribe(sessionKey, {
    onEvents(events) {
      for (const event of events)
        if (acceptEvent(position, event)) inbox.push([event], event.json.length + eventOverheadBytes);
      inbox.wake();
    },
    onDelta(delta) {
      if (position.isLive) inbox.push([delta], delta.text.length + deltaOverheadBytes);
    },
    onToolDelta(delta) {
      if (position.isLive) inbox.push([delta], delta.delta.length + deltaOverheadBytes);
    },
    onHead,
    onRemoved: () => onHead(undefined),
  });
  return {
    ...inbox,
    headSeq: () => position.headSeq,
    advanceHead: onHead,
    isLive: () => position.isLive,
    isRemoved: () => position.isRemoved,
    goLive(lastSeq) {
      position.isLive = true;
      position.deliveredSeq = lastSeq;
    },
    close() {
      unsubscribe();
      inbox.close();
    },
  };
}

/** Whether the event is the next one of a live reader. A gap ends the live delivery. */
function acceptEvent(position: InboxPosition, { seq }: StoredEvent): boolean {
  position.headSeq = Math.max(position.headSeq, seq);
  if (!position.isLive || seq <= position.deliveredSeq) return false;
  position.isLive = seq === position.deliveredSeq + 1;
  if (position.isLive) position.deliveredSeq = seq;
  return position.isLive;
}

/** Whether the reader has something to do. The seq is undefined for a session that was removed. */
function advanceHead(position: InboxPosition, seq: number | undefined): boolean {
  if (seq === undefined) {
    position.isRemoved = true;
    return true;
  }
  // The replica poll announces an unchanged head again and again. Waking the reader for it would postpone
  // every heartbeat.
  if (seq <= position.headSeq) return false;
  position.headSeq = seq;
  if (seq > position.deliveredSeq) position.isLive = false;
  return true;
}

/** Encodes events as frames and tracks the seq and the text that the reader has. */
interface FrameWriter {
  start(time: string, maxReplayEvents: number): Uint8Array;
  /** Undefined when the reader already has every item. */
  writeItems(items: readonly FeedItem[]): Uint8Array | undefined;
  writePage(events: readonly StoredEvent[]): Uint8Array;
  writeSnapshots(parts: readonly OpenPart[], time: string): Uint8Array | undefined;
  lastSeq(): number;
  /** Whether nothing runs and nothing waits as of the last event. */
  isIdle(): boolean;
}

interface ReaderState {
  readonly session: FollowedSession;
  readonly format: StreamFormat;
  lastSeq: number;
  status: FollowedSession['status'];
  queueLength: number;
  /** Characters of each open part that the reader has. */
  readonly sentLengths: Map<string, number>;
}

function createFrameWriter(session: FollowedSession, { after, format }: FollowRequest): FrameWriter {
  const { status, queueLength } = session;
  const reader: ReaderState = {
    session,
    format,
    lastSeq: after,
    status,
    queueLength,
    sentLengths: new Map(),
  };
  return {
    lastSeq: () => reader.lastSeq,
    isIdle: () => reader.status === 'idle' && reader.queueLength === 0,
    start: (time, maxReplayEvents) => startFrames(reader, time, maxReplayEvents),
    writeItems(items) {
      const frames = items.map((item) => writeItem(reader, item)).filter((frame) => frame !== undefined);
      return frames.length < 2 ? frames[0] : Buffer.concat(frames);
    },
    writePage(events) {
      if (events.length === 0) throw new Error(`The log of ${session.key} ends before its newest seq.`);
      let text = '';
      for (const event of events) {
        track(reader, event);
        text += eventText(event, session.id, format);
      }
      return Buffer.from(text);
    },
    writeSnapshots: (parts, time) => writeSnapshots(reader, parts, time),
  };
}

function startFrames(reader: ReaderState, time: string, maxReplayEvents: number): Uint8Array {
  const { format, lastSeq: after } = reader;
  const { id: sessionId, headSeq, status, activeRunId, queueLength } = reader.session;
  const ready = { type: 'stream.ready', sessionId, time, after, headSeq, status, activeRunId, queueLength };
  const readyText = (format === 'sse' ? 'retry: 1000\n' : '') + liveText(ready, format);
  if (headSeq - after <= maxReplayEvents) return Buffer.from(readyText);
  const reset = { type: 'stream.reset', sessionId, time, after, headSeq, reason: 'too_old' };
  reader.lastSeq = headSeq;
  return Buffer.from(readyText + liveText(reset, format));
}

function writeItem(reader: ReaderState, item: FeedItem): Uint8Array | undefined {
  const { session, format } = reader;
  if ('part' in item) return writeDelta(reader, item);
  if (!('seq' in item)) return toolDeltaBytes(item, session.id, format);
  track(reader, item);
  return eventBytes(item, session.id, format);
}

function track(reader: ReaderState, event: StoredEvent): void {
  const { session, sentLengths } = reader;
  reader.lastSeq = event.seq;
  if (event.type === 'part.ended' && sentLengths.size > 0) {
    const { partId } = readEvent(event) as { partId: string };
    sentLengths.delete(partId);
  }
  // Older events change nothing: the session was read at its `headSeq`, with the status of that moment.
  if (event.type === 'status.changed' && event.seq > session.headSeq) {
    const { status, queueLength } = readEvent(event) as Pick<FollowedSession, 'status' | 'queueLength'>;
    reader.status = status;
    reader.queueLength = queueLength;
  }
}

function writeDelta({ session, format, sentLengths }: ReaderState, delta: TextDelta): Uint8Array | undefined {
  const sentLength = sentLengths.get(delta.part.partId) ?? 0;
  const end = delta.offset + delta.text.length;
  // A snapshot may already have contained the text or its beginning.
  if (end <= sentLength) return undefined;
  sentLengths.set(delta.part.partId, end);
  const unsentDelta =
    delta.offset < sentLength
      ? { ...delta, offset: sentLength, text: delta.text.slice(sentLength - delta.offset) }
      : delta;
  return deltaBytes(unsentDelta, session.id, format);
}

function writeSnapshots(
  { session, format, lastSeq, sentLengths }: ReaderState,
  parts: readonly OpenPart[],
  time: string,
): Uint8Array | undefined {
  const unsentParts = parts.filter(
    ({ startedSeq, partId, text }) => startedSeq <= lastSeq && text.length > (sentLengths.get(partId) ?? 0),
  );
  for (const { partId, text } of unsentParts) sentLengths.set(partId, text.length);
  if (unsentParts.length === 0) return undefined;
  return Buffer.from(unsentParts.map((part) => snapshotText(part, session.id, time, format)).join(''));
}
