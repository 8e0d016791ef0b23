// A session for display: messages, queue, pending approvals, status. It has no DOM; events go in,
// views come out.
import type { QueueItem, Session, SessionEvent, UiMessage } from '@townhall/agent';
import { applyEvent } from './thread-events.ts';
import {
  createState,
  isEarlyEnd,
  orderedMessages,
  type Message,
  type Outcome,
  type PendingApproval,
  type QueuedPrompt,
  type Remark,
  type ThreadStart,
  type ThreadState,
} from './thread-state.ts';

export interface FileChanges {
  runId: string;
  count: number;
  /** Null until an event reports it. */
  isUndone: boolean | null;
}

export interface Thread {
  /** In reading order. */
  messages(): readonly Message[];
  /** Why the message ended early or was never answered; undefined for any other message. */
  outcome(message: Message): Outcome | undefined;
  /** The prompt of the message's run. */
  prompt(message: Message): Message | undefined;
  /** The files that the run of an answer has changed; undefined when there are none. */
  fileChanges(message: Message): FileChanges | undefined;
  remarks(): readonly Remark[];
  approvals(): PendingApproval[];
  queue(): QueuedPrompt[];
  status(): Session['status'];
  activeRunId(): string | null;
  title(): string | null;
  mode(): Session['mode'];
  isArchived(): boolean;
  /** The sequence number of the last applied event. */
  seq(): number;
  /** Ids of messages that changed since the last call. */
  takeChanged(): Set<string>;
  /** False when the session has to be read again. */
  apply(event: SessionEvent): boolean;
}

export function createThread(start: ThreadStart): Thread {
  const state = createState(start);
  return {
    messages: () => orderedMessages(state),
    outcome: (message) => outcomeOf(state, message),
    prompt: ({ runId }) => (runId === null ? undefined : promptOf([...state.messages.values()], runId)),
    fileChanges: (message) => fileChangesOf(state, message),
    remarks: () => state.remarks,
    approvals: () => [...state.approvals.values()],
    queue: () => state.queue.toSorted((a, b) => a.queuePosition - b.queuePosition),
    status: () => state.status,
    activeRunId: () => state.activeRunId,
    title: () => state.title,
    mode: () => state.mode,
    isArchived: () => state.isArchived,
    seq: () => state.seq,
    takeChanged() {
      const { changedIds } = state;
      state.changedIds = new Set();
      return changedIds;
    },
    apply: (event) => applyEvent(state, event),
  };
}

/**
 * A run that answers a prompt again has no prompt of its own: the first answer that it replaced belongs
 * to the run of the prompt.
 */
function promptOf(messages: readonly Message[], runId: string): Message | undefined {
  const prompt = messages.find((message) => message.role === 'user' && message.runId === runId);
  if (prompt !== undefined) return prompt;
  const index = messages.findIndex(({ metadata }) => metadata['replacedBy'] === runId);
  const replacedRunId = messages[index]?.runId ?? null;
  // Only a later run replaces an answer, so each step of the search goes back towards the first message.
  return replacedRunId === null ? undefined : promptOf(messages.slice(0, index + 1), replacedRunId);
}

// An answer shows its own early end; a prompt shows the end of a run that never started.
function outcomeOf(state: ThreadState, { role, runId, metadata }: Message): Outcome | undefined {
  const runOutcome = runId === null ? undefined : state.outcomes.get(runId);
  if (role === 'user') return runOutcome?.hasStarted === false ? runOutcome : undefined;
  const { status } = metadata;
  if (!isEarlyEnd(status)) return undefined;
  return { status, reason: runOutcome?.reason ?? null, hasStarted: true };
}

function fileChangesOf(state: ThreadState, { role, runId, metadata }: Message): FileChanges | undefined {
  const { changedFiles: count } = metadata;
  if (role !== 'assistant' || runId === null || typeof count !== 'number' || count === 0) return undefined;
  return { runId, count, isUndone: state.undoneRuns.get(runId) ?? null };
}

/** Runs whose outcome is in neither messages nor queue, newest first. */
export function unexplainedRuns({
  messages,
  queue,
  activeRunId,
}: {
  messages: readonly UiMessage[];
  queue: readonly QueueItem[];
  activeRunId: string | null;
}): string[] {
  const runOf = ({ metadata }: UiMessage): string | undefined =>
    typeof metadata?.['runId'] === 'string' ? metadata['runId'] : undefined;
  const answeredRuns = new Set(messages.filter(({ role }) => role === 'assistant').map(runOf));
  const openRuns = new Set([...queue.map(({ runId }) => runId), activeRunId]);
  const runs = messages.flatMap((message) => {
    const runId = runOf(message);
    if (runId === undefined) return [];
    const isUnexplained =
      message.role === 'assistant'
        ? isEarlyEnd(message.metadata?.['status'])
        : !answeredRuns.has(runId) && !openRuns.has(runId);
    return isUnexplained ? [runId] : [];
  });
  return [...new Set(runs)].reverse();
}
