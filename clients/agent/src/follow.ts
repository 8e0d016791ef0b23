// Follows a session: reconnects after every lost connection from the last delivered event, and
// delivers each event once and in order, without repeated text.

import type { EventStream } from '../../shared/src/operations.ts';
import type { StreamCallOptions, Target } from '../../shared/src/call-options.ts';
import type { Transport } from '../../shared/src/transport.ts';
import { AgentError } from './errors.ts';
import type { SessionEvent } from './generated/current/types.gen.ts';

export interface FollowRequest {
  sessionId: string;
  /** The seq of the last known event; 0 or absent for all events. */
  after?: number | undefined;
  /** `idle` ends the stream once nothing runs and the queue is empty. */
  until?: 'idle' | undefined;
}

export interface FollowOptions extends Omit<StreamCallOptions, 'query'> {
  /** Called before each reconnect with the error of the last connection. */
  onRejoin?: ((attempt: { error: unknown; delayMs: number; after: number }) => void) | undefined;
}

const firstDelayMs = 250;
const longestDelayMs = 10_000;
/** A connection that lasted this long resets the backoff. */
export const healthyMs = 60_000;
// The server's heartbeat comes every 15 seconds.
export const silenceMs = 45_000;

/**
 * Ends without an error when the signal is aborted or the reader stops; throws permanent errors.
 */
export function createFollow(
  transport: Transport,
  target: Target,
): (request: FollowRequest, options?: FollowOptions) => EventStream<SessionEvent> {
  return ({ sessionId, after = 0, until }, options = {}) => ({
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
        const cursor = createCursor(after);
        let failures = 0;
        let hasBegun = false;
        while (!signal.aborted) {
          const joinedAt = performance.now();
          let error: unknown;
          try {
            const members = { sessionId, after: cursor.seq(), ...(until === undefined ? {} : { until }) };
            const stream = await transport.openStream<SessionEvent>(target, members, {
              idleTimeoutMs: silenceMs,
              ...call,
              signal,
            });
            for await (const event of stream.events) {
              if (event.type === 'stream.ready') {
                cursor.note(event);
                if (!hasBegun) yield event;
                hasBegun = true;
                continue;
              }
              const newEvent = cursor.take(event);
              if (newEvent === 'gap') {
                stream.close();
                break;
              }
              if (newEvent !== null) yield newEvent;
            }
          } catch (caught) {
            error = caught;
          }
          if (signal.aborted) return;
          const isEnded = AgentError.isInstance(error) && error.code === 'stream_truncated';
          if (until === 'idle' && isEnded && cursor.isIdle()) return;
          if (isFinal(error)) throw error;
          if (performance.now() - joinedAt >= healthyMs) failures = 0;
          const delayMs = delayOf(error, failures);
          failures += 1;
          onRejoin?.({ error, delayMs, after: cursor.seq() });
          await sleep(delayMs, signal);
        }
      }
    },
  });
}

// A refusal is final unless its status is transient.
export function isFinal(error: unknown): boolean {
  if (!AgentError.isInstance(error)) return error !== undefined;
  if (error.code === 'stream_event_too_large') return true;
  return error.status >= 400 && error.status < 500 && error.status !== 408 && error.status !== 429;
}

export function delayOf(error: unknown, failures: number): number {
  const retryAfterMs = AgentError.isInstance(error) ? (error.retryAfterMs ?? 0) : 0;
  const delayMs = Math.min(longestDelayMs, firstDelayMs * 2 ** Math.min(failures, 10));
  // Jitter: many readers of one server must not reconnect at the same moment.
  return Math.max(retryAfterMs, delayMs * (0.75 + Math.random() * 0.25));
}

interface Cursor {
  seq(): number;
  isIdle(): boolean;
  note(ready: Extract<SessionEvent, { type: 'stream.ready' }>): void;
  /**
   * The event reduced to what is new to the reader; null when it is not new, `gap` when an event
   * before it is missing.
   */
  take(event: SessionEvent): SessionEvent | null | 'gap';
}

function createCursor(after: number): Cursor {
  let lastSeq = after;
  let isIdle = false;
  let hasStatusAt = 0;
  /** The delivered length of each open part's text. */
  const textLengths = new Map<string, number>();

  return {
    seq: () => lastSeq,
    isIdle: () => isIdle,
    note({ status, queueLength, headSeq }) {
      isIdle = status === 'idle' && queueLength === 0;
      hasStatusAt = headSeq;
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
      if (event.type === 'status.changed' && event.seq > hasStatusAt)
        isIdle = event.status === 'idle' && event.queueLength === 0;
      return event;
    },
  };
}

export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done, { once: true });
  });
}
