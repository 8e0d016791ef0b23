// Asking a person before a tool runs. Whoever waits here is answered in any case: by a person, at the end of the time
// that the question has, at the end of the run, or, in a session that nobody attends, by the policy and at once.
import type { Clock } from '../../../kernel/clock.ts';
import { id } from '../../../kernel/ids.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { SessionEvent } from '../event-log/events.ts';
import type { RunWriter } from '../model-loop/run-writer.ts';
import type { Bus } from '../event-log/bus.ts';
import type { Committer } from '../event-log/committer.ts';
import { append } from '../event-log/store.ts';
import { lockSession } from '../event-log/session-store.ts';
import {
  approvalInUnit,
  insertApproval,
  resolveApproval,
  type ApprovalRecord,
  type ApprovalStore,
} from './store.ts';

export interface ApprovalsNeeds {
  agentId: string;
  store: ApprovalStore;
  committer: Committer;
  bus: Bus;
  clock: Clock;
  /** How long a question stands. */
  ttlMs: number;
  /** What becomes of calls that need approval where nobody attends. */
  unattended: 'deny' | 'approve';
}

export interface ApprovalRequest {
  sessionKey: string;
  runId: string;
  isAttended: boolean;
  /** For the change of status that the question is. */
  queueLength: number;
  toolCallId: string;
  toolName: string;
  input: unknown;
  signal: AbortSignal;
  journal: Pick<RunWriter, 'record'>;
}

export type ApprovalVerdict =
  | { isApproved: true }
  | { isApproved: false; approvalId: string | null; reason: string };

export interface Approvals {
  ask(question: ApprovalRequest): Promise<ApprovalVerdict>;
  /** Throws 404 and, when it was decided otherwise, 409. */
  decide(
    sessionKey: string,
    approvalId: string,
    decision: { isApproved: boolean; by: string; reason: string | null },
  ): Promise<ApprovalRecord>;
}

export function createApprovals({
  agentId,
  store,
  committer,
  bus,
  clock,
  ttlMs,
  unattended,
}: ApprovalsNeeds): Approvals {
  async function decide(
    sessionKey: string,
    approvalId: string,
    { isApproved, by, reason }: { isApproved: boolean; by: string; reason: string | null },
  ): Promise<ApprovalRecord> {
    const status = isApproved ? 'approved' : 'denied';
    return committer.commit(async (unit) => {
      const session = await lockSession(unit, agentId, { key: sessionKey });
      const approval = session && (await approvalInUnit(unit, sessionKey, approvalId));
      if (!session || !approval)
        return new Problem(
          'not_found',
          'approval_not_found',
          'There is no approval of this id in the session.',
          { param: 'approvalId' },
        );
      if (approval.status === status) return approval;
      if (approval.status !== 'pending')
        return new Problem('conflict', 'approval_settled', `It was ${approval.status} already.`, {
          param: 'decision',
        });
      await resolveApproval(unit, approvalId, { status, by, reason });
      const left = session.pendingApprovals - 1;
      const resolved: SessionEvent = {
        type: 'approval.resolved',
        approvalId,
        toolCallId: approval.toolCallId,
        decision: status,
        decidedBy: by,
        reason,
      };
      const changed: SessionEvent = {
        type: 'status.changed',
        status: 'running',
        activeRunId: session.activeRunId,
        queueLength: session.queueLength,
      };
      await append(unit, {
        sessionKey,
        runId: approval.runId,
        events: left === 0 ? [resolved, changed] : [resolved],
        change: { approvals: -1 },
      });
      return (await approvalInUnit(unit, sessionKey, approvalId)) as ApprovalRecord;
    });
  }

  // Until it is decided, by whichever process.
  async function decided(
    sessionKey: string,
    approvalId: string,
    signal: AbortSignal,
  ): Promise<ApprovalRecord | undefined> {
    for (;;) {
      const news = Promise.withResolvers<void>();
      const leave = bus.follow(sessionKey, {
        events: (events) => {
          if (events.some(({ type }) => type === 'approval.resolved')) news.resolve();
        },
        delta: () => {},
        moved: () => news.resolve(),
        gone: () => news.resolve(),
      });
      const stop = () => news.resolve();
      signal.addEventListener('abort', stop, { once: true });
      try {
        const approval = await store.find(approvalId);
        if (approval?.status !== 'pending' || signal.aborted) return approval;
        await news.promise;
      } finally {
        leave();
        signal.removeEventListener('abort', stop);
      }
    }
  }

  async function expire(sessionKey: string, approvalId: string, signal: AbortSignal): Promise<void> {
    let waitMs = ttlMs;
    while (!signal.aborted) {
      try {
        await clock.sleep(waitMs, signal);
        await decide(sessionKey, approvalId, {
          isApproved: false,
          by: 'expiry',
          reason: 'Nobody decided in time.',
        });
        return;
      } catch (thrown) {
        // Somebody else may have decided in the same moment, which is as good; a database that is away comes back.
        if (!(thrown instanceof Problem) || thrown.kind !== 'unavailable') return;
        waitMs = 1_000;
      }
    }
  }

  return {
    decide,
    async ask({ sessionKey, runId, isAttended, queueLength, toolCallId, toolName, input, signal, journal }) {
      const approvalId = id('apr');
      const asked = { approvalId, sessionKey, runId, toolCallId, toolName, input };
      if (!isAttended) {
        const isApproved = unattended === 'approve';
        const reason = isApproved ? null : 'The call needs an approval, and nobody attends this session.';
        const status = isApproved ? 'approved' : 'denied';
        await journal.record(
          [
            { type: 'approval.requested', approvalId, toolCallId, toolName, input, expiresAt: null },
            {
              type: 'approval.resolved',
              approvalId,
              toolCallId,
              decision: status,
              decidedBy: 'policy',
              reason,
            },
          ],
          {},
          (unit) =>
            insertApproval(unit, { ...asked, expiresAt: null, decided: { status, by: 'policy', reason } }),
        );
        return isApproved ? { isApproved } : { isApproved, approvalId, reason: reason ?? '' };
      }
      const expiresAt = new Date(clock.now().getTime() + ttlMs).toISOString();
      await journal.record(
        [
          { type: 'approval.requested', approvalId, toolCallId, toolName, input, expiresAt },
          { type: 'status.changed', status: 'requires_action', activeRunId: runId, queueLength },
        ],
        { approvals: 1 },
        (unit) => insertApproval(unit, { ...asked, expiresAt }),
      );
      const over = new AbortController();
      const ended = AbortSignal.any([signal, over.signal]);
      void expire(sessionKey, approvalId, ended);
      try {
        const approval = await decided(sessionKey, approvalId, signal);
        if (approval?.status === 'approved') return { isApproved: true };
        const reason =
          approval?.reason ?? (approval?.status === 'denied' ? 'The call was denied.' : 'The run has ended.');
        return { isApproved: false, approvalId, reason: `The call was not approved: ${reason}` };
      } finally {
        over.abort();
      }
    },
  };
}
