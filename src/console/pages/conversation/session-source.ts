// Reads a session and follows its events. A browser has few connections per host, so a hidden page
// closes its stream after a while and opens it again when it is visible.
import type { Approval, QueueItem, Session, SessionEvent, UiMessage } from '@townhall/agent';
import { callConsole, Refusal, showError } from '../shared/console-client.ts';
import { openEventStream, type EventStream, type ServerEvent } from '../shared/event-stream.ts';
import type { RunView } from '../shared/views.ts';
import { createThread, unexplainedRuns, type Thread } from './thread.ts';

export interface SessionSource {
  /** The session as it was last read. */
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
// Messages do not show that a run is waiting. While a run is active, the stream therefore repeats this
// many past events.
const repeatedEvents = 50;

/** An open session, and its stream or the timer of the next attempt. */
interface OpenSession {
  readonly sessionId: string;
  readonly onChange: () => void;
  session: Session;
  thread: Thread;
  stream: EventStream | null;
  timer: ReturnType<typeof setTimeout> | undefined;
  isClosed: boolean;
}

/** Throws a Refusal when the session cannot be read. `onChange` is called after each event. */
export async function openSession(sessionId: string, onChange: () => void): Promise<SessionSource> {
  const open: OpenSession = {
    sessionId,
    onChange,
    ...(await read(sessionId)),
    stream: null,
    timer: undefined,
    isClosed: false,
  };
  const onVisibility = (): void => followVisibility(open);
  document.addEventListener('visibilitychange', onVisibility);
  join(open);
  return {
    get session() {
      return open.session;
    },
    thread: () => open.thread,
    rejoin: () => join(open),
    close() {
      open.isClosed = true;
      document.removeEventListener('visibilitychange', onVisibility);
      leave(open);
    },
  };
}

function leave(open: OpenSession): void {
  clearTimeout(open.timer);
  open.stream?.close();
  open.stream = null;
}

function join(open: OpenSession): void {
  leave(open);
  if (open.isClosed || document.hidden) return;
  const { sessionId, thread } = open;
  const after = thread.activeRunId() === null ? thread.seq() : Math.max(0, thread.seq() - repeatedEvents);
  open.stream = openEventStream(`/events?session=${encodeURIComponent(sessionId)}&after=${after}`, {
    onEvent: (event) => applyServerEvent(open, event),
    onEnd: (status) => reconnect(open, status),
  });
}

function applyServerEvent(open: OpenSession, { name, data }: ServerEvent): void {
  if (name === 'failed') {
    leave(open);
    showError(new Refusal(0, (JSON.parse(data) as { error: object }).error));
  } else if (open.thread.apply(JSON.parse(data) as SessionEvent)) open.onChange();
  else void readAgain(open);
}

function reconnect(open: OpenSession, status: number): void {
  open.stream = null;
  // After a 401 the frame of the page asks for a new sign-in.
  if (status !== 401) open.timer = setTimeout(() => join(open), reconnectMs);
}

async function readAgain(open: OpenSession): Promise<void> {
  leave(open);
  try {
    Object.assign(open, await read(open.sessionId));
    open.onChange();
    join(open);
  } catch {
    // The agent is unreachable: retry as after a lost stream.
    if (!open.isClosed) open.timer = setTimeout(() => void readAgain(open), reconnectMs);
  }
}

function followVisibility(open: OpenSession): void {
  clearTimeout(open.timer);
  if (document.hidden) open.timer = setTimeout(() => leave(open), hiddenCloseMs);
  else if (open.stream === null) join(open);
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
