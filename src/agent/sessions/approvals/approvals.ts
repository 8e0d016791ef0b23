// Approvals of tool calls. Every request is decided: by a person, by its expiry, by the end of the run or,
// in an unattended session, by the policy at once.
import type { Clock } from '../../../kernel/clock.ts';
import { id } from '../../../kernel/ids.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { SessionEvent } from '../event-log/events.ts';
import { watchChange } from '../event-log/live-feed.ts';
import type { EventLog } from '../event-log/log.ts';
import { lockSession } from '../event-log/session-store.ts';
import { append } from '../event-log/store.ts';
import type { UnitOfWork } from '../event-log/unit.ts';
import type { RunWriter } from '../model-loop/run-writer.ts';
import { untilAvailable } from '../runs/database-wait.ts';
import {
  findApproval,
  insertApproval,
  resolveApproval,
  type ApprovalRecord,
  type ApprovalStore,
} from './store.ts';

export interface ApprovalsOptions {
  agentId: string;
  store: ApprovalStore;
  eventLog: EventLog;
  clock: Clock;
  /** How long a request waits for a decision. */
  ttlMs: number;
  /** The decision in unattended sessions. */
  unattended: 'deny' | 'approve';
}

export interface ApprovalRequest {
  sessionKey: string;
  runId: string;
  isAttended: boolean;
  /** The queue length of the session, for the `status.changed` event that comes with the request. */
  queueLength: number;
  toolCallId: string;
  toolName: string;
  input: unknown;
  signal: AbortSignal;
  writer: Pick<RunWriter, 'record'>;
}

export type ApprovalVerdict =
  | { isApproved: true }
  | { isApproved: false; approvalId: string | null; reason: string };

export interface ApprovalDecision {
  isApproved: boolean;
  by: string;
  reason: string | null;
}

export interface Approvals {
  /** Resolves when the call is approved or denied, or when the run ends. */
  request(request: ApprovalRequest): Promise<ApprovalVerdict>;
  /** Throws 404 for an unknown approval, and 409 when the opposite was decided already. */
  decide(sessionKey: string, approvalId: string, decision: ApprovalDecision): Promise<ApprovalRecord>;
}

export function createApprovals(options: ApprovalsOptions): Approvals {
  const { unattended } = options;
  return {
    decide: (sessionKey, approvalId, decision) => decide(options, { sessionKey, approvalId }, decision),
    request: (request) =>
      request.isAttended
        ? requestAttended(options, request)
        : requestUnattended(request, unattended === 'approve'),
  };
}

interface ApprovalKey {
  sessionKey: string;
  approvalId: string;
}

function decide(
  { eventLog, agentId }: ApprovalsOptions,
  { sessionKey, approvalId }: ApprovalKey,
  { isApproved, by, reason }: ApprovalDecision,
): Promise<ApprovalRecord> {
  const status = isApproved ? 'approved' : 'denied';
  return eventLog.transact(async (unit) => {
    const session = await lockSession(unit, agentId, { key: sessionKey });
    const approval = session && (await findApproval(unit, sessionKey, approvalId));
    if (!session || !approval)
      return new Problem(
        'not_found',
        'approval_not_found',
        'There is no approval with this id in the session.',
        { param: 'approvalId' },
      );
    if (approval.status === status) return approval;
    if (approval.status !== 'pending') {
      const message = `The approval was already decided: ${approval.status}.`;
      return new Problem('conflict', 'approval_settled', message, { param: 'decision' });
    }
    const { runId, toolCallId } = approval;
    const { activeRunId, queueLength, pendingApprovals } = session;
    await resolveApproval(unit, approvalId, { status, by, reason });
    const events: SessionEvent[] = [
      { type: 'approval.resolved', approvalId, toolCallId, decision: status, decidedBy: by, reason },
    ];
    if (pendingApprovals === 1)
      events.push({ type: 'status.changed', status: 'running', activeRunId, queueLength });
    await append(unit, { sessionKey, runId, events, change: { approvals: -1 } });
    return (await findApproval(unit, sessionKey, approvalId)) as ApprovalRecord;
  });
}

async function requestUnattended(request: ApprovalRequest, isApproved: boolean): Promise<ApprovalVerdict> {
  const { sessionKey, runId, toolCallId, toolName, input, writer } = request;
  const approvalId = id('apr');
  const status = isApproved ? 'approved' : 'denied';
  const by = 'policy';
  const denialReason = 'The call needs an approval, and no person attends this session.';
  const reason = isApproved ? null : denialReason;
  await writer.record(
    [
      { type: 'approval.requested', approvalId, toolCallId, toolName, input, expiresAt: null },
      { type: 'approval.resolved', approvalId, toolCallId, decision: status, decidedBy: by, reason },
    ],
    {},
    (unit) =>
      insertApproval(unit, {
        approvalId,
        sessionKey,
        runId,
        toolCallId,
        toolName,
        input,
        expiresAt: null,
        decision: { status, by, reason },
      }),
  );
  return isApproved ? { isApproved } : { isApproved, approvalId, reason: denialReason };
}

async function requestAttended(
  options: ApprovalsOptions,
  request: ApprovalRequest,
): Promise<ApprovalVerdict> {
  const { sessionKey, runId, queueLength, toolCallId, toolName, input, signal, writer } = request;
  const approvalId = id('apr');
  const expiresAt = new Date(options.clock.now().getTime() + options.ttlMs).toISOString();
  await writer.record(
    [
      { type: 'approval.requested', approvalId, toolCallId, toolName, input, expiresAt },
      { type: 'status.changed', status: 'requires_action', activeRunId: runId, queueLength },
    ],
    { approvals: 1 },
    (unit: UnitOfWork) =>
      insertApproval(unit, { approvalId, sessionKey, runId, toolCallId, toolName, input, expiresAt }),
  );
  const finished = new AbortController();
  void denyAfterExpiry(options, { sessionKey, approvalId }, AbortSignal.any([signal, finished.signal]));
  try {
    const approval = await waitForDecision(options, { sessionKey, approvalId }, signal);
    if (approval?.status === 'approved') return { isApproved: true };
    const reason =
      approval?.reason ?? (approval?.status === 'denied' ? 'The call was denied.' : 'The run has ended.');
    return { isApproved: false, approvalId, reason: `The call was not approved: ${reason}` };
  } finally {
    finished.abort();
  }
}

/** The decided approval, whichever process decides it; still pending when the signal is aborted first. */
async function waitForDecision(
  { store, eventLog, clock }: ApprovalsOptions,
  { sessionKey, approvalId }: ApprovalKey,
  signal: AbortSignal,
): Promise<ApprovalRecord | undefined> {
  const { promise: abortPromise, resolve: onAbort } = Promise.withResolvers<void>();
  signal.addEventListener('abort', () => onAbort(), { once: true });
  for (;;) {
    const watch = watchChange(eventLog, sessionKey, ({ type }) => type === 'approval.resolved');
    try {
      const approval = await untilAvailable(() => store.find(approvalId), { clock, signal });
      if (approval?.status !== 'pending' || signal.aborted) return approval;
      await Promise.race([watch.changed, abortPromise]);
    } finally {
      watch.stop();
    }
  }
}

async function denyAfterExpiry(
  options: ApprovalsOptions,
  key: ApprovalKey,
  signal: AbortSignal,
): Promise<void> {
  let waitMs = options.ttlMs;
  while (!signal.aborted) {
    try {
      await options.clock.sleep(waitMs, signal);
      await decide(options, key, {
        isApproved: false,
        by: 'expiry',
        reason: 'The approval expired before a decision.',
      });
      return;
    } catch (error) {
      // Any other error means that the wait was aborted, or that the approval was decided or removed
      // meanwhile.
      if (!(error instanceof Problem) || error.kind !== 'unavailable') return;
      waitMs = 1_000;
    }
  }
}
