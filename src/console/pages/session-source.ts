// Where a page has a session from: its past in a few calls, and from there on its events. The stream is one connection
// of the few that a browser has for one host, so a page that nobody looks at lets go of it and comes back later.
import type { Approval, QueueItem, Session, SessionEvent, UiMessage } from '@townhall/agent';
import { ask, Refusal, tell } from './agent-client.ts';
import { openEventStream, type EventStream, type ServerEvent } from './event-stream.ts';
import type { RunView } from '../views.ts';
import { createThread, unexplainedRuns, type Thread } from './thread.ts';

export interface SessionSource {
  session: Session;
  thread(): Thread;
  /** Joins again at once, such as when the agent is back. */
  rejoin(): void;
  close(): void;
}

// A session with more than this is one that no person reads from the beginning.
const mostPages = 40;
// What the console answers at once; older failures show their status without the reason.
const maxRuns = 100;
const letGoMs = 20_000;
const joinAgainMs = 2_000;

/** Throws a Refusal when the session cannot be read. `changed` is called after each event. */
export async function openSession(sessionId: string, changed: () => void): Promise<SessionSource> {
  let { session, thread } = await read(sessionId);
  let stream: EventStream | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isClosed = false;

  function leave(): void {
    clearTimeout(timer);
    stream?.close();
    stream = null;
  }

  function join(): void {
    leave();
    if (isClosed || document.hidden) return;
    stream = openEventStream(`/events?session=${encodeURIComponent(sessionId)}&after=${thread.seq()}`, {
      onEvent: takeEvent,
      onEnd: comeBack,
    });
  }

  function takeEvent({ name, data }: ServerEvent): void {
    if (name === 'failed') {
      leave();
      tell(new Refusal(0, (JSON.parse(data) as { error: object }).error));
    } else if (thread.take(JSON.parse(data) as SessionEvent)) changed();
    else void startOver();
  }

  function comeBack(status: number): void {
    stream = null;
    // The frame of the page says that the key is no longer valid.
    if (status !== 401) timer = setTimeout(join, joinAgainMs);
  }

  async function startOver(): Promise<void> {
    leave();
    try {
      ({ session, thread } = await read(sessionId));
      changed();
      join();
    } catch {
      // The agent is away: try again as after a lost stream.
      if (!isClosed) timer = setTimeout(() => void startOver(), joinAgainMs);
    }
  }

  const onVisibility = (): void => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(leave, letGoMs);
    else if (stream === null) join();
  };
  document.addEventListener('visibilitychange', onVisibility);
  join();
  return {
    session,
    thread: () => thread,
    rejoin: join,
    close() {
      isClosed = true;
      document.removeEventListener('visibilitychange', onVisibility);
      leave();
    },
  };
}

async function read(sessionId: string): Promise<{ session: Session; thread: Thread }> {
  const session = await ask<Session>('sessions.get', { sessionId });
  const messages: UiMessage[] = [];
  let cursor: string | undefined;
  let seq = 0;
  for (let page = 0; page < mostPages; page += 1) {
    const {
      items,
      nextCursor,
      seq: upTo,
    } = await ask<{ items: UiMessage[]; nextCursor: string | null; seq: number }>('sessions.listMessages', {
      sessionId,
      limit: 500,
      ...(cursor === undefined ? {} : { cursor }),
    });
    messages.push(...items);
    // The first page's is the oldest, and what is told twice is known.
    if (page === 0) seq = upTo;
    if (nextCursor === null) break;
    cursor = nextCursor;
  }
  const [queue, approvals] = await Promise.all([
    ask<{ items: QueueItem[] }>('sessions.listQueue', { sessionId, limit: 200 }),
    ask<{ items: Approval[] }>('sessions.listApprovals', { sessionId, status: 'pending', limit: 200 }),
  ]);
  const runIds = unexplainedRuns({ messages, queue: queue.items, activeRunId: session.activeRunId }).slice(
    0,
    maxRuns,
  );
  const runs =
    runIds.length === 0 ? [] : (await ask<{ items: RunView[] }>('console.runs', { sessionId, runIds })).items;
  return {
    session,
    thread: createThread({ session, messages, seq, queue: queue.items, questions: approvals.items, runs }),
  };
}
