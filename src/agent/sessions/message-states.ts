// Messages with the state that they are in now. A completed message is stored once; what became of
// it later is in other events, and whether an input still waits is in the queue.
import type { UiMessage } from '../../contract/agent/types.gen.ts';
import { segmentsOf, type SessionRecord } from './event-log/session-store.ts';
import type { HandlerOptions } from './session-options.ts';

/** The messages with their present metadata. */
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
