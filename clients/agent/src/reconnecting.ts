// An event stream over several connections: reconnects after every lost connection, with a growing
// delay.

import type { EventStream } from '../../shared/src/operations.ts';
import type { StreamCallOptions, Target } from '../../shared/src/call-options.ts';
import { sleep } from '../../shared/src/sleep.ts';
import type { OpenedStream, Transport } from '../../shared/src/transport.ts';
import { AgentError } from './errors.ts';
import type { SessionEvent } from './generated/current/types.gen.ts';

export interface FollowOptions extends Omit<StreamCallOptions, 'query'> {
  /** Called before each reconnect with the error of the last connection. */
  onRejoin?: ((attempt: { error: unknown; delayMs: number; after: number }) => void) | undefined;
}

/** The state of a reader, and its request for the next connection. */
export interface ReaderState {
  /** The members of the next request. */
  request(): Record<string, unknown>;
  /** Yields the new events of a connection; returns early when an event is missing. */
  read(connection: OpenedStream<SessionEvent>): AsyncGenerator<SessionEvent, void, undefined>;
  /**
   * Whether the stream has ended, and not only its connection. `error` is the error of the connection;
   * undefined when `read` has returned.
   */
  isEnd(error: unknown): boolean;
  /** The position of the last delivered event, for `onRejoin`. */
  after(): number;
}

const firstDelayMs = 250;
const longestDelayMs = 10_000;
// A connection that lasted this long resets the backoff.
const healthyMs = 60_000;
// The server sends a heartbeat every 15 seconds; after three missing ones the connection is given up.
const silenceMs = 45_000;

/** Ends without an error when the signal is aborted or the reader stops; throws permanent errors. */
export function createReconnectingStream(
  { transport, target }: { transport: Transport; target: Target },
  createState: () => ReaderState,
  options: FollowOptions,
): EventStream<SessionEvent> {
  return {
    [Symbol.asyncIterator]() {
      const stop = new AbortController();
      const { signal: caller, onRejoin, ...callOptions } = options;
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
        const state = createState();
        let failures = 0;
        while (!signal.aborted) {
          const connectedMs = performance.now();
          let error: unknown;
          try {
            const call = { idleTimeoutMs: silenceMs, ...callOptions, signal };
            yield* state.read(await transport.openStream(target, state.request(), call));
          } catch (connectionError) {
            error = connectionError;
          }
          if (signal.aborted || state.isEnd(error)) return;
          if (isFinal(error)) throw error;
          if (performance.now() - connectedMs >= healthyMs) failures = 0;
          const delayMs = delayOf(error, failures);
          failures += 1;
          onRejoin?.({ error, delayMs, after: state.after() });
          // An abort ends the wait and the loop.
          await sleep(delayMs, signal).catch(() => undefined);
        }
      }
    },
  };
}

// A refusal is final unless its status is transient.
function isFinal(error: unknown): boolean {
  if (!AgentError.isInstance(error)) return error !== undefined;
  if (error.code === 'stream_event_too_large') return true;
  return error.status >= 400 && error.status < 500 && error.status !== 408 && error.status !== 429;
}

function delayOf(error: unknown, failures: number): number {
  const retryAfterMs = AgentError.isInstance(error) ? (error.retryAfterMs ?? 0) : 0;
  const delayMs = Math.min(longestDelayMs, firstDelayMs * 2 ** Math.min(failures, 10));
  // Jitter: many readers of one server must not reconnect at the same moment.
  return Math.max(retryAfterMs, delayMs * (0.75 + Math.random() * 0.25));
}
