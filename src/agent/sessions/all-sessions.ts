// The route of the event stream of all sessions.
import { Problem } from '../../kernel/problem.ts';
import { followAll } from './event-log/follow-all.ts';
import { maxSeq } from './event-log/store.ts';
import type { HandlerOptions, SessionHandlers } from './session-options.ts';

// Each stream subscribes to every event of the agent.
const maxStreams = 16;
// How often the events of other processes are read: they arrive with up to this delay.
const pollMs = 500;
// A cursor may be any integer of up to 16 digits, which is more than a Date can hold. A cursor further ahead
// of this clock is treated as one day ahead: its reader gets new events only.
const maxClockAheadMs = 24 * 60 * 60 * 1000;

export function allSessionsHandlers(options: HandlerOptions): SessionHandlers<'sessions.followAll'> {
  const { agentId, allSessions, hasReplicas, eventLog, events, runs, clock, follow: limits } = options;
  let streamCount = 0;

  async function* countStream(content: AsyncGenerator<Uint8Array, void, void>) {
    streamCount += 1;
    try {
      yield* content;
    } finally {
      streamCount -= 1;
    }
  }

  return {
    'sessions.followAll': async ({ query, headers, signal }) => {
      if (streamCount >= maxStreams) throw tooManyStreams();
      const lastEventId = headers['last-event-id'];
      const requestedMs = lastEventId === undefined ? query.after : Number(lastEventId);
      const afterMs =
        requestedMs === undefined ? null : Math.min(requestedMs, clock.now().getTime() + maxClockAheadMs);
      const content = followAll(
        { afterMs, signal: AbortSignal.any([signal, runs.closed]) },
        {
          feed: eventLog,
          store: allSessions,
          agentId,
          readEvents: (sessionKey, seq) => events.read([{ sessionKey, upTo: maxSeq }], seq, 1_000),
          pollMs: hasReplicas ? pollMs : null,
          clock,
          limits,
        },
      );
      return {
        status: 200,
        content: countStream(content),
        mediaType: 'text/event-stream; charset=utf-8',
        headers: { 'x-accel-buffering': 'no' },
      };
    },
  };
}

function tooManyStreams(): Problem {
  return new Problem(
    'rate_limited',
    'rate_limited',
    `The agent serves at most ${maxStreams} streams of all sessions at a time; close one of them.`,
    { headers: { 'retry-after': '5' } },
  );
}
