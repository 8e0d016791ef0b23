// How an input is accepted: in one transaction it becomes a message, a run and a place in the queue, or, where nothing is
// ahead of it, it begins at once. What was accepted is never lost, and the same input is never accepted twice.
import type { UiMessage } from '../../contract/agent/types.gen.ts';
import { Problem } from '../../kernel/problem.ts';
import type { ReadyAttachment } from './attachments/files.ts';
import { insertAttachments } from './attachments/store.ts';
import type { Unit } from './log/committer.ts';
import { append, type LogEntry } from './log/store.ts';
import {
  insertRun, insertSession, insertStartedRun, lockSession, runByPrompt, waitingRuns,
  type Delivery, type Holder, type Named, type NewSession, type RunRecord, type SessionRecord,
} from './store.ts';

/** Everything about an input that is settled before the transaction, so that this may be run twice. */
export interface Submission {
  agentId: string;
  session: Named;
  /** Made when there is none; then `named` finds nothing. */
  create: NewSession | null;
  runId: string;
  queueItemId: string;
  delivery: Delivery;
  origin: string;
  /** Null for a compaction, which says nothing. */
  input: { messageId: string; message: UiMessage; preview: string; files: readonly ReadyAttachment[] } | null;
  /** The message that the model will write. */
  messageId: string | null;
  model: string | null;
  reasoningEffort: string | null;
  promptId: string | null;
  promptHash: string | null;
}

export interface Receipt {
  runId: string;
  sessionId: string;
  messageId: string;
  status: 'accepted' | 'running';
  queued: boolean;
  queueItemId: string | null;
  queuePosition: number;
  seq: number;
  eventsUrl: string;
}

export interface Admitted {
  session: SessionRecord;
  receipt: Receipt;
  /** What the receipt tells of was accepted before. */
  isRepeated: boolean;
  /** The run to begin now, whose beginning is in the log already. */
  started: StartedRun | null;
  /** The run that has to make room. */
  interrupts: string | null;
  steers: string | null;
}

export interface StartedRun {
  session: SessionRecord;
  runId: string;
  messageId: string | null;
  model: string;
  reasoningEffort: string | null;
  delivery: Delivery;
  origin: string;
  /** Known where nothing was said before it; otherwise the log has it. */
  input: UiMessage | null;
}

export interface AdmissionRules {
  holder: Holder;
  defaultModel: string;
  mostWaiting: number;
  /** Whether this process may begin one more run. */
  mayStart(): boolean;
  /** Told of a run before it is written that this process has it. */
  claim(runId: string): void;
}

export async function admit(unit: Unit, submission: Submission, rules: AdmissionRules): Promise<Admitted | Problem | 'again'> {
  const { agentId, create, runId, delivery, input, origin } = submission;
  let session = await lockSession(unit, agentId, submission.session);
  const events: LogEntry[] = [];
  const isNew = session === undefined;
  if (session === undefined) {
    if (create === null) return notFound();
    if (!rules.mayStart()) return full();
    // Somebody else has made it since; the next look finds it.
    if (!(await insertSession(unit, create))) return 'again';
    session = freshSession(create);
    events.push({ type: 'session.created', kind: create.kind, title: null, chatId: create.chatId ?? null, runId: null });
  }
  const known = !isNew && submission.promptId !== null ? await runByPrompt(unit, session.key, submission.promptId) : undefined;
  if (known) {
    if (known.promptHash !== submission.promptHash) return new Problem('conflict', 'prompt_conflict', 'An input of this id was accepted with other content.', { param: 'id' });
    return { session, receipt: known.receipt as Receipt, isRepeated: true, started: null, interrupts: null, steers: null };
  }
  if (session.archivedAt !== null) return new Problem('conflict', 'session_archived', 'This session is archived and takes no input.');
  const isBusy = session.activeRunId !== null || session.queueLength > 0;
  if (isBusy && delivery === 'reject') return new Problem('conflict', 'session_busy', 'The session is busy.', { headers: { 'retry-after': '1' } });
  if (session.queueLength >= rules.mostWaiting) return new Problem('rate_limited', 'queue_full', `As many as ${rules.mostWaiting} inputs wait already.`, { headers: { 'retry-after': '5' } });
  if (!isBusy && !isNew && !rules.mayStart()) return full();

  if (input) {
    for (const file of input.files) {
      events.push({ type: 'attachment.stored', attachmentId: file.attachmentId, messageId: input.messageId, fileName: file.fileName, contentType: file.contentType, size: file.bytes.length });
    }
    events.push({ type: 'message.created', messageId: input.messageId, role: 'user', index: session.messageCount });
    events.push({ type: 'message.completed', messageId: input.messageId, message: input.message });
  }
  const isUrgent = isBusy && delivery === 'interrupt';
  // Whatever comes to a chat is an item of its queue, also one that begins at once.
  const queueItemId = isBusy || session.chatId !== null ? submission.queueItemId : null;
  const queuePosition = isBusy ? await positionOf(unit, session, isUrgent) : 0;
  const model = submission.model ?? session.model ?? rules.defaultModel;
  const begins = !isBusy;
  if (begins) {
    events.push(...beginning({ runId, messageId: submission.messageId, model, inputMessageId: input?.messageId ?? null, queueLength: 0, index: session.messageCount + (input ? 1 : 0) }));
  } else {
    events.push({ type: 'queue.added', queueItemId: submission.queueItemId, queuePosition, delivery, messageId: input?.messageId ?? null });
    if (isUrgent && session.queueLength > 0) events.push(shifted(await waitingRuns(unit, session.key), session.queueLength + 1, (index, run) => index + 1 + (run.isUrgent ? 0 : 1)));
  }
  const receipt: Receipt = {
    runId,
    sessionId: session.id,
    messageId: input?.messageId ?? runId,
    status: begins ? 'running' : 'accepted',
    queued: !begins,
    queueItemId,
    queuePosition,
    seq: session.headSeq + events.length,
    eventsUrl: `/api/sdk/sessions/${session.id}/events?after=${session.headSeq}`,
  };
  const run = {
    runId,
    sessionKey: session.key,
    agentId,
    delivery,
    isUrgent,
    origin,
    queueItemId,
    inputMessageId: input?.messageId ?? null,
    preview: input?.preview ?? '',
    model: submission.model,
    reasoningEffort: submission.reasoningEffort,
    promptId: submission.promptId,
    promptHash: submission.promptHash,
    receipt: submission.promptId === null ? null : receipt,
  };
  if (begins) {
    rules.claim(runId);
    await insertStartedRun(unit, { ...run, messageId: submission.messageId, model }, rules.holder);
  } else await insertRun(unit, run);
  if (input && input.files.length > 0) await insertAttachments(unit, session.key, input.messageId, input.files);
  await append(unit, {
    sessionKey: session.key,
    runId,
    events,
    change: {
      ...(begins ? { activeRunId: runId } : { queue: 1 }),
      messages: (input ? 1 : 0) + (begins && submission.messageId !== null ? 1 : 0),
      ...(input && session.title === null ? { title: titleOf(input.preview) } : {}),
    },
  });
  const started: StartedRun | null = begins
    ? { session, runId, messageId: submission.messageId, model, reasoningEffort: submission.reasoningEffort ?? session.reasoningEffort, delivery, origin, input: isNew ? (input?.message ?? null) : null }
    : null;
  return {
    session,
    receipt,
    isRepeated: false,
    started,
    interrupts: isUrgent ? session.activeRunId : null,
    steers: isBusy && delivery === 'steer' ? session.activeRunId : null,
  };
}

/** The events with which a run begins; its first step is among them, so that the model can be asked at once. */
export function beginning(run: { runId: string; messageId: string | null; model: string; inputMessageId: string | null; queueLength: number; index: number }): LogEntry[] {
  const { runId, messageId, model, inputMessageId, queueLength, index } = run;
  return [
    { type: 'run.started', runId, model, messageId, ...(inputMessageId === null ? {} : { inputMessageId }) },
    { type: 'status.changed', runId, status: 'running', activeRunId: runId, queueLength },
    ...(messageId === null ? [] : [{ type: 'message.created' as const, runId, messageId, role: 'assistant' as const, index }, { type: 'run.step.started' as const, runId, step: 1 }]),
  ];
}

// A queue of a thousand would make every change of it a large event.
const mostShown = 200;

/** Where everything that waits stands now. */
export function shifted(waiting: readonly RunRecord[], queueLength: number, position: (index: number, run: RunRecord) => number): LogEntry {
  const items = waiting.slice(0, mostShown).map((run, index) => ({ queueItemId: run.queueItemId ?? run.runId, runId: run.runId, queuePosition: position(index, run) }));
  return { type: 'queue.updated', items, queueLength };
}

async function positionOf(unit: Unit, session: SessionRecord, isUrgent: boolean): Promise<number> {
  const running = session.activeRunId === null ? 0 : 1;
  if (!isUrgent || session.queueLength === 0) return running + session.queueLength;
  return running + (await waitingRuns(unit, session.key)).filter((run) => run.isUrgent).length;
}

function freshSession(session: NewSession): SessionRecord {
  return {
    key: session.key,
    id: session.id,
    agentId: session.agentId,
    kind: session.kind,
    title: session.title ?? null,
    model: session.model ?? null,
    reasoningEffort: session.reasoningEffort ?? null,
    system: session.system ?? null,
    metadata: {},
    attended: session.attended ?? false,
    chatId: session.chatId ?? null,
    parentKey: null,
    parentId: null,
    forkSeq: 0,
    forkMessageId: null,
    lineage: [],
    headSeq: 0,
    activeRunId: null,
    queueLength: 0,
    pendingApprovals: 0,
    messageCount: 0,
    inputTokens: 0,
    outputTokens: 0,
    createdAt: '',
    updatedAt: '',
    archivedAt: null,
  };
}

/** The beginning of what was asked, in one line. */
function titleOf(preview: string): string {
  const line = preview.replace(/\s+/g, ' ').trim();
  return line.length <= 80 ? line : `${line.slice(0, 79).trimEnd()}…`;
}

export function notFound(): Problem {
  return new Problem('not_found', 'session_not_found', 'There is no session of this id.', { param: 'sessionId' });
}

function full(): Problem {
  return new Problem('rate_limited', 'rate_limited', 'The agent has as many runs as it takes already.', { headers: { 'retry-after': '5' } });
}
