// The conversation as a model is shown it, rebuilt from the log: what has been said in the order in which it was taken
// up, not in which it arrived, and behind the last compaction only.
import type { UiMessage, UiMessagePart } from '../../../contract/agent/types.gen.ts';
import { readEvent, type StoredEvent } from './events.ts';

/** One message of a conversation, and the seq at which it became part of it. */
export interface ConversationMessage {
  seq: number;
  message: UiMessage;
}

export interface Conversation {
  /** What stands in the place of everything before. */
  summary: string | null;
  spoken: ConversationMessage[];
}

/** A conversation that is being read, event by event in their order. */
export interface ConversationProjection extends Conversation {
  /** What was said and not taken up yet, by its run. */
  inputs: Map<string, UiMessage>;
}

export function emptyProjection(): ConversationProjection {
  return { summary: null, spoken: [], inputs: new Map() };
}

export function applyEvent(telling: ConversationProjection, stored: StoredEvent): void {
  const { inputs, spoken } = telling;
  if (!tellingTypes.has(stored.type)) return;
  const event = readEvent(stored);
  if (event.type === 'message.completed') {
    if (event.message.role === 'user') inputs.set(stored.runId ?? event.messageId, event.message);
    else if (event.message.parts.some(isSpoken)) spoken.push({ seq: stored.seq, message: event.message });
  } else if (event.type === 'run.started' || (event.type === 'queue.removed' && event.reason === 'steered')) {
    const message = inputs.get(stored.runId ?? '');
    if (message) spoken.push({ seq: stored.seq, message });
    inputs.delete(stored.runId ?? '');
  } else if (event.type === 'compaction.ended' && event.outcome === 'completed') {
    telling.summary = event.summary;
    telling.spoken = spoken.filter(({ seq }) => seq > event.upToSeq);
  }
}

const tellingTypes = new Set(['run.started', 'message.completed', 'compaction.ended', 'queue.removed']);

function isSpoken(part: UiMessagePart): boolean {
  return part.type === 'text' ? part.text !== '' : part.type === 'dynamic-tool';
}

/** A rough count: four characters of most languages are a token. */
export function estimateTokens(value: unknown): number {
  return Math.ceil((typeof value === 'string' ? value : JSON.stringify(value)).length / 4);
}
