// Follows all sessions of an agent: reconnects after every lost connection, and delivers each event
// once, the events of each session in order.

import type { EventStream } from '../../shared/src/operations.ts';
import type { Target } from '../../shared/src/call-options.ts';
import type { Transport } from '../../shared/src/transport.ts';
import type { SessionEvent } from './generated/current/types.gen.ts';
import { createReconnectingStream, type FollowOptions, type ReaderState } from './reconnecting.ts';

export interface FollowAllRequest {
  /** The time of the last known event, in milliseconds since 1970; without it only new events. */
  after?: number | undefined;
}

// The number of sessions whose last seq is remembered, to drop events that arrive again after a
// reconnect.
const maxSessions = 10_000;

/** Ends without an error when the signal is aborted or the reader stops; throws permanent errors. */
export function createFollowAll(
  transport: Transport,
  target: Target,
): (request?: FollowAllRequest, options?: FollowOptions) => EventStream<SessionEvent> {
  return ({ after } = {}, options = {}) =>
    createReconnectingStream({ transport, target }, () => createState(after), options);
}

function createState(afterMs: number | undefined): ReaderState {
  const seqs = createSeqs();
  let cursorMs = afterMs;
  return {
    request: () => (cursorMs === undefined ? {} : { after: cursorMs }),
    after: () => cursorMs ?? 0,
    isEnd: () => false,
    async *read({ headers, events }) {
      // The cursor starts at the server's time: a reconnect before the first event continues from
      // there.
      cursorMs ??= Date.parse(headers['date'] ?? '') || Date.now();
      for await (const event of events) {
        cursorMs = Math.max(cursorMs, Date.parse(event.time));
        if (seqs.isNew(event)) yield event;
      }
    },
  };
}

function seqOf(event: SessionEvent): number | undefined {
  if (event.type === 'stream.reset') return event.headSeq;
  return 'seq' in event ? event.seq : undefined;
}

/** The last delivered seq of each session. */
function createSeqs(): { isNew(event: SessionEvent): boolean } {
  const seqs = new Map<string, number>();
  return {
    isNew(event) {
      const seq = seqOf(event);
      if (seq === undefined) return true;
      if (seq <= (seqs.get(event.sessionId) ?? 0)) return false;
      // Moves the session to the end of the map, so that the first session in the map is the one
      // without events for the longest time.
      seqs.delete(event.sessionId);
      seqs.set(event.sessionId, seq);
      if (seqs.size > maxSessions) seqs.delete(seqs.keys().next().value as string);
      return true;
    },
  };
}
