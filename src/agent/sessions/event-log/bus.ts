// What happens in the sessions of this process, told to whoever follows them: durable events once they have committed,
// and text as it comes. It keeps nothing but the text of parts that are still being written, which nobody else has yet.
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

/** Text that has just come; it has no seq. */
export interface Delta {
  part: OpenPart;
  offset: number;
  text: string;
  time: string;
}

export interface Follower {
  events(events: readonly StoredEvent[]): void;
  delta(delta: Delta): void;
  /** Another process has written up to this seq. */
  moved(headSeq: number): void;
  /** The session has been removed. */
  gone(): void;
}

export interface Bus {
  publish(events: readonly StoredEvent[]): void;
  openPart(sessionKey: string, part: OpenPart): void;
  addText(sessionKey: string, partId: string, text: string, time: string): void;
  closePart(sessionKey: string, partId: string): void;
  openParts(sessionKey: string): OpenPart[];
  moved(sessionKey: string, headSeq: number): void;
  gone(sessionKey: string): void;
  /** Returns the end of it. */
  follow(sessionKey: string, follower: Follower): () => void;
  /** The newest seq that was told of lately, for who has looked a session up before following it; 0 when nothing was. */
  newest(sessionKey: string): number;
  /** The sessions that somebody follows here. */
  followed(): string[];
}

// Far more sessions than are told of between a look at one and the beginning to follow it.
const mostNoted = 1_000;

export function createBus(): Bus {
  const followers = new Map<string, Set<Follower>>();
  const parts = new Map<string, Map<string, OpenPart>>();
  const newest = new Map<string, number>();

  function note(key: string, seq: number): void {
    const before = newest.get(key) ?? 0;
    newest.delete(key);
    newest.set(key, Math.max(before, seq));
    if (newest.size > mostNoted) newest.delete(newest.keys().next().value as string);
  }

  return {
    newest: (sessionKey) => newest.get(sessionKey) ?? 0,
    publish(events) {
      for (let at = 0; at < events.length;) {
        const key = (events[at] as StoredEvent).sessionKey;
        let end = at + 1;
        while (events[end]?.sessionKey === key) end += 1;
        note(key, (events[end - 1] as StoredEvent).seq);
        const set = followers.get(key);
        if (set) {
          const own = events.slice(at, end);
          for (const follower of set) follower.events(own);
        }
        at = end;
      }
    },
    openPart(sessionKey, part) {
      const open = parts.get(sessionKey) ?? new Map<string, OpenPart>();
      open.set(part.partId, part);
      parts.set(sessionKey, open);
    },
    addText(sessionKey, partId, text, time) {
      const part = parts.get(sessionKey)?.get(partId);
      if (!part) return;
      const delta: Delta = { part, offset: part.text.length, text, time };
      part.text += text;
      const set = followers.get(sessionKey);
      if (set) for (const follower of set) follower.delta(delta);
    },
    closePart(sessionKey, partId) {
      const open = parts.get(sessionKey);
      open?.delete(partId);
      if (open?.size === 0) parts.delete(sessionKey);
    },
    openParts: (sessionKey) => [...(parts.get(sessionKey)?.values() ?? [])],
    moved(sessionKey, headSeq) {
      const set = followers.get(sessionKey);
      if (set) for (const follower of set) follower.moved(headSeq);
    },
    gone(sessionKey) {
      const set = followers.get(sessionKey);
      if (set) for (const follower of set) follower.gone();
    },
    follow(sessionKey, follower) {
      const set = followers.get(sessionKey) ?? new Set<Follower>();
      set.add(follower);
      followers.set(sessionKey, set);
      return () => {
        set.delete(follower);
        if (set.size === 0 && followers.get(sessionKey) === set) followers.delete(sessionKey);
      };
    },
    followed: () => [...followers.keys()],
  };
}
