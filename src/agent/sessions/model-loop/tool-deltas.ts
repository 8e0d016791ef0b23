// Streams tool calls to the readers of the event stream: pieces of the input while the model writes it, and
// of the output while the tool runs. The pieces are not stored; `tool.started` has the whole input and
// `tool.output` the whole result.
import type { Clock } from '../../../kernel/clock.ts';
import type { ToolDelta } from '../event-log/live-feed.ts';

type Kind = 'input' | 'output';

export interface ToolDeltas {
  add(kind: Kind, call: { toolCallId: string; toolName: string }, text: string): void;
  /** Sends the text of the call that is still pending, and forgets the call. */
  end(kind: Kind, toolCallId: string): void;
  /** Forgets the inputs that the model's stream has left unfinished. */
  dropInputs(): void;
  /** Stops sending. */
  close(): void;
}

interface CallText {
  kind: Kind;
  toolCallId: string;
  toolName: string;
  /** Characters that were sent or are pending. */
  length: number;
  pending: string;
}

// Limits a call to twenty events per second, however small the pieces are.
const intervalMs = 50;
// The rest of a longer text reaches readers with the complete event. Most files that models write are
// shorter.
const maxLength = 64 * 1024;

export function createToolDeltas({
  publish,
  clock,
}: {
  publish(delta: Omit<ToolDelta, 'runId' | 'messageId'>): void;
  clock: Pick<Clock, 'now'>;
}): ToolDeltas {
  const calls = new Map<string, CallText>();
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;

  function send(call: CallText): void {
    if (call.pending === '') return;
    publish({ ...takePending(call), time: clock.now().toISOString() });
  }

  function sendAll(): void {
    timer = undefined;
    for (const call of calls.values()) send(call);
  }

  return {
    add(kind, { toolCallId, toolName }, text) {
      if (isClosed) return;
      const key = `${kind} ${toolCallId}`;
      const call = calls.get(key) ?? { kind, toolCallId, toolName, length: 0, pending: '' };
      calls.set(key, call);
      const piece = text.slice(0, maxLength - call.length);
      if (piece === '') return;
      call.length += piece.length;
      call.pending += piece;
      timer ??= setTimeout(sendAll, intervalMs);
    },
    end(kind, toolCallId) {
      const key = `${kind} ${toolCallId}`;
      const call = calls.get(key);
      if (call === undefined) return;
      send(call);
      calls.delete(key);
    },
    dropInputs() {
      for (const [key, { kind }] of calls) if (kind === 'input') calls.delete(key);
    },
    close() {
      isClosed = true;
      clearTimeout(timer);
      calls.clear();
    },
  };
}

function takePending(call: CallText): Omit<ToolDelta, 'runId' | 'messageId' | 'time'> {
  const { kind, toolCallId, toolName, length, pending } = call;
  call.pending = '';
  const type = kind === 'input' ? 'tool.input.delta' : 'tool.output.delta';
  return { type, toolCallId, toolName, offset: length - pending.length, delta: pending };
}
