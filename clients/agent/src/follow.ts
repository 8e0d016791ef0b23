// Follows a session: reconnects after every lost connection from the last delivered event, and
// delivers each event once and in order, without repeated text.

import type { EventStream } from '../../shared/src/operations.ts';
import type { Target } from '../../shared/src/call-options.ts';
import type { Transport } from '../../shared/src/transport.ts';
import { AgentError } from './errors.ts';
import type { SessionEvent } from './generated/current/types.gen.ts';
import { createReconnectingStream, type FollowOptions, type ReaderState } from './reconnecting.ts';

export interface FollowRequest {
  sessionId: string;
  /** The seq of the last known event; 0 or absent for all events. */
  after?: number | undefined;
  /** `idle` ends the stream once nothing runs and the queue is empty. */
  until?: 'idle' | undefined;
}

/**
 * Ends without an error when the signal is aborted or the reader stops; throws permanent errors.
 */
export function createFollow(
  transport: Transport,
  target: Target,
): (request: FollowRequest, options?: FollowOptions) => EventStream<SessionEvent> {
  return (request, options = {}) =>
    createReconnectingStream({ transport, target }, () => createState(request), options);
}

function createState({ sessionId, after = 0, until }: FollowRequest): ReaderState {
  const cursor = createCursor(after);
  let hasBegun = false;
  return {
    request: () => ({ sessionId, after: cursor.seq(), ...(until === undefined ? {} : { until }) }),
    after: cursor.seq,
    // The server has no mark for the end of the stream: it closes the connection once the session is idle.
    isEnd: (error) =>
      until === 'idle' &&
      AgentError.isInstance(error) &&
      error.code === 'stream_truncated' &&
      cursor.isIdle(),
    async *read({ events, close }) {
      for await (const event of events) {
        if (event.type === 'stream.ready') {
          cursor.applyReady(event);
          if (!hasBegun) yield event;
          hasBegun = true;
          continue;
        }
        const newEvent = cursor.take(event);
        if (newEvent === 'gap') {
          close();
          return;
        }
        if (newEvent !== null) yield newEvent;
      }
    },
  };
}

interface Cursor {
  seq(): number;
  isIdle(): boolean;
  applyReady(ready: Extract<SessionEvent, { type: 'stream.ready' }>): void;
  /**
   * Returns the event, reduced to what the reader does not have yet; null when the reader has all of
   * it, `gap` when a preceding event is missing.
   */
  take(event: SessionEvent): SessionEvent | null | 'gap';
}

function createCursor(afterSeq: number): Cursor {
  let lastSeq = afterSeq;
  let isIdle = false;
  /** The seq at which `isIdle` was reported; earlier events do not change it. */
  let statusSeq = 0;
  /** The delivered length of each open part's text. */
  const textLengths = new Map<string, number>();

  return {
    seq: () => lastSeq,
    isIdle: () => isIdle,
    applyReady({ status, queueLength, headSeq }) {
      isIdle = status === 'idle' && queueLength === 0;
      statusSeq = headSeq;
    },
    take(event) {
      if (event.type === 'stream.reset') {
        lastSeq = event.headSeq;
        textLengths.clear();
        return event;
      }
      if (event.type === 'part.delta') {
        const textLength = textLengths.get(event.partId) ?? 0;
        if (event.offset > textLength) return 'gap';
        const delta = event.delta.slice(textLength - event.offset);
        if (delta === '') return null;
        textLengths.set(event.partId, textLength + delta.length);
        return delta === event.delta ? event : { ...event, offset: textLength, delta };
      }
      if (event.type === 'part.snapshot') {
        if (event.text.length <= (textLengths.get(event.partId) ?? -1)) return null;
        textLengths.set(event.partId, event.text.length);
        return event;
      }
      if (!('seq' in event)) return event;
      if (event.seq <= lastSeq) return null;
      if (event.seq !== lastSeq + 1) return 'gap';
      lastSeq = event.seq;
      if (event.type === 'part.ended') textLengths.delete(event.partId);
      if (event.type === 'status.changed' && event.seq > statusSeq)
        isIdle = event.status === 'idle' && event.queueLength === 0;
      return event;
    },
  };
}
