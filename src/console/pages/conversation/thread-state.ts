// The state of a session on a page, built from its events, and the changes that several events
// share.
import type { QueueItem, Session, SessionEvent, UiMessage, UiMessagePart } from '@townhall/agent';
import type { RunView } from '../shared/views.ts';
import { orderMessages } from './message-order.ts';
import { runReason } from './run-reason.ts';

export interface Message {
  id: string;
  role: UiMessage['role'];
  parts: UiMessagePart[];
  runId: string | null;
  metadata: Record<string, unknown>;
  /** Whether the message is still being written. */
  isOpen: boolean;
}

/** A tool call with a pending approval. */
export interface PendingApproval {
  approvalId: string;
  toolCallId: string;
  toolName: string;
  input: unknown;
  expiresAt: string | null;
  runId?: string;
}

export interface QueuedPrompt {
  queueItemId: string;
  runId: string;
  queuePosition: number;
  text: string;
}

/** The end of a run that did not complete. */
export interface Outcome {
  status: 'failed' | 'cancelled' | 'interrupted' | 'expired';
  /** Null where the agent gave none. */
  reason: string | null;
  /** False for a prompt that was removed from the queue. */
  hasStarted: boolean;
}

/** A line between messages, for example about a compaction. */
export interface Remark {
  /** Null for a line before the first message. */
  afterMessageId: string | null;
  tone: 'plain' | 'wait' | 'bad';
  text: string;
  runId: string | undefined;
}

export type TextPart = Extract<UiMessagePart, { type: 'text' | 'reasoning' }>;
export type ToolPart = Extract<UiMessagePart, { type: 'dynamic-tool' }>;

export interface ThreadState {
  /** In the order of the log. */
  messages: Map<string, Message>;
  /** Text parts that are being streamed, by part id. */
  openParts: Map<string, TextPart>;
  approvals: Map<string, PendingApproval>;
  remarks: Remark[];
  queue: QueuedPrompt[];
  outcomes: Map<string, Outcome>;
  /** Runs that have begun, or whose prompt was steered into another run. */
  startedRuns: Set<string>;
  /** Whether the file changes of a run are undone; without an entry until an event reports it. */
  undoneRuns: Map<string, boolean>;
  status: Session['status'];
  activeRunId: string | null;
  title: string | null;
  mode: Session['mode'];
  isArchived: boolean;
  /** The sequence number of the last applied event. */
  seq: number;
  /** Ids of messages whose view has to be redrawn. */
  changedIds: Set<string>;
  /** The messages in reading order; undefined when they have to be sorted again. */
  ordered: Message[] | undefined;
}

export interface ThreadStart {
  session: Session;
  messages: readonly UiMessage[];
  seq: number;
  queue: readonly QueueItem[];
  approvals: readonly PendingApproval[];
  /** Runs whose outcome the messages do not contain. */
  runs: readonly RunView[];
}

export function createState({ session, messages, seq, queue, approvals, runs }: ThreadStart): ThreadState {
  const state: ThreadState = {
    messages: new Map(),
    openParts: new Map(),
    approvals: new Map(approvals.map((approval) => [approval.approvalId, approval])),
    remarks: [],
    queue: queue.map(({ queueItemId, runId, queuePosition, text }) => ({
      queueItemId,
      runId,
      queuePosition,
      text,
    })),
    outcomes: new Map(),
    startedRuns: new Set(),
    undoneRuns: new Map(),
    status: session.status,
    activeRunId: session.activeRunId,
    title: session.title,
    mode: session.mode,
    isArchived: session.archivedAt !== null,
    seq,
    changedIds: new Set(),
    ordered: undefined,
  };
  for (const message of messages) putMessage(state, message, { isOpen: false });
  for (const { runId, status, reason, startedAt } of runs) {
    if (startedAt !== null) state.startedRuns.add(runId);
    if (isEarlyEnd(status)) state.outcomes.set(runId, { status, reason, hasStarted: startedAt !== null });
  }
  return state;
}

/**
 * Adds or replaces a message; a completed one moves to its place in the log, where a reload would
 * show it.
 */
export function putMessage(
  state: ThreadState,
  { id, role, parts, metadata = {} }: UiMessage,
  { isOpen, runId }: { isOpen: boolean; runId?: string },
): void {
  const existing = state.messages.get(id);
  const metadataRunId = typeof metadata['runId'] === 'string' ? metadata['runId'] : null;
  state.messages.delete(id);
  state.messages.set(id, {
    id,
    role,
    parts,
    runId: runId ?? existing?.runId ?? metadataRunId,
    metadata,
    isOpen,
  });
  state.ordered = undefined;
  state.changedIds.add(id);
}

/** The messages in reading order. */
export function orderedMessages(state: ThreadState): readonly Message[] {
  const { queue, activeRunId } = state;
  state.ordered ??= orderMessages({ messages: [...state.messages.values()], queue, activeRunId });
  return state.ordered;
}

/** The message that a run is writing: its last answer. */
export function answerOf(state: ThreadState, runId: string): Message | undefined {
  return [...state.messages.values()].findLast(
    (message) => message.runId === runId && message.role === 'assistant',
  );
}

/** The part, created if it is new; undefined when its message is complete and contains it. */
export function ensureTextPart(
  state: ThreadState,
  { messageId, partId, partType }: { messageId: string; partId: string; partType: TextPart['type'] },
): TextPart | undefined {
  const existing = state.openParts.get(partId);
  if (existing !== undefined) return existing;
  const message = state.messages.get(messageId);
  if (message === undefined || !message.isOpen) return undefined;
  const part: TextPart = { type: partType, text: '', state: 'streaming' };
  state.openParts.set(partId, part);
  message.parts.push(part);
  return part;
}

/** Sets the result of a tool call that is shown as running. */
export function endToolCall(
  state: ThreadState,
  { runId, toolCallId }: { runId: string; toolCallId: string },
  result: Partial<ToolPart>,
): void {
  const message = answerOf(state, runId);
  const part = message?.parts.findLast(
    (candidate): candidate is ToolPart =>
      candidate.type === 'dynamic-tool' && candidate.toolCallId === toolCallId,
  );
  if (message === undefined || part === undefined || part.state !== 'input-available') return;
  Object.assign(part, result);
  state.changedIds.add(message.id);
}

/**
 * Adds a line after the run's answer or, without one, after the last message that is not queued.
 */
export function addRemark(
  state: ThreadState,
  runId: string | undefined,
  text: string,
  tone: Remark['tone'] = 'plain',
): void {
  const answer = runId === undefined ? undefined : answerOf(state, runId);
  const last = orderedMessages(state).findLast(
    (message) => !state.queue.some((item) => item.runId === message.runId),
  );
  state.remarks.push({ afterMessageId: answer?.id ?? last?.id ?? null, text, tone, runId });
}

/** Removes the line that says why the run waits. */
export function endWait(state: ThreadState, runId: string): void {
  state.remarks = state.remarks.filter((remark) => remark.tone !== 'wait' || remark.runId !== runId);
}

/** Marks the messages of a run as changed, after a change of its queue position or approvals. */
export function markRun(state: ThreadState, runId: string | undefined): void {
  for (const message of state.messages.values())
    if (message.runId === runId) state.changedIds.add(message.id);
}

/** Removes a run's queued prompt and its approvals, and records an outcome other than completion. */
export function settleRun(
  state: ThreadState,
  { runId, outcome: status, error }: Extract<SessionEvent, { type: 'run.settled' }>,
): void {
  state.queue = state.queue.filter((item) => item.runId !== runId);
  for (const approval of state.approvals.values())
    if (approval.runId === runId) state.approvals.delete(approval.approvalId);
  if (isEarlyEnd(status)) {
    const reason = runReason(error);
    const hasStarted = state.startedRuns.has(runId) || answerOf(state, runId) !== undefined;
    state.outcomes.set(runId, { status, reason, hasStarted });
    // A compaction has no message that could show its failure.
    const hasMessage = [...state.messages.values()].some((message) => message.runId === runId);
    if (status !== 'cancelled' && !hasMessage)
      addRemark(state, runId, reason ?? `The run ended as ${status}.`, 'bad');
  }
  markRun(state, runId);
}

export function isEarlyEnd(status: unknown): status is Outcome['status'] {
  return status === 'failed' || status === 'cancelled' || status === 'interrupted' || status === 'expired';
}

/** The text parts of a message. */
export function textOf(message: Pick<Message, 'parts'> | undefined): string {
  return message?.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n\n') ?? '';
}
