// Steering: inputs with the delivery `steer` go to the model with the next step of the run that is under way. The message
// so far ends, and the answer continues in a new one behind the inputs.
import type { UiMessage, UiMessagePart } from '../../../contract/agent/types.gen.ts';
import { id } from '../../../kernel/ids.ts';
import { readEvent } from '../event-log/events.ts';
import { lockSession, segmentsOf, type SessionRecord } from '../event-log/session-store.ts';
import type { EventStore } from '../event-log/store.ts';
import type { LogEntry } from '../event-log/unit.ts';
import type { ModelMessage } from '../model-loop/loop.ts';
import type { ActiveRun, RunnerOptions } from './active-run.ts';
import { queueUpdated } from './run-events.ts';
import { moveMessage, steerRun, waitingRuns, type RunRecord } from './store.ts';

const isSteer = ({ delivery }: RunRecord): boolean => delivery === 'steer';

/** Empty when no input waits for the run. */
export async function takeSteers(
  { events, runStore, modelLoop, hasReplicas }: RunnerOptions,
  run: ActiveRun,
  parts: UiMessagePart[],
): Promise<ModelMessage[]> {
  const { handle, writer } = run;
  const { session } = run.started;
  // Another process sets no flag here, so with replicas every step looks.
  if (!hasReplicas) handle.hasSteer = false;
  if (!(await runStore.queue(session.key)).some(isSteer)) return [];
  const nextMessageId = id('msg');
  let steers: RunRecord[] = [];
  await writer.recordFrom(async (unit) => {
    const locked = await lockSession(unit, session.agentId, { key: session.key });
    const waiting = await waitingRuns(unit, session.key);
    steers = locked?.activeRunId === run.started.runId ? waiting.filter(isSteer) : [];
    if (!locked || steers.length === 0) return null;
    for (const steer of steers) await steerRun(unit, steer.runId, run.started.runId);
    await moveMessage(unit, run.started.runId, nextMessageId);
    return {
      events: steerEvents(run, { parts, steers, waiting, nextMessageId, index: locked.messageCount }),
      change: { queue: -steers.length, messages: 1 },
    };
  });
  if (steers.length === 0) return [];
  handle.hasTakenSteers = true;
  run.messageId = nextMessageId;
  writer.setMessage(nextMessageId);
  const messages = await readInputs(events, session, steers);
  return modelLoop.toModelMessages({
    summary: null,
    messages: messages.map((message) => ({ seq: 0, message })),
  });
}

function steerEvents(
  { started: { runId }, messageId, createdAt }: ActiveRun,
  {
    parts,
    steers,
    waiting,
    nextMessageId,
    index,
  }: {
    parts: UiMessagePart[];
    steers: readonly RunRecord[];
    waiting: readonly RunRecord[];
    nextMessageId: string;
    index: number;
  },
): LogEntry[] {
  const endedId = messageId as string;
  const metadata = { runId, createdAt, status: 'completed' };
  const rest = waiting.filter((waitingRun) => !isSteer(waitingRun));
  return [
    {
      type: 'message.completed',
      messageId: endedId,
      message: { id: endedId, role: 'assistant', parts, metadata },
    },
    ...steers.map((steer): LogEntry => ({
      type: 'queue.removed',
      runId: steer.runId,
      queueItemId: steer.queueItemId ?? steer.runId,
      reason: 'steered',
    })),
    ...(rest.length === 0
      ? []
      : [{ ...queueUpdated(rest, rest.length, (position) => position + 1), runId: null }]),
    { type: 'message.created', messageId: nextMessageId, role: 'assistant', index },
  ];
}

async function readInputs(
  events: EventStore,
  session: SessionRecord,
  steers: readonly RunRecord[],
): Promise<UiMessage[]> {
  const messages: UiMessage[] = [];
  for (const { inputMessageId } of steers) {
    const ofMessage = await events.messageEvents(
      segmentsOf(session, Number.MAX_SAFE_INTEGER),
      inputMessageId ?? '',
    );
    const completed = ofMessage.find(({ type }) => type === 'message.completed');
    if (completed) messages.push((readEvent(completed) as { message: UiMessage }).message);
  }
  return messages;
}
