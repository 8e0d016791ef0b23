// What was said in the sessions that run here, kept from one run to the next. A log never changes, so what was read of it
// holds: only what came since is to be read, and what this process writes itself it hears without reading.
import type { StoredEvent } from './events.ts';
import {
  emptyProjection,
  applyEvent,
  type Conversation,
  type ConversationProjection,
} from './conversation.ts';
import type { EventStore } from './store.ts';
import { segmentsOf, type SessionRecord } from './session-store.ts';

export interface Talks {
  /** The conversation of a session as it is at this seq or later. `first` is all of it, where nothing was said before that. */
  read(
    session: SessionRecord,
    seq: number,
    first: Conversation['spoken'][number]['message'] | null,
  ): Promise<Conversation>;
  /** Events that have been published, in their order. */
  heard(events: readonly StoredEvent[]): void;
  forget(sessionKey: string): void;
}

interface Kept {
  telling: ConversationProjection;
  /** Everything up to here is in it. */
  upTo: number;
  length: number;
}

// In characters of what was said, of all sessions together.
const mostKept = 4_000_000;

export function createTalks(events: Pick<EventStore, 'conversationEvents'>): Talks {
  const kept = new Map<string, Kept>();
  let length = 0;

  function forget(key: string): void {
    length -= kept.get(key)?.length ?? 0;
    kept.delete(key);
  }

  function take(one: Kept, event: StoredEvent): void {
    one.upTo = event.seq;
    one.length += event.json.length;
    applyEvent(one.telling, event);
  }

  /** As the one that was used last. */
  function keep(key: string, one: Kept): void {
    forget(key);
    kept.set(key, one);
    length += one.length;
    for (const oldest of kept.keys()) {
      if (length <= mostKept) return;
      forget(oldest);
    }
  }

  return {
    forget,
    async read(session, seq, first) {
      const one = kept.get(session.key) ?? { telling: emptyProjection(), upTo: 0, length: 0 };
      if (first !== null && one.upTo < seq) {
        one.telling.spoken.push({ seq, message: first });
        one.upTo = seq;
      }
      if (one.upTo < seq) {
        const since = await events.conversationEvents(segmentsOf(session, Number.MAX_SAFE_INTEGER), one.upTo);
        // Some of it may have been heard meanwhile.
        for (const event of since) if (event.seq > one.upTo) take(one, event);
        one.upTo = Math.max(one.upTo, seq);
      }
      keep(session.key, one);
      return { summary: one.telling.summary, spoken: [...one.telling.spoken] };
    },
    heard(published) {
      for (const event of published) {
        const one = kept.get(event.sessionKey);
        if (one?.upTo !== event.seq - 1) continue;
        const before = one.length;
        take(one, event);
        length += one.length - before;
      }
    },
  };
}
