// Converts the records of sessions, runs, queue items and approvals to the objects of the contract.
import type { Approval, QueueItem, Run, Session, UiMessage } from '../../contract/agent/types.gen.ts';
import type { ApprovalRecord } from './approvals/store.ts';
import { readMessage, type StoredEvent } from './event-log/events.ts';
import type { RunRecord } from './runs/store.ts';
import type { SessionRecord } from './event-log/session-store.ts';
import { noUsage } from './model-loop/usage.ts';
import { isCutOff, splitSteps } from './model-loop/prompt/answer.ts';

export function statusOf(
  session: Pick<SessionRecord, 'activeRunId' | 'pendingApprovals'>,
): Session['status'] {
  if (session.pendingApprovals > 0) return 'requires_action';
  return session.activeRunId === null ? 'idle' : 'running';
}

export function toSession(session: SessionRecord): Session {
  const { parentId } = session;
  return {
    id: session.id,
    kind: session.kind,
    title: session.title,
    status: statusOf(session),
    activeRunId: session.activeRunId,
    queueLength: session.queueLength,
    chatId: session.chatId,
    parentSessionId: parentId,
    forkedFrom:
      parentId === null
        ? null
        : { sessionId: parentId, seq: session.forkSeq, messageId: session.forkMessageId },
    model: session.model,
    reasoningEffort: session.reasoningEffort,
    attended: session.attended,
    mode: session.mode,
    workspace: session.workspace,
    messageCount: session.messageCount,
    headSeq: session.headSeq,
    usage: {
      inputTokens: session.inputTokens,
      outputTokens: session.outputTokens,
      cachedInputTokens: session.cachedInputTokens,
      reasoningTokens: session.reasoningTokens,
      credits: session.credits,
    },
    metadata: session.metadata,
    createdAt: session.createdAt,
    updatedAt: session.updatedAt,
    archivedAt: session.archivedAt,
  };
}

interface RunFacts {
  sessionId: string;
  /** The queue position of a waiting run; null for any other run. */
  place: { queuePosition: number; waitsFor: 'session' | 'capacity' } | null;
  /** The event that completed the run's message. */
  completion: StoredEvent | undefined;
}

export function toRun(run: RunRecord, facts: RunFacts): Run {
  const { status, startedAt, settledAt, finishReason } = run;
  const members = commonMembers(run, facts);
  const withoutSettlement = { finishReason: null, error: null, settledAt: null };
  const noPlace = { queuePosition: null };
  if (status === 'accepted')
    return { ...members, ...withoutSettlement, ...(facts.place ?? noPlace), status, startedAt };
  if (status === 'running')
    return {
      ...members,
      ...withoutSettlement,
      ...noPlace,
      status,
      startedAt: startedAt ?? run.acceptedAt,
    };
  if (settledAt === null) throw new Error(`The run ${run.runId} is ${status} but has no settlement time.`);
  const end = { ...noPlace, finishReason, startedAt, settledAt };
  if (status === 'completed') return { ...members, ...end, status, error: null };
  return {
    ...members,
    ...end,
    status,
    error: run.error ?? { code: 'internal_error', message: 'The run failed for an unknown reason.' },
  };
}

function commonMembers(run: RunRecord, { sessionId, completion }: RunFacts) {
  const message = completion ? readMessage(completion) : null;
  return {
    runId: run.runId,
    sessionId,
    delivery: run.delivery,
    origin: run.origin,
    model: run.model,
    inputMessageId: run.inputMessageId,
    messageId: run.messageId,
    queueItemId: run.queueItemId,
    text: message && lastStepText(message),
    message,
    usage: run.usage ?? noUsage,
    acceptedAt: run.acceptedAt,
  };
}

export function toQueueItem(run: RunRecord, queuePosition: number): QueueItem {
  const { runId, queueItemId, inputMessageId, delivery, preview, origin, acceptedAt } = run;
  return {
    queueItemId: queueItemId ?? runId,
    runId,
    messageId: inputMessageId,
    delivery,
    queuePosition,
    text: preview,
    origin,
    acceptedAt,
  };
}

/** The text of the message's last step, including the text that its broken streams delivered before. */
export function lastStepText({ parts }: UiMessage): string {
  const steps = splitSteps(parts);
  let firstStep = steps.length - 1;
  while (firstStep > 0 && isCutOff(steps[firstStep - 1] ?? [])) firstStep -= 1;
  return steps
    .slice(Math.max(firstStep, 0))
    .flat()
    .flatMap((part) => (part.type === 'text' ? [part.text] : []))
    .join('');
}

export function toApproval({ sessionKey: _key, ...approval }: ApprovalRecord, sessionId: string): Approval {
  return { ...approval, sessionId };
}
