// The conversation as a model sees it, projected from the log: inputs in the order in which runs started with
// them, not in which they arrived, and only messages after the last compaction.
import type { UiMessage } from '../../../contract/agent/types.gen.ts';
import { readEvent, type SessionEvent, type StoredEvent } from './events.ts';

export interface ConversationMessage {
  /** The seq at which the message became part of the conversation. */
  seq: number;
  message: UiMessage;
  /** True for a note about files, which the log has as an event and not as a message. */
  isNote?: true;
}

export interface Conversation {
  /** Replaces everything before `messages`. */
  summary: string | null;
  messages: ConversationMessage[];
  /** A message whose first steps the summary replaces. */
  cut: { messageId: string; steps: number } | null;
  /** Large tool outputs whose `outputSeq` is not greater than this are replaced by notes. */
  prunedUpToSeq: number;
}

/** A conversation under construction; events are applied in the order of the log. */
export interface ConversationProjection extends Conversation {
  /** Inputs whose run has not started yet, by the id of that run. */
  pendingInputs: Map<string, UiMessage>;
}

export function emptyProjection(): ConversationProjection {
  return { summary: null, messages: [], cut: null, prunedUpToSeq: 0, pendingInputs: new Map() };
}

/** The event types that change a projection. `EventStore.conversationEvents` reads exactly these. */
const projectedTypes = new Set([
  'run.started',
  'message.completed',
  'message.updated',
  'compaction.ended',
  'context.pruned',
  'queue.removed',
  'workspace.undone',
  'workspace.redone',
]);

export function applyEvent(projection: ConversationProjection, stored: StoredEvent): void {
  if (!projectedTypes.has(stored.type)) return;
  const { pendingInputs, messages } = projection;
  const event = readEvent(stored);
  if (event.type === 'message.completed') {
    const { message } = event;
    if (message.role === 'user') pendingInputs.set(stored.runId ?? event.messageId, message);
    else if (hasContent(message)) messages.push({ seq: stored.seq, message });
  } else if (event.type === 'run.started' || (event.type === 'queue.removed' && event.reason === 'steered')) {
    const message = pendingInputs.get(stored.runId ?? '');
    if (message) messages.push({ seq: stored.seq, message });
    else if (event.type === 'run.started') moveToEnd(projection, event.inputMessageId, stored.seq);
    pendingInputs.delete(stored.runId ?? '');
  } else if (event.type === 'message.updated' && event.metadata['status'] === 'replaced') {
    projection.messages = messages.filter(({ message }) => message.id !== event.messageId);
  } else if (event.type === 'compaction.ended' && event.outcome === 'completed') {
    projection.summary = event.summary;
    projection.messages = messages.filter(({ seq }) => seq > event.upToSeq);
    projection.cut = event.cut ?? null;
  } else if (event.type === 'context.pruned') {
    projection.prunedUpToSeq = Math.max(projection.prunedUpToSeq, event.upToSeq);
  } else if (event.type === 'workspace.undone' || event.type === 'workspace.redone') {
    messages.push({ seq: stored.seq, message: fileNote(stored.seq, event), isNote: true });
  }
}

/** Makes an input that a run answers again the last message, since notes about files may have followed it. */
function moveToEnd(
  projection: ConversationProjection,
  messageId: string | null | undefined,
  seq: number,
): void {
  const { messages } = projection;
  const input = messages.find(({ message }) => message.id === messageId);
  if (input === undefined || input === messages.at(-1)) return;
  projection.messages = [...messages.filter((entry) => entry !== input), { ...input, seq }];
}

const maxFilesNamed = 50;

/** A message that tells the model which files differ from the state in which it left them. */
function fileNote(
  seq: number,
  { type, files, count }: Extract<SessionEvent, { type: 'workspace.undone' | 'workspace.redone' }>,
): UiMessage {
  const names = files.slice(0, maxFilesNamed).map(({ path }) => JSON.stringify(path));
  const list = `${names.join(', ')}${count > names.length ? `, and ${count - names.length} more` : ''}`;
  const whatHappened =
    type === 'workspace.undone'
      ? 'The changes of files that you made in an earlier turn were undone. These files are as ' +
        `they were before that turn: ${list}.`
      : `Changes of files that were undone are in place again. These files are as you left them in that turn: ${list}.`;
  const text = `[A note from the agent, not from the person: ${whatHappened} Read a file again before you rely on it.]`;
  return { id: `note-${seq}`, role: 'user', parts: [{ type: 'text', text }] };
}

/** False for an answer that the conversation omits, such as one that failed at once. */
export function hasContent({ parts }: UiMessage): boolean {
  return parts.some((part) => (part.type === 'text' ? part.text !== '' : part.type === 'dynamic-tool'));
}
