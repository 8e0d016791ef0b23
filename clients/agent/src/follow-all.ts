// Follows all sessions of an agent: reconnects after every lost connection, and delivers each event once and those of a
// session in order.

import type { EventStream } from '../../shared/src/operations.ts';
import type { Target } from '../../shared/src/call-options.ts';
import type { Transport } from '../../shared/src/transport.ts';
import { delayOf, type FollowOptions, healthyMs, isFinal, silenceMs, sleep } from './follow.ts';
import type { SessionEvent } from './generated/current/types.gen.ts';

export interface FollowAllRequest {
  /** The time of the last known event, in milliseconds since 1970; without it only new events. */
  after?: number | undefined;
}

// Sessions of which the last seq is known, to drop what comes again after a reconnect.
const maxSessions = 10_000;

/** Ends without an error when the signal is aborted or the reader stops; throws permanent errors. */
export function createFollowAll(
  transport: Transport,
  target: Target,
): (request?: FollowAllRequest, options?: FollowOptions) => EventStream<SessionEvent> {
  return ({ after } = {}, options = {}) => ({
    [Symbol.asyncIterator]() {
      const stop = new AbortController();
      const { signal: caller, onRejoin, ...call } = options;
      const signal = caller === undefined ? stop.signal : AbortSignal.any([caller, stop.signal]);
      const events = read();
      return {
        next: () => events.next(),
        // A generator's own `return` waits for a pending event; this one does not.
        return: () => {
          stop.abort();
          return events.return();
        },
      };

      async function* read(): AsyncGenerator<SessionEvent, void, undefined> {
        const seqs = createSeqs();
        let cursorMs = after;
        let failures = 0;
        while (!signal.aborted) {
          const joinedAt = performance.now();
          let error: unknown;
          try {
            const members = cursorMs === undefined ? {} : { after: cursorMs };
            const stream = await transport.openStream<SessionEvent>(target, members, {
              idleTimeoutMs: silenceMs,
              ...call,
              signal,
            });
            // By the server's clock, since a reconnect before the first event continues from here.
            cursorMs ??= Date.parse(stream.headers['date'] ?? '') || Date.now();
            for await (const event of stream.events) {
              cursorMs = Math.max(cursorMs, Date.parse(event.time));
              if (seqs.isNew(event)) yield event;
            }
          } catch (caught) {
            error = caught;
          }
          if (signal.aborted) return;
          if (isFinal(error)) throw error;
          if (performance.now() - joinedAt >= healthyMs) failures = 0;
          const delayMs = delayOf(error, failures);
          failures += 1;
          onRejoin?.({ error, delayMs, after: cursorMs ?? 0 });
          await sleep(delayMs, signal);
        }
      }
    },
  });
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
      // Moves the session to the end; the first one is that without an event for longest.
      seqs.delete(event.sessionId);
      seqs.set(event.sessionId, seq);
      if (seqs.size > maxSessions) seqs.delete(seqs.keys().next().value as string);
      return true;
    },
  };
}
