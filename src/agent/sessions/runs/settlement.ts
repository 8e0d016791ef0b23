// Settles a run and starts the next one of its session in one commit, so that a
// queue never stops between the two and no run is settled twice.
import type { RunUsage } from '../../../contract/agent/types.gen.ts';
import { id } from '../../../kernel/ids.ts';
import { pendingApprovals, resolveApproval, type ApprovalRecord } from '../approvals/store.ts';
import type { RunError, RunOutcome } from '../event-log/events.ts';
import type { EventLog } from '../event-log/log.ts';
import { lockSession, type SessionRecord } from '../event-log/session-store.ts';
import { append } from '../event-log/store.ts';
import type { LogEntry, SessionChange, UnitOfWork } from '../event-log/unit.ts';
import { noUsage } from '../model-loop/usage.ts';
import { maxQueueItemsShown, queueUpdated, startEvents } from './run-events.ts';
import type { StartedRun } from './submission.ts';
import {
  advanceRuns,
  steeredRuns,
  waitingAhead,
  waitingRuns,
  type LeaseHolder,
  type RunEnd,
  type RunRecord,
} from './store.ts';

export interface Settlement {
  outcome: RunOutcome;
  usage: RunUsage;
  finishReason: string | null;
  error: RunError | null;
  /** Events that precede the `run.settled`. */
  events: readonly LogEntry[];
  hasCheckpoints: boolean;
  /** Whether the run has taken steers, which are settled with it. */
  hasTakenSteers: boolean;
}

export interface SettlementRules {
  agentId: string;
  holder: LeaseHolder;
  defaultModel: string;
  /** Whether this process may start the next run. */
  mayStartNext(): boolean;
  /** Whether inputs of other sessions wait for a free place. */
  hasWaiting(): boolean;
  /** Called before a run is written that this process will execute. */
  claim(runId: string): void;
  /** Called when a claimed run does not start here after all. */
  release(runId: string): void;
}

export interface RunKey {
  runId: string;
  sessionKey: string;
}

export interface SettleResult {
  next: StartedRun | null;
  /**
   * Inputs of the session stay in the queue, because those of other sessions come first or the process
   * drains.
   */
  hasYielded: boolean;
  settlement: Settlement;
}

/**
 * Calls the work with rules that record its claims. If the work fails, its claimed runs are released: they
 * would occupy places, and no sweep would settle those whose start was committed although the answer was
 * lost.
 */
export async function releasingClaims<T>(
  rules: SettlementRules,
  work: (rules: SettlementRules) => Promise<T>,
): Promise<T> {
  const claimedIds: string[] = [];
  const claim = (runId: string): void => {
    claimedIds.push(runId);
    rules.claim(runId);
  };
  try {
    return await work({ ...rules, claim });
  } catch (error) {
    for (const runId of claimedIds) rules.release(runId);
    throw error;
  }
}

/** Null when the run is no longer the session's active run; then nothing is written. */
export async function settleRun(
  eventLog: EventLog,
  run: RunKey,
  settlement: Settlement,
  rules: SettlementRules,
): Promise<SettleResult | null> {
  const [result] = await releasingClaims(rules, (ownRules) =>
    eventLog.decide<RunKey, SettleResult | null>([run], {
      locate: ({ sessionKey }) => ({ key: sessionKey }),
      run: async (unit, _items, { sessions: [session], isLocked }) => [
        await decideSettlement(unit, session, { run, settlement, isLocked }, ownRules),
      ],
    }),
  );
  return result === 'stale' ? null : (result ?? null);
}

/**
 * Settles a run in the caller's transaction. `buildSettlement` is called under the session's lock; when it
 * returns null, nothing is written.
 */
export async function settleLocked(
  unit: UnitOfWork,
  run: RunKey,
  buildSettlement: () => Promise<Settlement | null>,
  rules: SettlementRules,
): Promise<SettleResult | null> {
  const session = await lockSession(unit, rules.agentId, { key: run.sessionKey });
  if (session?.activeRunId !== run.runId) return null;
  const settlement = await buildSettlement();
  if (settlement === null) return null;
  const result = await decideSettlement(unit, session, { run, settlement, isLocked: true }, rules);
  return result === 'stale' ? null : result;
}

async function decideSettlement(
  unit: UnitOfWork,
  session: SessionRecord | undefined,
  { run, settlement, isLocked }: { run: RunKey; settlement: Settlement; isLocked: boolean },
  rules: SettlementRules,
): Promise<SettleResult | null | 'stale'> {
  const failure = isLocked ? null : 'stale';
  if (session?.activeRunId !== run.runId) return failure;
  // Approvals and steers need further statements, and therefore the lock.
  if (!isLocked && (session.pendingApprovals > 0 || settlement.hasTakenSteers)) return 'stale';
  const approvals = session.pendingApprovals > 0 ? await denyPendingApprovals(unit, run.runId) : [];
  const steeredRunIds = settlement.hasTakenSteers ? await steeredRuns(unit, run.runId) : [];
  const result = await writeSettlement(unit, session, { run, settlement, approvals, steeredRunIds }, rules);
  return result ?? failure;
}

const runEnded = 'The run has ended.';

async function denyPendingApprovals(unit: UnitOfWork, runId: string): Promise<ApprovalRecord[]> {
  const approvals = await pendingApprovals(unit, runId);
  for (const { approvalId } of approvals)
    await resolveApproval(unit, approvalId, { status: 'denied', by: 'run', reason: runEnded });
  return approvals;
}

interface SettlementWrite {
  run: RunKey;
  settlement: Settlement;
  /** The approvals that are denied because the run ends. */
  approvals: readonly ApprovalRecord[];
  /** Runs that were steered into this one. */
  steeredRunIds: readonly string[];
}

/** Null when the session has changed; then nothing was written. */
async function writeSettlement(
  unit: UnitOfWork,
  session: SessionRecord,
  write: SettlementWrite,
  rules: SettlementRules,
): Promise<SettleResult | null> {
  const { run, settlement, approvals, steeredRunIds } = write;
  const { runId, sessionKey } = run;
  const queuedRuns =
    session.queueLength > 0 ? await waitingRuns(unit, sessionKey, maxQueueItemsShown + 1) : [];
  // If inputs of other sessions wait for a place, this session gives up its place and queues like them.
  const next = rules.mayStartNext() && !rules.hasWaiting() ? queuedRuns[0] : undefined;
  const start = next ? planStart(session, next, queuedRuns, rules) : null;
  const idle: LogEntry = {
    type: 'status.changed',
    runId: null,
    status: 'idle',
    activeRunId: null,
    queueLength: session.queueLength,
  };
  const events = [...endEvents(write), ...(start ? start.events : [idle])];
  const change: SessionChange = {
    activeRunId: null,
    ...start?.change,
    approvals: -approvals.length,
    ...settlement.usage,
  };
  const runUpdates = advanceRuns(unit.tx, {
    ended: { runIds: [runId, ...steeredRunIds], end: endOf(settlement) },
    checkpointsOf: settlement.hasCheckpoints ? runId : null,
    next: start ? { ...start.run, holder: rules.holder } : null,
  });
  const seq = await append(
    unit,
    { sessionKey, runId, fence: runId, expectedSeq: session.headSeq, events, change },
    runUpdates,
  );
  if (seq === null) {
    if (start) rules.release(start.run.runId);
    return null;
  }
  return {
    next: start && { ...start.run, seq },
    hasYielded: next === undefined && queuedRuns.length > 0,
    settlement,
  };
}

function endOf({ outcome, usage, finishReason, error }: Settlement): RunEnd {
  return { outcome, usage, finishReason, error };
}

function endEvents({ settlement, approvals, steeredRunIds }: SettlementWrite): LogEntry[] {
  const end = endOf(settlement);
  return [
    ...settlement.events,
    ...approvals.map(({ approvalId, toolCallId }): LogEntry => ({
      type: 'approval.resolved',
      approvalId,
      toolCallId,
      decision: 'denied',
      decidedBy: 'run',
      reason: runEnded,
    })),
    { type: 'run.settled', ...end },
    ...steeredRunIds.map((runId): LogEntry => ({ type: 'run.settled', runId, ...end, usage: noUsage })),
  ];
}

/** Starts the first waiting run of a session that has no active run; null when there is nothing to start. */
export async function startQueued(
  unit: UnitOfWork,
  sessionKey: string,
  rules: SettlementRules,
): Promise<StartedRun | null> {
  const session = await lockSession(unit, rules.agentId, { key: sessionKey });
  if (!session || session.activeRunId !== null || session.queueLength === 0 || !rules.mayStartNext())
    return null;
  const queuedRuns = await waitingRuns(unit, sessionKey, maxQueueItemsShown + 1);
  const [next] = queuedRuns;
  if (!next) return null;
  const { run, events, change } = planStart(session, next, queuedRuns, rules);
  const seq = await append(
    unit,
    { sessionKey, runId: next.runId, events, change },
    advanceRuns(unit.tx, { next: { ...run, holder: rules.holder } }),
  );
  return seq === null ? null : { ...run, seq };
}

/** Plans the writes that start a waiting run. Claims the run for this process. */
function planStart(
  session: SessionRecord,
  next: RunRecord,
  queuedRuns: readonly RunRecord[],
  rules: SettlementRules,
): { run: Omit<StartedRun, 'seq'>; events: LogEntry[]; change: SessionChange } {
  const { runId, delivery } = next;
  rules.claim(runId);
  const messageId = delivery === 'compact' ? null : id('msg');
  const model = next.model ?? session.model ?? rules.defaultModel;
  const rest = queuedRuns.slice(1);
  const queueLength = session.queueLength - 1;
  const events: LogEntry[] = [
    { type: 'queue.removed', runId, queueItemId: next.queueItemId ?? runId, reason: 'started' },
    ...(rest.length === 0 ? [] : [{ ...queueUpdated(rest, queueLength, (index) => index + 1), runId: null }]),
    ...startEvents({
      runId,
      messageId,
      model,
      inputMessageId: next.inputMessageId,
      queueLength,
      index: session.messageCount,
    }),
  ];
  const run = {
    session,
    runId,
    messageId,
    model,
    reasoningEffort: next.reasoningEffort ?? session.reasoningEffort,
    delivery,
    origin: next.origin,
    input: null,
  };
  return {
    run,
    events,
    change: { activeRunId: runId, queue: -1, messages: messageId === null ? 0 : 1 },
  };
}

const removalErrors = {
  cancelled: { code: 'run_cancelled', message: 'The input was removed from the queue.' },
  expired: { code: 'run_expired', message: 'The input did not start before its time limit.' },
} as const;

/**
 * Settles waiting inputs without starting them; returns the ids of their runs. Runs that have started or
 * ended already are left alone.
 */
export async function removeFromQueue(
  unit: UnitOfWork,
  agentId: string,
  sessionKey: string,
  runIds: readonly string[] | 'all',
  reason: keyof typeof removalErrors,
): Promise<string[]> {
  const session = await lockSession(unit, agentId, { key: sessionKey });
  if (!session) return [];
  const queuedRuns = await waitingRuns(unit, sessionKey);
  const removedRuns = queuedRuns.filter(({ runId }) => runIds === 'all' || runIds.includes(runId));
  if (removedRuns.length === 0) return [];
  const remainingRuns = queuedRuns.filter((run) => !removedRuns.includes(run));
  const isBusy = session.activeRunId !== null;
  const events: LogEntry[] = removedRuns.flatMap((run) => removalEvents(run, reason));
  const [nextRun] = remainingRuns;
  if (nextRun !== undefined) {
    const aheadCount = isBusy ? 1 : await waitingAhead(unit.tx, agentId, nextRun);
    events.push({
      ...queueUpdated(remainingRuns, remainingRuns.length, (index) => index + aheadCount),
      runId: null,
    });
  }
  // With an active run, the settlement of that run reports the next status.
  if (!isBusy)
    events.push({
      type: 'status.changed',
      runId: null,
      status: 'idle',
      activeRunId: null,
      queueLength: remainingRuns.length,
    });
  const removedIds = removedRuns.map(({ runId }) => runId);
  await append(
    unit,
    { sessionKey, events, change: { queue: -removedRuns.length } },
    advanceRuns(unit.tx, { ended: { runIds: removedIds, end: removalEnd(reason) } }),
  );
  return removedIds;
}

function removalEnd(reason: keyof typeof removalErrors): RunEnd {
  return { outcome: reason, usage: noUsage, finishReason: null, error: removalErrors[reason] };
}

function removalEvents(
  { runId, queueItemId, inputMessageId }: RunRecord,
  reason: keyof typeof removalErrors,
): LogEntry[] {
  const events: LogEntry[] = [{ type: 'queue.removed', runId, queueItemId: queueItemId ?? runId, reason }];
  if (inputMessageId !== null)
    events.push({ type: 'message.updated', runId, messageId: inputMessageId, metadata: { status: reason } });
  events.push({ type: 'run.settled', runId, ...removalEnd(reason) });
  return events;
}
