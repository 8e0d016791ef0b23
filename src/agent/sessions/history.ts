// The conversation as a model is shown it, rebuilt from the log: what has been said in the order in which it was taken
// up, not in which it arrived, and behind the last compaction only.
import type { UiMessage, UiMessagePart } from '../../contract/agent/types.gen.ts';
import { readEvent, type StoredEvent } from './events.ts';

/** One message of a conversation, and the seq at which it became part of it. */
export interface Spoken {
  seq: number;
  message: UiMessage;
}

export interface Talk {
  /** What stands in the place of everything before. */
  summary: string | null;
  spoken: Spoken[];
}

/** The conversation up to and with the input of `runId`, or all of it. Pure. */
export function readTalk(events: readonly StoredEvent[], runId?: string): Talk {
  const inputs = new Map<string, UiMessage>();
  let summary: string | null = null;
  let spoken: Spoken[] = [];
  for (const stored of events) {
    const event = readEvent(stored);
    if (event.type === 'message.completed') {
      if (event.message.role === 'user') inputs.set(stored.runId ?? event.messageId, event.message);
      else if (event.message.parts.some(isSpoken)) spoken.push({ seq: stored.seq, message: event.message });
    } else if (event.type === 'run.started' || (event.type === 'queue.removed' && event.reason === 'steered')) {
      const message = inputs.get(stored.runId ?? '');
      if (message) spoken.push({ seq: stored.seq, message });
      inputs.delete(stored.runId ?? '');
      if (event.type === 'run.started' && stored.runId === runId) break;
    } else if (event.type === 'compaction.ended' && event.outcome === 'completed') {
      const { upToSeq } = event;
      ({ summary } = event);
      spoken = spoken.filter(({ seq }) => seq > upToSeq);
    }
  }
  return { summary, spoken };
}

function isSpoken(part: UiMessagePart): boolean {
  return part.type === 'text' ? part.text !== '' : part.type === 'dynamic-tool';
}

/** A rough count: four characters of most languages are a token. */
export function estimateTokens(value: unknown): number {
  return Math.ceil((typeof value === 'string' ? value : JSON.stringify(value)).length / 4);
}
