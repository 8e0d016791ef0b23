// Reads a session and follows its events. A browser has few connections per host, so a hidden page
// closes its stream after a while and opens it again when it is visible.
import type { Approval, QueueItem, Session, SessionEvent, UiMessage } from '@townhall/agent';
import { callConsole, Refusal, showError } from '../shared/console-client.ts';
import { openEventStream, type EventStream, type ServerEvent } from '../shared/event-stream.ts';
import type { RunView } from '../shared/views.ts';
import { createThread, unexplainedRuns, type Thread } from './thread.ts';

export interface SessionSource {
  /** As it was last read. */
  readonly session: Session;
  thread(): Thread;
  /** Reconnects at once, for example when the agent is back. */
  rejoin(): void;
  close(): void;
}

// Pages of 500 messages; longer sessions are shown from their end.
const maxPages = 40;
// The console's limit for one call; older failures show their status without the reason.
const maxRuns = 100;
const hiddenCloseMs = 20_000;
const reconnectMs = 2_000;
// Messages do not contain that a run waits; the event may be this many events old.
const repeatedEvents = 50;

/** Throws a Refusal when the session cannot be read. `onChange` is called after each event. */
export async function openSession(sessionId: string, onChange: () => void): Promise<SessionSource> {
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
    const after = thread.activeRunId() === null ? thread.seq() : Math.max(0, thread.seq() - repeatedEvents);
    stream = openEventStream(`/events?session=${encodeURIComponent(sessionId)}&after=${after}`, {
      onEvent: applyServerEvent,
      onEnd: reconnect,
    });
  }

  function applyServerEvent({ name, data }: ServerEvent): void {
    if (name === 'failed') {
      leave();
      showError(new Refusal(0, (JSON.parse(data) as { error: object }).error));
    } else if (thread.apply(JSON.parse(data) as SessionEvent)) onChange();
    else void readAgain();
  }

  function reconnect(status: number): void {
    stream = null;
    // After a 401 the frame of the page asks for a new sign-in.
    if (status !== 401) timer = setTimeout(join, reconnectMs);
  }

  async function readAgain(): Promise<void> {
    leave();
    try {
      ({ session, thread } = await read(sessionId));
      onChange();
      join();
    } catch {
      // The agent is away: retry as after a lost stream.
      if (!isClosed) timer = setTimeout(() => void readAgain(), reconnectMs);
    }
  }

  const onVisibility = (): void => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(leave, hiddenCloseMs);
    else if (stream === null) join();
  };
  document.addEventListener('visibilitychange', onVisibility);
  join();
  return {
    get session() {
      return session;
    },
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
  const session = await callConsole<Session>('sessions.get', { sessionId });
  const { messages, seq } = await readMessages(sessionId);
  const [queue, approvals] = await Promise.all([
    callConsole<{ items: QueueItem[] }>('sessions.listQueue', { sessionId, limit: 200 }),
    callConsole<{ items: Approval[] }>('sessions.listApprovals', {
      sessionId,
      status: 'pending',
      limit: 200,
    }),
  ]);
  const runIds = unexplainedRuns({ messages, queue: queue.items, activeRunId: session.activeRunId }).slice(
    0,
    maxRuns,
  );
  const runs =
    runIds.length === 0
      ? []
      : (await callConsole<{ items: RunView[] }>('console.runs', { sessionId, runIds })).items;
  return {
    session,
    thread: createThread({ session, messages, seq, queue: queue.items, approvals: approvals.items, runs }),
  };
}

interface MessagePage {
  items: UiMessage[];
  nextCursor: string | null;
  /** The sequence number of the last event that the messages contain. */
  seq: number;
}

async function readMessages(sessionId: string): Promise<{ messages: UiMessage[]; seq: number }> {
  const messages: UiMessage[] = [];
  let cursor: string | undefined;
  let seq = 0;
  for (let page = 0; page < maxPages; page += 1) {
    const answer: MessagePage = await callConsole<MessagePage>('sessions.listMessages', {
      sessionId,
      limit: 500,
      ...(cursor === undefined ? {} : { cursor }),
    });
    messages.push(...answer.items);
    // The first page has the oldest sequence number; applying events twice is harmless.
    if (page === 0) ({ seq } = answer);
    if (answer.nextCursor === null) break;
    cursor = answer.nextCursor;
  }
  return { messages, seq };
}
