// Inputs that wait in the parent's queue at the fork point. They stay with the parent. The fork's log records
// them as cancelled, so that its events and messages agree with its empty queue.
import type { WaitingInput } from './event-log/message-update-store.ts';
import type { SessionRecord } from './event-log/session-store.ts';
import type { LogEntry } from './event-log/unit.ts';
import { noUsage } from './model-loop/usage.ts';
import type { HandlerOptions } from './session-options.ts';

export async function buildCancellationEvents(
  { messageUpdates }: Pick<HandlerOptions, 'messageUpdates'>,
  session: SessionRecord,
  seq: number,
): Promise<LogEntry[]> {
  if (seq === session.headSeq && session.queueLength === 0) return [];
  // The parent's own events are enough: if it is a fork itself, it has cancelled the inputs of its ancestors.
  const waitingInputs = await messageUpdates.waitingInputs({ sessionKey: session.key, upTo: seq });
  return waitingInputs.flatMap(cancellationEvents);
}

function cancellationEvents({ runId, queueItemId, messageId }: WaitingInput): LogEntry[] {
  const events: LogEntry[] = [{ type: 'queue.removed', runId, queueItemId, reason: 'cancelled' }];
  if (messageId !== null)
    events.push({ type: 'message.updated', runId, messageId, metadata: { status: 'cancelled' } });
  events.push({
    type: 'run.settled',
    runId,
    outcome: 'cancelled',
    usage: noUsage,
    finishReason: null,
    error: {
      code: 'run_cancelled',
      message: 'The input stayed in the queue of the session that was forked.',
    },
  });
  return events;
}
