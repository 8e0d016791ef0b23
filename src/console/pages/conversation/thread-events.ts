// Applies the events of a session to its state. Every handler is idempotent, so a repeated or late
// event leads to the same state.
import type { SessionEvent } from '@townhall/agent';
import {
  addRemark,
  answerOf,
  endToolCall,
  endWait,
  ensureTextPart,
  markRun,
  putMessage,
  settleRun,
  textOf,
  type ThreadState,
} from './thread-state.ts';

type Handlers = {
  [Type in SessionEvent['type']]?: (state: ThreadState, event: Extract<SessionEvent, { type: Type }>) => void;
};

const setStatus = (
  state: ThreadState,
  { status, activeRunId }: Pick<ThreadState, 'status' | 'activeRunId'>,
): void => {
  Object.assign(state, { status, activeRunId });
};

const sessionHandlers: Handlers = {
  'stream.ready': setStatus,
  'status.changed': setStatus,
  'session.updated': (state, { title, mode, archived }) => {
    if (title !== undefined) state.title = title;
    if (mode !== undefined) state.mode = mode;
    if (archived !== undefined) state.isArchived = archived;
  },
  'session.archived': (state) => {
    state.isArchived = true;
  },
};

const messageHandlers: Handlers = {
  'message.created': (state, { messageId, role, runId }) =>
    putMessage(state, { id: messageId, role, parts: [] }, { isOpen: true, runId }),
  'message.completed': (state, { message, runId }) => putMessage(state, message, { isOpen: false, runId }),
  'message.updated': (state, { messageId, metadata }) => {
    const message = state.messages.get(messageId);
    if (message !== undefined) Object.assign(message.metadata, metadata);
    state.changedIds.add(messageId);
  },
  'part.started': (state, event) => void ensureTextPart(state, event),
  'part.snapshot': (state, event) => {
    const part = ensureTextPart(state, event);
    if (part !== undefined) part.text = event.text;
    state.changedIds.add(event.messageId);
  },
  'part.delta': (state, { partId, offset, delta, messageId }) => {
    const part = state.openParts.get(partId);
    // Cutting at the offset makes a repeated delta harmless.
    if (part !== undefined) part.text = part.text.slice(0, offset) + delta;
    state.changedIds.add(messageId);
  },
  'part.ended': (state, event) => {
    const part = ensureTextPart(state, event);
    if (part !== undefined) Object.assign(part, { text: event.text, state: 'done' });
    state.openParts.delete(event.partId);
    state.changedIds.add(event.messageId);
  },
};

const toolHandlers: Handlers = {
  'tool.started': (state, { runId, toolName, toolCallId, input }) => {
    const message = answerOf(state, runId);
    if (message === undefined || !message.isOpen) return;
    message.parts.push({ type: 'dynamic-tool', toolName, toolCallId, state: 'input-available', input });
    state.changedIds.add(message.id);
  },
  'tool.output': (state, event) =>
    endToolCall(state, event, { state: 'output-available', output: event.output }),
  'tool.failed': (state, event) =>
    endToolCall(state, event, { state: 'output-error', errorText: event.errorText }),
  'tool.denied': (state, event) =>
    endToolCall(state, event, {
      state: 'output-denied',
      approval: { id: event.approvalId ?? event.toolCallId, approved: false, reason: event.reason },
    }),
  'approval.requested': (state, event) => {
    // Without an expiry, the policy has already decided, so no approval is pending.
    if (event.expiresAt !== null) state.approvals.set(event.approvalId, event);
    markRun(state, event.runId);
  },
  'approval.resolved': (state, { approvalId, runId }) => {
    state.approvals.delete(approvalId);
    markRun(state, runId);
  },
};

const queueHandlers: Handlers = {
  'queue.added': (state, { queueItemId, runId, queuePosition, messageId }) => {
    // The queue that was read at the start may be newer than this event.
    if (!state.queue.some((item) => item.queueItemId === queueItemId)) {
      const text = textOf(state.messages.get(messageId ?? ''));
      state.queue.push({ queueItemId, runId, queuePosition, text });
    }
    markRun(state, runId);
  },
  'queue.updated': (state, { items }) => {
    const positions = new Map(items.map((item) => [item.queueItemId, item.queuePosition]));
    for (const item of state.queue) {
      item.queuePosition = positions.get(item.queueItemId) ?? item.queuePosition;
      markRun(state, item.runId);
    }
  },
  'queue.removed': (state, { queueItemId, reason, runId }) => {
    state.queue = state.queue.filter((item) => item.queueItemId !== queueItemId);
    if (reason === 'started' || reason === 'steered') state.startedRuns.add(runId);
    markRun(state, runId);
  },
};

function setFileStatus(
  state: ThreadState,
  { runId, count }: { runId: string; count: number },
  { isUndone }: { isUndone: boolean },
): void {
  state.undoneRuns.set(runId, isUndone);
  const files = count === 1 ? '1 file' : `${count} files`;
  addRemark(state, runId, isUndone ? `${files} restored.` : `${files} changed again.`);
  markRun(state, runId);
}

const runHandlers: Handlers = {
  'run.started': (state, { runId }) => void state.startedRuns.add(runId),
  'run.settled': settleRun,
  'run.retrying': (state, { runId, code }) =>
    addRemark(state, runId, `The model did not answer (${code}); the agent tries again.`),
  'run.waiting': (state, { runId, reason, until }) =>
    addRemark(
      state,
      runId,
      `${reason === 'rate_limited' ? 'The model is at its rate limit' : 'The model is unavailable'}; the agent tries again at ${new Date(until).toLocaleTimeString()}.`,
      'wait',
    ),
  'run.warning': (state, { runId, message }) => addRemark(state, runId, message, 'bad'),
  'workspace.undone': (state, event) => setFileStatus(state, event, { isUndone: true }),
  'workspace.redone': (state, event) => setFileStatus(state, event, { isUndone: false }),
  'context.pruned': (state, { runId, outputs, tokens }) =>
    addRemark(
      state,
      runId,
      `${outputs} old outputs of tools were removed from the context: about ${tokens} tokens.`,
    ),
  'compaction.ended': (state, { runId, outcome, tokensBefore, tokensAfter }) =>
    outcome === 'completed'
      ? addRemark(
          state,
          runId,
          `The conversation was summarized: ${tokensBefore} tokens became ${tokensAfter}.`,
        )
      : addRemark(state, runId, 'The conversation could not be summarized.', 'bad'),
};

const handlers: Handlers = {
  ...sessionHandlers,
  ...messageHandlers,
  ...toolHandlers,
  ...queueHandlers,
  ...runHandlers,
};

/** False when the session has to be read again. Unknown events are ignored. */
export function applyEvent(state: ThreadState, event: SessionEvent): boolean {
  // Events of text and tools do not change the order; those of queue, runs and messages do.
  if (!/^(?:part|tool)\./.test(event.type)) state.ordered = undefined;
  if (endsWait(event)) endWait(state, event.runId);
  if ('seq' in event) {
    if (event.seq <= state.seq) {
      // Messages do not show that a run is waiting, so a page that opens meanwhile reads past events again.
      if (event.type === 'run.waiting' && event.runId === state.activeRunId) applyNew(state, event);
      return true;
    }
    state.seq = event.seq;
  }
  // The stream may begin at events that the page already has. If only those are too old to be repeated,
  // no event is missing.
  if (event.type === 'stream.reset') return event.headSeq <= state.seq;
  applyNew(state, event);
  return true;
}

function applyNew(state: ThreadState, event: SessionEvent): void {
  if (!Object.hasOwn(handlers, event.type)) return;
  const handle = handlers[event.type] as (state: ThreadState, event: SessionEvent) => void;
  handle(state, event);
}

// Progress of the run ends its wait. A snapshot is no progress: it repeats text from before the wait.
function endsWait(event: SessionEvent): event is Extract<SessionEvent, { runId: string }> {
  return 'runId' in event && event.type !== 'part.snapshot' && /^(?:part|tool|run)\./.test(event.type);
}
