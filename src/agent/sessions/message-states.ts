// Adds the current state to messages. The log stores a completed message once and never changes it: later
// changes of its metadata are events of their own, and the queue knows whether an input still waits.
import type { UiMessage } from '../../contract/agent/types.gen.ts';
import { segmentsOf, type SessionRecord } from './event-log/session-store.ts';
import type { HandlerOptions } from './session-options.ts';

/** Returns the messages with their current metadata. */
export async function withStates(
  { messageUpdates, runStore }: Pick<HandlerOptions, 'messageUpdates' | 'runStore'>,
  session: SessionRecord,
  messages: readonly UiMessage[],
): Promise<UiMessage[]> {
  const waitingRuns = session.queueLength > 0 ? await runStore.queue(session.key) : [];
  const waitingIds = new Set(waitingRuns.map(({ inputMessageId }) => inputMessageId));
  const updates = await messageUpdates.updates(
    segmentsOf(session),
    messages.map(({ id }) => id),
  );
  return messages.map((message) => {
    const state = waitingIds.has(message.id) ? { status: 'waiting' } : updates.get(message.id);
    return state === undefined ? message : { ...message, metadata: { ...message.metadata, ...state } };
  });
}
