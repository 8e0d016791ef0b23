// How a run ends, and how the next one of its session begins: in one transaction, so that a queue never stands still
// between the two and a run never ends twice.
import type { RunUsage } from '../../../contract/agent/types.gen.ts';
import { id } from '../../../kernel/ids.ts';
import { startEvents, maxQueueItemsShown, queueUpdated, type StartedRun } from './admission.ts';
import { pendingApprovals, resolveApproval, type ApprovalRecord } from '../approvals/store.ts';
import type { RunError, RunOutcome } from '../event-log/events.ts';
import type { Unit } from '../event-log/committer.ts';
import { append, type LogEntry, type SessionChange } from '../event-log/store.ts';
import { lockSession, type SessionRecord } from '../event-log/session-store.ts';
import { advanceRuns, steeredRuns, waitingRuns, type LeaseHolder, type RunRecord } from './store.ts';

export const noUsage: Readonly<RunUsage> = { inputTokens: 0, outputTokens: 0 };

export interface Settlement {
  outcome: RunOutcome;
  usage: RunUsage;
  finishReason: string | null;
  error: RunError | null;
  /** What is still to be written before the end. */
  events: readonly LogEntry[];
  hasCheckpoints: boolean;
  /** Whether inputs were taken into the run on its way, which end with it. */
  hasTakenSteers: boolean;
}

export interface SettlementRules {
  agentId: string;
  holder: LeaseHolder;
  defaultModel: string;
  /** Whether the next may begin here. */
  mayContinue(): boolean;
  claim(runId: string): void;
  /** It does not begin here after all. */
  release(runId: string): void;
}

export interface RunKey {
  runId: string;
  sessionKey: string;
}

export interface Settled {
  next: StartedRun | null;
  settlement: Settlement;
}

/** Ends the run that may write now and begins the next. Null when it is not that one any more, or `make` returns null; then nothing is written. */
export async function settle(
  unit: Unit,
  run: RunKey,
  make: Settlement | (() => Promise<Settlement | null>),
  rules: SettlementRules,
): Promise<Settled | null> {
  const session = await lockSession(unit, rules.agentId, { key: run.sessionKey });
  if (session?.activeRunId !== run.runId) return null;
  const settlement = typeof make === 'function' ? await make() : make;
  if (settlement === null) return null;
  const open = session.pendingApprovals > 0 ? await pendingApprovals(unit, run.runId) : [];
  for (const { approvalId } of open)
    await resolveApproval(unit, approvalId, { status: 'denied', by: 'run', reason: 'The run has ended.' });
  const steered = settlement.hasTakenSteers ? await steeredRuns(unit, run.runId) : [];
  return end(unit, session, run, { settlement, open, steered }, rules);
}

/** The same without a lock and in one statement, from what is known of the session; null where that does not suffice or is not true any more. */
export async function settleKnown(
  unit: Unit,
  session: SessionRecord,
  run: RunKey,
  settlement: Settlement,
  rules: SettlementRules,
): Promise<Settled | null> {
  if (session.activeRunId !== run.runId || session.pendingApprovals > 0 || settlement.hasTakenSteers)
    return null;
  return end(unit, session, run, { settlement, open: [], steered: [] }, rules);
}

async function end(
  unit: Unit,
  session: SessionRecord,
  { runId, sessionKey }: RunKey,
  {
    settlement,
    open,
    steered,
  }: { settlement: Settlement; open: readonly ApprovalRecord[]; steered: readonly string[] },
  rules: SettlementRules,
): Promise<Settled | null> {
  const { outcome, usage, finishReason, error, hasCheckpoints } = settlement;
  const ending = { outcome, usage, finishReason, error };
  const waiting = session.queueLength > 0 ? await waitingRuns(unit, sessionKey, maxQueueItemsShown + 1) : [];
  const next = rules.mayContinue() ? waiting[0] : undefined;
  const events: LogEntry[] = [
    ...settlement.events,
    ...open.map(({ approvalId, toolCallId }) => ({
      type: 'approval.resolved' as const,
      approvalId,
      toolCallId,
      decision: 'denied' as const,
      decidedBy: 'run',
      reason: 'The run has ended.',
    })),
    { type: 'run.settled', ...ending },
    ...steered.map((steeredId) => ({
      type: 'run.settled' as const,
      runId: steeredId,
      ...ending,
      usage: noUsage,
    })),
  ];
  const begun = next ? planNext(session, next, waiting, rules) : null;
  if (begun) events.push(...begun.events);
  else
    events.push({
      type: 'status.changed',
      runId: null,
      status: 'idle',
      activeRunId: null,
      queueLength: session.queueLength,
    });
  const change: SessionChange = {
    activeRunId: next?.runId ?? null,
    ...(next ? { queue: -1, messages: begun?.run.messageId === null ? 0 : 1 } : {}),
    approvals: -open.length,
    inputTokens: usage.inputTokens,
    outputTokens: usage.outputTokens,
  };
  const beside = advanceRuns(
    unit.tx,
    { runIds: [runId, ...steered], end: ending },
    hasCheckpoints ? runId : null,
    begun ? { ...begun.run, holder: rules.holder } : null,
  );
  const seq = await append(
    unit,
    { sessionKey, runId, fence: runId, expectedSeq: session.headSeq, events, change },
    beside,
  );
  if (seq === null) {
    if (begun) rules.release(begun.run.runId);
    return null;
  }
  return { next: begun && { ...begun.run, seq }, settlement };
}

/** Begins what waits in a session in which nothing runs; null when there is nothing to do. */
export async function startQueued(
  unit: Unit,
  sessionKey: string,
  rules: SettlementRules,
): Promise<StartedRun | null> {
  const session = await lockSession(unit, rules.agentId, { key: sessionKey });
  if (!session || session.activeRunId !== null || session.queueLength === 0 || !rules.mayContinue())
    return null;
  const waiting = await waitingRuns(unit, sessionKey, maxQueueItemsShown + 1);
  const [next] = waiting;
  if (!next) return null;
  const { run, events } = planNext(session, next, waiting, rules);
  const change = { activeRunId: next.runId, queue: -1, messages: run.messageId === null ? 0 : 1 };
  const seq = await append(
    unit,
    { sessionKey, runId: next.runId, events, change },
    advanceRuns(unit.tx, null, null, { ...run, holder: rules.holder }),
  );
  return seq === null ? null : { ...run, seq };
}

function planNext(
  session: SessionRecord,
  next: RunRecord,
  waiting: readonly RunRecord[],
  rules: SettlementRules,
): { run: Omit<StartedRun, 'seq'>; events: LogEntry[] } {
  rules.claim(next.runId);
  const messageId = next.delivery === 'compact' ? null : id('msg');
  const model = next.model ?? session.model ?? rules.defaultModel;
  const rest = waiting.slice(1);
  const events: LogEntry[] = [
    {
      type: 'queue.removed',
      runId: next.runId,
      queueItemId: next.queueItemId ?? next.runId,
      reason: 'started',
    },
    ...(rest.length === 0
      ? []
      : [{ ...queueUpdated(rest, session.queueLength - 1, (index) => index + 1), runId: null }]),
    ...startEvents({
      runId: next.runId,
      messageId,
      model,
      inputMessageId: next.inputMessageId,
      queueLength: session.queueLength - 1,
      index: session.messageCount,
    }),
  ];
  const run = {
    session,
    runId: next.runId,
    messageId,
    model,
    reasoningEffort: next.reasoningEffort ?? session.reasoningEffort,
    delivery: next.delivery,
    origin: next.origin,
    input: null,
  };
  return { run, events };
}

const reasons = {
  cancelled: { code: 'run_cancelled', message: 'The input was taken out of the queue.' },
  expired: { code: 'run_expired', message: 'The input had not begun within the time that it was given.' },
} as const;

/** Takes inputs out of the queue. Those that have begun, or are over, stay as they are. */
export async function removeFromQueue(
  unit: Unit,
  agentId: string,
  sessionKey: string,
  runIds: readonly string[] | 'all',
  reason: keyof typeof reasons,
): Promise<string[]> {
  const session = await lockSession(unit, agentId, { key: sessionKey });
  if (!session) return [];
  const waiting = await waitingRuns(unit, sessionKey);
  const gone = waiting.filter(({ runId }) => runIds === 'all' || runIds.includes(runId));
  if (gone.length === 0) return [];
  const ending = { outcome: reason, usage: noUsage, finishReason: null, error: reasons[reason] };
  const rest = waiting.filter((run) => !gone.includes(run));
  const running = session.activeRunId === null ? 0 : 1;
  const events: LogEntry[] = gone.flatMap(({ runId, queueItemId, inputMessageId }): LogEntry[] => [
    { type: 'queue.removed', runId, queueItemId: queueItemId ?? runId, reason },
    ...(inputMessageId === null
      ? []
      : [
          {
            type: 'message.updated' as const,
            runId,
            messageId: inputMessageId,
            metadata: { status: reason },
          },
        ]),
    { type: 'run.settled', runId, ...ending },
  ]);
  if (rest.length > 0)
    events.push({ ...queueUpdated(rest, rest.length, (index) => index + running), runId: null });
  // Nothing that ends tells of it later.
  if (running === 0)
    events.push({
      type: 'status.changed',
      runId: null,
      status: 'idle',
      activeRunId: null,
      queueLength: rest.length,
    });
  await append(
    unit,
    { sessionKey, events, change: { queue: -gone.length } },
    advanceRuns(unit.tx, { runIds: gone.map(({ runId }) => runId), end: ending }, null, null),
  );
  return gone.map(({ runId }) => runId);
}
