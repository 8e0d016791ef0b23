// Plans what accepting one input writes into its session, or why it is refused.
import { Problem } from '../../../kernel/problem.ts';
import { startOfText } from '../../../kernel/start-of-text.ts';
import type { DecodedAttachment } from '../attachments/files.ts';
import type { SessionRecord } from '../event-log/session-store.ts';
import type { LogEntry, SessionChange, UnitOfWork } from '../event-log/unit.ts';
import type { Capacity } from './capacity.ts';
import { queueUpdated, startEvents } from './run-events.ts';
import { lastUrgent, waitingAhead, waitingRuns, type NewRun, type Receipt } from './store.ts';
import { capacityProblem } from './problems.ts';
import {
  inputMessageIdOf,
  type Admission,
  type AdmissionRules,
  type StartedRun,
  type Submission,
} from './submission.ts';

/**
 * The writes of a batch into one session. Planning an input updates `session` to its state after
 * the write.
 */
export interface SessionWrite {
  session: SessionRecord;
  /** The newest seq before the write. */
  expectedSeq: number;
  /** Whether the transaction also creates the session. */
  isNew: boolean;
  events: LogEntry[];
  change: SessionChange;
  runs: NewRun[];
  files: { messageId: string; attachments: readonly DecodedAttachment[] }[];
}

export interface AcceptedPrompt {
  hash: string | null;
  receipt: Receipt;
}

/** `prompts` are the accepted inputs by session key and prompt id; the planned input is added to them. */
export async function planInput(
  unit: UnitOfWork,
  submission: Submission,
  {
    write,
    prompts,
    capacity,
  }: { write: SessionWrite; prompts: Map<string, AcceptedPrompt>; capacity: Capacity },
  rules: AdmissionRules,
): Promise<Admission | Problem> {
  const { session } = write;
  const { promptId, promptHash } = submission;
  const promptKey = `${session.key} ${promptId}`;
  const earlierPrompt = promptId === null ? undefined : prompts.get(promptKey);
  if (earlierPrompt) return repeatAdmission(session, earlierPrompt, promptHash);
  const refusal = refusalOf(submission, write, rules);
  if (refusal) return refusal;
  const sessionBefore = { ...session };
  const plan = await planPlace(unit, submission, { session, capacity }, rules);
  if (plan instanceof Problem) return plan;
  const isWaiting = plan.waitsFor !== null;
  const events = [...sessionEvents(write), ...inputEvents(submission, session), ...plan.events];
  const receipt = receiptOf(submission, session, { ...plan, eventCount: events.length });
  write.runs.push(newRun(submission, session, { receipt, model: plan.model, isWaiting }, rules));
  addToWrite(write, submission, { events, isWaiting });
  if (promptId !== null) prompts.set(promptKey, { hash: promptHash, receipt });
  return {
    session: sessionBefore,
    receipt,
    isRepeated: false,
    started:
      plan.model === null ? null : startedRun(submission, sessionBefore, { model: plan.model, receipt }),
    interrupts: isWaiting && submission.delivery === 'interrupt' ? sessionBefore.activeRunId : null,
    steers: isWaiting && submission.delivery === 'steer' ? sessionBefore.activeRunId : null,
  };
}

function isSessionBusy({ activeRunId, queueLength }: SessionRecord): boolean {
  return activeRunId !== null || queueLength > 0;
}

/** Whether the input is the first of the session that this transaction creates. */
function isFirstInput({ isNew, runs }: SessionWrite): boolean {
  return isNew && runs.length === 0;
}

function repeatAdmission(
  session: SessionRecord,
  { hash, receipt }: AcceptedPrompt,
  promptHash: string | null,
): Admission | Problem {
  if (hash !== promptHash)
    return new Problem(
      'conflict',
      'prompt_conflict',
      'An input with this id was already accepted with different content.',
      { param: 'id' },
    );
  return { session, receipt, isRepeated: true, started: null, interrupts: null, steers: null };
}

function refusalOf(
  { delivery, replaces }: Submission,
  write: SessionWrite,
  rules: AdmissionRules,
): Problem | null {
  const { session } = write;
  // Another input may have been accepted since the replaced messages were chosen.
  const hasChanged = replaces !== undefined && replaces.atSeq !== session.headSeq;
  const isBusy = isSessionBusy(session) || hasChanged;
  if (session.archivedAt !== null)
    return new Problem('conflict', 'session_archived', 'This session is archived and accepts no input.');
  if (isBusy && delivery === 'reject')
    return new Problem('conflict', 'session_busy', 'The session is busy.', {
      headers: { 'retry-after': '1' },
    });
  if (session.queueLength >= rules.maxWaiting)
    return new Problem(
      'rate_limited',
      'queue_full',
      `The queue of this session is full: ${rules.maxWaiting} inputs are already waiting.`,
      { headers: { 'retry-after': '5' } },
    );
  return null;
}

interface InputPlan {
  events: LogEntry[];
  queuePosition: number;
  /** Null for a run that starts. */
  waitsFor: Receipt['waitsFor'] | null;
  /** The model of a run that starts; null for a run that waits. */
  model: string | null;
}

/** A Problem when no place is free and the input cannot wait for one. */
async function planPlace(
  unit: UnitOfWork,
  submission: Submission,
  { session, capacity }: { session: SessionRecord; capacity: Capacity },
  rules: AdmissionRules,
): Promise<InputPlan | Problem> {
  if (isSessionBusy(session)) {
    // Without an active run, the first input of the session waits for a free place, and this input after it.
    const runsAhead = session.activeRunId === null ? await capacity.queueUp() : null;
    return planQueued(unit, submission, { session, waitsFor: 'session', ahead: runsAhead }, rules);
  }
  // A regenerated answer must not wait: further messages could follow the ones that it replaces.
  if (submission.replaces !== undefined)
    return capacity.takeNow(submission.runId) ? planStarted(submission, session, rules) : noFreePlace();
  const slot = await capacity.take(submission.runId);
  if (slot === 'start') return planStarted(submission, session, rules);
  if (slot === 'full') return capacityProblem(rules.maxQueuedRuns);
  return planQueued(unit, submission, { session, waitsFor: slot.wait, ahead: slot.ahead }, rules);
}

function noFreePlace(): Problem {
  return new Problem(
    'rate_limited',
    'rate_limited',
    'The agent executes its maximum number of runs, and a new answer cannot wait for a free place; try again later.',
    { headers: { 'retry-after': '5' } },
  );
}

function planStarted(submission: Submission, session: SessionRecord, rules: AdmissionRules): InputPlan {
  const { runId, messageId, input } = submission;
  const inputMessageId = inputMessageIdOf(submission);
  const model = submission.model ?? session.model ?? rules.defaultModel;
  const events = startEvents({
    runId,
    messageId,
    model,
    inputMessageId,
    queueLength: 0,
    index: session.messageCount + (input ? 1 : 0),
  });
  return { events, queuePosition: 0, waitsFor: null, model };
}

interface QueuePlace {
  session: SessionRecord;
  /** What an input at the end of the session's queue waits for. */
  waitsFor: NonNullable<Receipt['waitsFor']>;
  /**
   * The inputs of all sessions that wait for a free place, when the input waits for one too; null while a run
   * of the session is active.
   */
  ahead: number | null;
}

/** An interrupting input goes to the front of the queue, after earlier interrupting inputs. */
async function planQueued(
  unit: UnitOfWork,
  { queueItemId, delivery, input }: Submission,
  place: QueuePlace,
  { agentId }: AdmissionRules,
): Promise<InputPlan> {
  const { session, ahead } = place;
  const { queueLength, activeRunId } = session;
  const isUrgent = delivery === 'interrupt';
  const movesOthers = isUrgent && queueLength > 0;
  const queuedRuns = movesOthers ? await waitingRuns(unit, session.key) : [];
  const isNext = isUrgent && activeRunId === null && !queuedRuns.some((run) => run.isUrgent);
  const waitsFor = isNext ? 'capacity' : place.waitsFor;
  let queuePosition: number;
  // The active run of the session counts as ahead of its waiting inputs.
  if (ahead === null)
    queuePosition = 1 + (isUrgent ? queuedRuns.filter((run) => run.isUrgent).length : queueLength);
  else queuePosition = isUrgent ? await waitingAhead(unit.tx, agentId, lastUrgent) : ahead;
  const messageId = input?.messageId ?? null;
  const events: LogEntry[] = [
    { type: 'queue.added', queueItemId, queuePosition, waitsFor, delivery, messageId },
  ];
  // A reader with `until=idle` has to see that the session has work left.
  if (activeRunId === null)
    events.push({ type: 'status.changed', status: 'idle', activeRunId, queueLength: queueLength + 1 });
  const [firstRun] = queuedRuns;
  if (firstRun !== undefined) {
    const aheadOfQueue = activeRunId === null ? await waitingAhead(unit.tx, agentId, firstRun) : 1;
    events.push(
      queueUpdated(
        queuedRuns,
        queueLength + 1,
        (index, run) => index + aheadOfQueue + (run.isUrgent ? 0 : 1),
      ),
    );
  }
  return { events, queuePosition, waitsFor, model: null };
}

function sessionEvents(write: SessionWrite): LogEntry[] {
  if (!isFirstInput(write)) return [];
  const { kind, chatId } = write.session;
  return [{ type: 'session.created', kind, title: null, chatId, runId: null }];
}

function inputEvents({ input, replaces, runId }: Submission, { messageCount }: SessionRecord): LogEntry[] {
  if (!input)
    return (replaces?.messageIds ?? []).map((messageId): LogEntry => ({
      type: 'message.updated',
      messageId,
      metadata: { status: 'replaced', replacedBy: runId },
    }));
  const { messageId, message, files } = input;
  return [
    ...files.map(({ attachmentId, fileName, contentType, bytes }): LogEntry => ({
      type: 'attachment.stored',
      attachmentId,
      messageId,
      fileName,
      contentType,
      size: bytes.length,
    })),
    { type: 'message.created', messageId, role: 'user', index: messageCount },
    { type: 'message.completed', messageId, message },
  ];
}

/** Every input of a chat has a queue item, even an input that starts at once. */
function queueItemOf(
  { queueItemId }: Submission,
  { chatId }: SessionRecord,
  isWaiting: boolean,
): string | null {
  return isWaiting || chatId !== null ? queueItemId : null;
}

function receiptOf(
  submission: Submission,
  session: SessionRecord,
  { queuePosition, waitsFor, eventCount }: InputPlan & { eventCount: number },
): Receipt {
  const { runId } = submission;
  const isWaiting = waitsFor !== null;
  return {
    runId,
    sessionId: session.id,
    // A compaction has no message, but the member is required.
    messageId: inputMessageIdOf(submission) ?? runId,
    status: isWaiting ? 'accepted' : 'running',
    queued: isWaiting,
    queueItemId: queueItemOf(submission, session, isWaiting),
    queuePosition,
    ...(isWaiting ? { waitsFor } : {}),
    seq: session.headSeq + eventCount,
    eventsUrl: `/api/sdk/sessions/${session.id}/events?after=${session.headSeq}`,
  };
}

function newRun(
  submission: Submission,
  session: SessionRecord,
  { receipt, model, isWaiting }: { receipt: Receipt; model: string | null; isWaiting: boolean },
  { agentId }: AdmissionRules,
): NewRun {
  const { runId, delivery, origin, input, promptId, promptHash, reasoningEffort, requestId } = submission;
  return {
    runId,
    sessionKey: session.key,
    agentId,
    delivery,
    isUrgent: isWaiting && delivery === 'interrupt',
    origin,
    queueItemId: queueItemOf(submission, session, isWaiting),
    inputMessageId: inputMessageIdOf(submission),
    preview: input?.preview ?? '',
    model: model ?? submission.model,
    reasoningEffort,
    promptId,
    promptHash,
    receipt: promptId === null && requestId === null ? null : receipt,
    requestId,
    expiresInMs: isWaiting ? submission.expiresInMs : null,
    start: isWaiting ? null : { messageId: submission.messageId },
  };
}

function addToWrite(
  write: SessionWrite,
  { runId, input, messageId }: Submission,
  { events, isWaiting }: { events: readonly LogEntry[]; isWaiting: boolean },
): void {
  const { session, change } = write;
  // One append contains events of several runs, so each event names its run.
  write.events.push(...events.map((event) => ({ runId, ...event })));
  if (input && input.files.length > 0)
    write.files.push({ messageId: input.messageId, attachments: input.files });
  const messages = (input ? 1 : 0) + (!isWaiting && messageId !== null ? 1 : 0);
  change.messages = (change.messages ?? 0) + messages;
  session.messageCount += messages;
  session.headSeq += events.length;
  if (isWaiting) {
    change.queue = (change.queue ?? 0) + 1;
    session.queueLength += 1;
  } else {
    change.activeRunId = runId;
    session.activeRunId = runId;
  }
  if (input && session.title === null) {
    const title = titleOf(input.preview);
    change.title = title;
    session.title = title;
  }
}

function startedRun(
  { runId, messageId, reasoningEffort, delivery, origin, input }: Submission,
  sessionBefore: SessionRecord,
  { model, receipt }: { model: string; receipt: Receipt },
): StartedRun {
  const isFirstMessage = sessionBefore.messageCount === 0 && sessionBefore.lineage.length === 0;
  return {
    session: sessionBefore,
    runId,
    messageId,
    model,
    reasoningEffort: reasoningEffort ?? sessionBefore.reasoningEffort,
    delivery,
    origin,
    input: isFirstMessage ? (input?.message ?? null) : null,
    seq: receipt.seq,
  };
}

/** The beginning of the first input, in one line of at most 80 characters. */
function titleOf(preview: string): string {
  const line = preview.replace(/\s+/g, ' ').trim();
  return line.length <= 80 ? line : `${startOfText(line, 79).trimEnd()}…`;
}
