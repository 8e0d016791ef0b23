// Live feed of this process: committed events, and the text that models are writing, for the subscribers of
// a session. It stores only the text of parts that are still open, because nothing else has that text yet.
import type { StoredEvent } from './events.ts';

/** A part of a message that is being written. */
export interface OpenPart {
  runId: string;
  messageId: string;
  partId: string;
  partType: 'text' | 'reasoning';
  /** The seq of its `part.started`. */
  startedSeq: number;
  text: string;
}

/** New text of an open part; it has no seq. */
export interface TextDelta {
  part: OpenPart;
  offset: number;
  text: string;
  time: string;
}

/** A piece of the input or output of a tool call; it has no seq, and nothing stores it. */
export interface ToolDelta {
  type: 'tool.input.delta' | 'tool.output.delta';
  runId: string;
  messageId: string;
  toolCallId: string;
  toolName: string;
  offset: number;
  delta: string;
  time: string;
}

export interface Subscriber {
  onEvents(events: readonly StoredEvent[]): void;
  onDelta?(delta: TextDelta): void;
  onToolDelta?(delta: ToolDelta): void;
  /** Another process has written up to this seq; the events have to be read. */
  onHead(headSeq: number): void;
  onRemoved(): void;
}

export interface LiveFeed {
  openPart(sessionKey: string, part: OpenPart): void;
  addText(sessionKey: string, partId: string, text: string, time: string): void;
  closePart(sessionKey: string, partId: string): void;
  addToolDelta(sessionKey: string, delta: ToolDelta): void;
  openParts(sessionKey: string): OpenPart[];
  announceHead(sessionKey: string, headSeq: number): void;
  announceRemoval(sessionKey: string): void;
  /** Returns the function that ends the subscription. */
  subscribe(sessionKey: string, subscriber: Subscriber): () => void;
  /** Calls `onEvents` with the committed events of all sessions; returns the function that ends it. */
  subscribeAll(onEvents: (events: readonly StoredEvent[]) => void): () => void;
  subscribedSessions(): string[];
  /** Takes events of several sessions; the events of each session are in the order of its log. */
  publish(events: readonly StoredEvent[]): void;
}

export function createLiveFeed(): LiveFeed {
  const subscribers = new Map<string, Set<Subscriber>>();
  const allSubscribers = new Set<(events: readonly StoredEvent[]) => void>();
  const parts = new Map<string, Map<string, OpenPart>>();

  function subscribersOf(sessionKey: string): Iterable<Subscriber> {
    return subscribers.get(sessionKey) ?? [];
  }

  return {
    publish(events) {
      if (events.length === 0) return;
      for (const onEvents of allSubscribers) onEvents(events);
      publishBySession(subscribers, events);
    },
    openPart(sessionKey, part) {
      const openParts = parts.get(sessionKey) ?? new Map<string, OpenPart>();
      openParts.set(part.partId, part);
      parts.set(sessionKey, openParts);
    },
    addText(sessionKey, partId, text, time) {
      const part = parts.get(sessionKey)?.get(partId);
      if (!part) return;
      const delta: TextDelta = { part, offset: part.text.length, text, time };
      part.text += text;
      for (const subscriber of subscribersOf(sessionKey)) subscriber.onDelta?.(delta);
    },
    closePart(sessionKey, partId) {
      const openParts = parts.get(sessionKey);
      openParts?.delete(partId);
      if (openParts?.size === 0) parts.delete(sessionKey);
    },
    addToolDelta(sessionKey, delta) {
      for (const subscriber of subscribersOf(sessionKey)) subscriber.onToolDelta?.(delta);
    },
    openParts: (sessionKey) => [...(parts.get(sessionKey)?.values() ?? [])],
    announceHead(sessionKey, headSeq) {
      for (const subscriber of subscribersOf(sessionKey)) subscriber.onHead(headSeq);
    },
    announceRemoval(sessionKey) {
      for (const subscriber of subscribersOf(sessionKey)) subscriber.onRemoved();
    },
    subscribe(sessionKey, subscriber) {
      const set = subscribers.get(sessionKey) ?? new Set<Subscriber>();
      set.add(subscriber);
      subscribers.set(sessionKey, set);
      return () => {
        set.delete(subscriber);
        if (set.size === 0 && subscribers.get(sessionKey) === set) subscribers.delete(sessionKey);
      };
    },
    subscribeAll(onEvents) {
      allSubscribers.add(onEvents);
      return () => void allSubscribers.delete(onEvents);
    },
    subscribedSessions: () => [...subscribers.keys()],
  };
}

/** Publishes consecutive events of one session together. */
function publishBySession(
  subscribers: ReadonlyMap<string, ReadonlySet<Subscriber>>,
  events: readonly StoredEvent[],
): void {
  for (let start = 0; start < events.length;) {
    const { sessionKey } = events[start] as StoredEvent;
    let end = start + 1;
    while (events[end]?.sessionKey === sessionKey) end += 1;
    const sessionSubscribers = subscribers.get(sessionKey);
    if (sessionSubscribers !== undefined) {
      const sessionEvents = events.slice(start, end);
      for (const subscriber of sessionSubscribers) subscriber.onEvents(sessionEvents);
    }
    start = end;
  }
}

/**
 * Resolves `changed` at the first event that matches, and when another process wrote to the session or
 * removed it. The caller subscribes before it reads the database, so that no change falls between the two.
 */
export function watchChange(
  feed: Pick<LiveFeed, 'subscribe'>,
  sessionKey: string,
  matches: (event: StoredEvent) => boolean,
): { changed: Promise<void>; stop(): void } {
  const { promise: change, resolve } = Promise.withResolvers<void>();
  const stop = feed.subscribe(sessionKey, {
    onEvents(events) {
      if (events.some(matches)) resolve();
    },
    onHead: () => resolve(),
    onRemoved: () => resolve(),
  });
  return { changed: change, stop };
}
