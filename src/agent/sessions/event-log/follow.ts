// One follower of a session: first the past from the database, then what happens as it happens. The seam is the rule it
// keeps: it goes over to the present only at a moment in which it has every event up to the newest, and whenever the
// next seq is not the one that has to come it goes back to the database. So there is no gap and nothing comes twice.
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';
import { readEvent, type StoredEvent } from './events.ts';
import type { Bus, Delta } from './bus.ts';
import {
  deltaBytes,
  eventBytes,
  eventText,
  heartbeats,
  liveText,
  snapshotText,
  type StreamForm,
} from './frames.ts';

/** What a follower needs to know of the session when it begins. */
export interface FollowStart {
  key: string;
  id: string;
  headSeq: number;
  status: 'idle' | 'running' | 'requires_action';
  activeRunId: string | null;
  queueLength: number;
}

export interface FollowNeeds {
  bus: Bus;
  /** The session as it was a moment ago. */
  session: FollowStart;
  /** Events after a seq in their order, at most `limit` of them; of a fork those of its ancestors too. */
  read(session: FollowStart, after: number, limit: number): Promise<StoredEvent[]>;
  clock: Clock;
  limits: FollowLimits;
}

export interface FollowLimits {
  heartbeatMs: number;
  /** How far back a cursor may be. */
  maxReplayEvents: number;
  /** What may wait for a reader that is slow; then its connection is destroyed. */
  maxBufferBytes: number;
}

export interface FollowRequest {
  key: string;
  after: number;
  untilIdle: boolean;
  form: StreamForm;
  /** Ends the stream without a word: the client is gone, or the agent stops. */
  signal: AbortSignal;
}

const pageSize = 1_000;

/** The frames, from `stream.ready` on. It throws, and so destroys the connection, where the client should come back. */
export async function* follow(
  request: FollowRequest,
  needs: FollowNeeds,
): AsyncGenerator<Uint8Array, void, void> {
  const { key, form, untilIdle, signal } = request;
  const { bus, clock, limits } = needs;
  let lastSeq = request.after;
  // The newest seq that is known to be in the log.
  let headSeq = 0;
  let isLive = false;
  let isLagging = false;
  let isGone = false;
  let waiting: (StoredEvent | Delta)[] = [];
  let waitingBytes = 0;
  let wake = () => {};
  /** The page behind the one that is being sent. */
  let ahead: Promise<StoredEvent[]> | undefined;
  /** How much of each open part has been sent. */
  const sent = new Map<string, number>();

  function push(item: StoredEvent | Delta, bytes: number): void {
    if (waitingBytes > limits.maxBufferBytes) isLagging = true;
    // What cannot be sent in time is let go; the reader comes back for it.
    if (isLagging) waiting = [];
    else waiting.push(item);
    waitingBytes += bytes;
    wake();
  }
  let pushedSeq = 0;
  const leave = bus.follow(key, {
    events(events) {
      for (const event of events) {
        headSeq = Math.max(headSeq, event.seq);
        if (!isLive || event.seq <= pushedSeq) continue;
        if (event.seq !== pushedSeq + 1) {
          isLive = false;
          continue;
        }
        pushedSeq = event.seq;
        push(event, event.json.length + 200);
      }
      wake();
    },
    delta(delta) {
      if (isLive) push(delta, delta.text.length + 250);
    },
    moved(seq) {
      if (seq <= headSeq) return;
      headSeq = seq;
      if (seq > pushedSeq) isLive = false;
      wake();
    },
    gone() {
      isGone = true;
      wake();
    },
  });
  const stop = () => wake();
  signal.addEventListener('abort', stop);
  try {
    const { session } = needs;
    let { status, queueLength } = session;
    const knownUpTo = session.headSeq;
    headSeq = Math.max(session.headSeq, bus.newest(key));
    const time = () => clock.now().toISOString();
    const note = (event: StoredEvent): void => {
      lastSeq = event.seq;
      if (event.type === 'part.ended')
        for (const partId of sent.keys()) if (event.json.includes(partId)) sent.delete(partId);
      if (event.type !== 'status.changed' || event.seq <= knownUpTo) return;
      const changed = readEvent(event) as { status: FollowStart['status']; queueLength: number };
      ({ status, queueLength } = changed);
    };
    const ready = {
      type: 'stream.ready',
      sessionId: session.id,
      time: time(),
      after: request.after,
      headSeq: session.headSeq,
      status,
      activeRunId: session.activeRunId,
      queueLength,
    };
    let first = (form === 'sse' ? 'retry: 1000\n' : '') + liveText(ready, form);
    if (session.headSeq - lastSeq > limits.maxReplayEvents) {
      first += liveText(
        {
          type: 'stream.reset',
          sessionId: session.id,
          time: time(),
          after: lastSeq,
          headSeq: session.headSeq,
          reason: 'too_old',
        },
        form,
      );
      lastSeq = session.headSeq;
    }
    yield Buffer.from(first);

    for (;;) {
      if (isLagging)
        throw new Problem(
          'unavailable',
          'not_ready',
          'The reader is too slow; it may come back with the last seq.',
        );
      // Not a clean end, which would say that there is nothing more to come.
      if (signal.aborted)
        throw new Problem('unavailable', 'draining', 'The stream is cut; come back with the last seq.');
      if (waiting.length > 0) {
        const batch = waiting;
        waiting = [];
        waitingBytes = 0;
        const pieces: Uint8Array[] = [];
        for (const item of batch) {
          if ('seq' in item) {
            note(item);
            pieces.push(eventBytes(item, session.id, form));
          } else {
            const known = sent.get(item.part.partId) ?? 0;
            const end = item.offset + item.text.length;
            // A snapshot that was sent before may have all of it, or its beginning.
            if (end <= known) continue;
            const rest =
              item.offset < known
                ? { ...item, offset: known, text: item.text.slice(known - item.offset) }
                : item;
            sent.set(item.part.partId, end);
            pieces.push(deltaBytes(rest, session.id, form));
          }
        }
        if (pieces.length > 0) yield pieces.length === 1 ? (pieces[0] as Uint8Array) : Buffer.concat(pieces);
        continue;
      }
      if (isGone) return;
      if (!isLive && lastSeq < headSeq) {
        const events = await (ahead ?? needs.read(session, lastSeq, pageSize));
        ahead = undefined;
        if (events.length === 0) throw new Error('The log ends before its head.');
        let text = '';
        for (const event of events) {
          note(event);
          text += eventText(event, session.id, form);
        }
        if (lastSeq < headSeq) {
          // Read while this one is on its way.
          ahead = needs.read(session, lastSeq, pageSize);
          ahead.catch(() => {});
        }
        yield Buffer.from(text);
        continue;
      }
      if (!isLive) {
        // Nothing is awaited from here to `isLive`, so nothing can happen in between.
        const snapshots = bus
          .openParts(key)
          .filter((part) => part.startedSeq <= lastSeq && part.text.length > (sent.get(part.partId) ?? 0));
        for (const part of snapshots) sent.set(part.partId, part.text.length);
        isLive = true;
        pushedSeq = lastSeq;
        if (snapshots.length > 0)
          yield Buffer.from(snapshots.map((part) => snapshotText(part, session.id, time(), form)).join(''));
        continue;
      }
      if (untilIdle && status === 'idle' && queueLength === 0) return;
      const isQuiet = await quiet();
      if (isQuiet) yield heartbeats[form];
    }
  } finally {
    leave();
    signal.removeEventListener('abort', stop);
  }

  // Resolves true when nothing has happened for the length of a heartbeat.
  async function quiet(): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => settle(true), limits.heartbeatMs);
      const settle = (isQuiet: boolean) => {
        clearTimeout(timer);
        wake = () => {};
        resolve(isQuiet);
      };
      wake = () => settle(false);
      if (waiting.length > 0 || isLagging || isGone || signal.aborted || !isLive) settle(false);
    });
  }
}
