// Steering: inputs with the delivery `steer` go to the model with the next step of the active
// run. The current message ends, and the answer continues in a new message after the inputs.
import type { UiMessagePart } from '../../../contract/agent/types.gen.ts';
import { id } from '../../../kernel/ids.ts';
import { lockSession } from '../event-log/session-store.ts';
import type { LogEntry } from '../event-log/unit.ts';
import type { ActiveRun, RunnerOptions } from './active-run.ts';
import { untilAvailable } from './database-wait.ts';
import { queueUpdated } from './run-events.ts';
import { moveMessage, steerRun, waitingRuns, type RunRecord } from './store.ts';

const isSteer = ({ delivery }: RunRecord): boolean => delivery === 'steer';

/** False when no input waits for the run. */
export async function takeSteers(
  { runStore, hasReplicas, clock }: RunnerOptions,
  run: ActiveRun,
  parts: UiMessagePart[],
): Promise<boolean> {
  const { handle, writer } = run;
  const { session } = run.started;
  // Another process cannot set the flag here, so with replicas every step queries the database.
  if (!hasReplicas) handle.hasSteer = false;
  const { signal } = handle.abort;
  const queue = await untilAvailable(() => runStore.queue(session.key), { clock, signal });
  if (!queue.some(isSteer)) return false;
  const nextMessageId = id('msg');
  let steers: RunRecord[] = [];
  const seq = await writer.recordFrom(async (unit) => {
    const lockedSession = await lockSession(unit, session.agentId, { key: session.key });
    const queuedRuns = await waitingRuns(unit, session.key);
    steers = lockedSession?.activeRunId === run.started.runId ? queuedRuns.filter(isSteer) : [];
    if (!lockedSession || steers.length === 0) return null;
    for (const steer of steers) await steerRun(unit, steer.runId, run.started.runId);
    await moveMessage(unit, run.started.runId, nextMessageId);
    return {
      events: steerEvents(run, {
        parts,
        steers,
        queuedRuns,
        nextMessageId,
        index: lockedSession.messageCount,
      }),
      change: { queue: -steers.length, messages: 1 },
    };
  });
  if (seq === null || steers.length === 0) return false;
  handle.hasTakenSteers = true;
  run.messageId = nextMessageId;
  run.seq = seq;
  writer.setMessage(nextMessageId);
  return true;
}

interface Steering {
  /** The parts of the message that ends. */
  parts: UiMessagePart[];
  steers: readonly RunRecord[];
  /** All waiting runs of the session, including the steers. */
  queuedRuns: readonly RunRecord[];
  nextMessageId: string;
  /** The index of the next message in the session. */
  index: number;
}

function steerEvents(run: ActiveRun, steering: Steering): LogEntry[] {
  const { runId, model } = run.started;
  const { messageId, createdAt } = run;
  const { parts, steers, queuedRuns, nextMessageId, index } = steering;
  const endedMessageId = messageId as string;
  const metadata = { runId, createdAt, status: 'completed', model };
  const otherRuns = queuedRuns.filter((queuedRun) => !isSteer(queuedRun));
  return [
    {
      type: 'message.completed',
      messageId: endedMessageId,
      message: { id: endedMessageId, role: 'assistant', parts, metadata },
    },
    ...steers.map((steer): LogEntry => ({
      type: 'queue.removed',
      runId: steer.runId,
      queueItemId: steer.queueItemId ?? steer.runId,
      reason: 'steered',
    })),
    ...(otherRuns.length === 0
      ? []
      : [{ ...queueUpdated(otherRuns, otherRuns.length, (position) => position + 1), runId: null }]),
    { type: 'message.created', messageId: nextMessageId, role: 'assistant', index },
  ];
}
