// How an input is accepted: in one transaction it becomes a message, a run and a place in the queue, or, where nothing is
// ahead of it, it begins at once. What was accepted is never lost, and the same input is never accepted twice.
import type { UiMessage } from '../../../contract/agent/types.gen.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { DecodedAttachment } from '../attachments/files.ts';
import { insertAttachments } from '../attachments/store.ts';
import { nameOf } from '../event-log/session-cache.ts';
import type { Unit } from '../event-log/committer.ts';
import { appendAll, type LogEntry, type SessionChange } from '../event-log/store.ts';
import {
  insertSessions,
  lockSessions,
  type SessionLocator,
  type NewSession,
  type SessionRecord,
} from '../event-log/session-store.ts';
import {
  insertRuns,
  runsByPrompt,
  waitingRuns,
  type Delivery,
  type LeaseHolder,
  type NewRun,
  type RunRecord,
} from './store.ts';

/** Everything about an input that is settled before the transaction, so that this may be run twice. */
export interface Submission {
  agentId: string;
  session: SessionLocator;
  /** Made when there is none; then `named` finds nothing. */
  create: NewSession | null;
  runId: string;
  queueItemId: string;
  delivery: Delivery;
  origin: string;
  /** Null for a compaction, which says nothing. */
  input: {
    messageId: string;
    message: UiMessage;
    preview: string;
    files: readonly DecodedAttachment[];
  } | null;
  /** The message that the model will write. */
  messageId: string | null;
  model: string | null;
  reasoningEffort: string | null;
  promptId: string | null;
  promptHash: string | null;
  /** How long it may wait; null for ever. */
  expiresInMs: number | null;
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

export interface Admission {
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
  /** Of the newest event of its beginning. */
  seq: number;
}

export interface AdmissionRules {
  holder: LeaseHolder;
  defaultModel: string;
  maxWaiting: number;
  /** Whether this process may begin one more run. */
  mayStart(): boolean;
  /** Told of a run before it is written that this process has it. */
  claim(runId: string): void;
}

/** What becomes of one of them: accepted, refused, or to be looked at again because somebody else has just made its session. */
export type Verdict = Admission | Problem | 'again';

/**
 * Accepts inputs of many callers and sessions in a handful of statements, however many they are, in their order. One
 * that interrupts comes alone, since it moves what waits already.
 */
export async function admitAll(
  unit: Unit,
  submissions: readonly Submission[],
  rules: AdmissionRules,
): Promise<Verdict[]> {
  const [{ agentId }] = submissions as [Submission];
  const found = createLookup(
    await lockSessions(
      unit,
      agentId,
      submissions.map(({ session }) => session),
    ),
  );
  const fresh = new Set(await makeSessions(unit, submissions, found, rules));
  return admit(unit, submissions, { found, fresh, isLocked: true }, rules);
}

/**
 * The same without a lock and in one statement, from what is known of the sessions. Those whose session has changed
 * meanwhile are to be looked at again under the lock, and so are all where anything is refused, since that may not be
 * true any more.
 */
export async function admitKnown(
  unit: Unit,
  submissions: readonly Submission[],
  sessions: readonly SessionRecord[],
  rules: AdmissionRules,
): Promise<Verdict[]> {
  const found = createLookup(sessions);
  const isPlain = submissions.every(
    ({ session, delivery, input }) =>
      delivery !== 'interrupt' && (input?.files.length ?? 0) === 0 && found.get(session) !== undefined,
  );
  return isPlain
    ? admit(unit, submissions, { found, fresh: new Set(), isLocked: false }, rules)
    : submissions.map(() => 'again');
}

async function admit(
  unit: Unit,
  submissions: readonly Submission[],
  { found, fresh, isLocked }: { found: Lookup; fresh: ReadonlySet<string>; isLocked: boolean },
  rules: AdmissionRules,
): Promise<Verdict[]> {
  const known = await knownPrompts(unit, submissions, found, fresh);
  const writing = new Map<string, Writing>();
  const planned: { verdict: Verdict; one?: Writing }[] = [];
  for (const submission of submissions) {
    const session = found.get(submission.session);
    if (session === undefined)
      planned.push({ verdict: submission.create === null ? sessionNotFound() : capacityProblem() });
    else if (session === 'taken') planned.push({ verdict: 'again' });
    else {
      const one = writing.get(session.key) ?? {
        session,
        expects: session.headSeq,
        isNew: fresh.has(session.key),
        events: [],
        change: {},
        runs: [],
        files: [],
      };
      writing.set(session.key, one);
      planned.push({ verdict: await plan(unit, submission, one, known, rules), one });
    }
  }
  if (!isLocked && planned.some(({ verdict }) => verdict instanceof Problem))
    return planned.map(() => 'again');
  const written = [...writing.values()].filter(({ runs }) => runs.length > 0);
  if (written.length === 0) return planned.map(({ verdict }) => verdict);
  for (const { session, files } of written)
    for (const { messageId, ready } of files) await insertAttachments(unit, session.key, messageId, ready);
  const heads = await appendAll(
    unit,
    written.map(({ session, expects, events, change }) => ({
      sessionKey: session.key,
      events,
      change,
      ...(isLocked ? {} : { expects }),
    })),
    insertRuns(
      unit.tx,
      written.flatMap(({ runs }) => runs),
      rules.holder,
    ),
  );
  return planned.map(({ verdict, one }) =>
    one && one.runs.length > 0 && !heads.has(one.session.key) ? 'again' : verdict,
  );
}

/** What is to be written for one session. The record is kept as it will be once that is there. */
interface Writing {
  session: SessionRecord;
  /** Where it stands before. */
  expects: number;
  /** Made by this very transaction. */
  isNew: boolean;
  events: LogEntry[];
  change: SessionChange;
  runs: NewRun[];
  files: { messageId: string; ready: readonly DecodedAttachment[] }[];
}

interface Lookup {
  get(named: SessionLocator): SessionRecord | 'taken' | undefined;
  add(named: SessionLocator, session: SessionRecord | 'taken'): void;
}

function createLookup(sessions: readonly SessionRecord[]): Lookup {
  const found = new Map<string, SessionRecord | 'taken'>();
  for (const session of sessions) {
    found.set(nameOf({ id: session.id }), session);
    if (session.chatId !== null) found.set(nameOf({ chatId: session.chatId }), session);
  }
  return {
    get: (named) => found.get(nameOf(named)),
    add: (named, session) => void found.set(nameOf(named), session),
  };
}

// The sessions that their first input makes. Their runs are claimed at once, as they will begin here.
async function makeSessions(
  unit: Unit,
  submissions: readonly Submission[],
  found: Lookup,
  rules: AdmissionRules,
): Promise<string[]> {
  const wanted: Submission[] = [];
  for (const submission of submissions) {
    const { session, create } = submission;
    if (create === null || found.get(session) !== undefined || !rules.mayStart()) continue;
    rules.claim(submission.runId);
    found.add(session, freshSession(create));
    wanted.push(submission);
  }
  if (wanted.length === 0) return [];
  const made = await insertSessions(
    unit.tx,
    wanted.map(({ create }) => create as NewSession),
  );
  for (const { session, create } of wanted)
    if (!made.has((create as NewSession).key)) found.add(session, 'taken');
  return [...made.keys()];
}

async function knownPrompts(
  unit: Unit,
  submissions: readonly Submission[],
  found: Lookup,
  fresh: ReadonlySet<string>,
): Promise<Map<string, KnownPrompt>> {
  const asked = submissions.flatMap(({ session, promptId }) => {
    const record = found.get(session);
    return promptId === null || record === undefined || record === 'taken' || fresh.has(record.key)
      ? []
      : [{ key: record.key, promptId }];
  });
  if (asked.length === 0) return new Map();
  const runs = await runsByPrompt(
    unit,
    [...new Set(asked.map(({ key }) => key))],
    [...new Set(asked.map(({ promptId }) => promptId))],
  );
  return new Map(
    runs.map((run) => [
      `${run.sessionKey} ${run.promptId}`,
      { hash: run.promptHash, receipt: run.receipt as Receipt },
    ]),
  );
}

interface KnownPrompt {
  hash: string | null;
  receipt: Receipt;
}

async function plan(
  unit: Unit,
  submission: Submission,
  writing: Writing,
  known: Map<string, KnownPrompt>,
  rules: AdmissionRules,
): Promise<Admission | Problem> {
  const { agentId, runId, delivery, input, origin } = submission;
  const { session } = writing;
  const isFirst = writing.isNew && writing.runs.length === 0;
  const repeated =
    submission.promptId === null ? undefined : known.get(`${session.key} ${submission.promptId}`);
  if (repeated) {
    if (repeated.hash !== submission.promptHash)
      return new Problem(
        'conflict',
        'prompt_conflict',
        'An input of this id was accepted with other content.',
        { param: 'id' },
      );
    return {
      session,
      receipt: repeated.receipt,
      isRepeated: true,
      started: null,
      interrupts: null,
      steers: null,
    };
  }
  if (session.archivedAt !== null)
    return new Problem('conflict', 'session_archived', 'This session is archived and takes no input.');
  const isBusy = session.activeRunId !== null || session.queueLength > 0;
  if (isBusy && delivery === 'reject')
    return new Problem('conflict', 'session_busy', 'The session is busy.', {
      headers: { 'retry-after': '1' },
    });
  if (session.queueLength >= rules.maxWaiting)
    return new Problem('rate_limited', 'queue_full', `As many as ${rules.maxWaiting} inputs wait already.`, {
      headers: { 'retry-after': '5' },
    });
  if (!isBusy && !isFirst && !rules.mayStart()) return capacityProblem();

  const events: LogEntry[] = [];
  if (isFirst)
    events.push({
      type: 'session.created',
      kind: session.kind,
      title: null,
      chatId: session.chatId,
      runId: null,
    });
  if (input) {
    for (const file of input.files) {
      events.push({
        type: 'attachment.stored',
        attachmentId: file.attachmentId,
        messageId: input.messageId,
        fileName: file.fileName,
        contentType: file.contentType,
        size: file.bytes.length,
      });
    }
    events.push({
      type: 'message.created',
      messageId: input.messageId,
      role: 'user',
      index: session.messageCount,
    });
    events.push({ type: 'message.completed', messageId: input.messageId, message: input.message });
  }
  const isUrgent = isBusy && delivery === 'interrupt';
  // Whatever comes to a chat is an item of its queue, also one that begins at once.
  const queueItemId = isBusy || session.chatId !== null ? submission.queueItemId : null;
  const queuePosition = isBusy ? await positionOf(unit, session, isUrgent) : 0;
  const model = submission.model ?? session.model ?? rules.defaultModel;
  const begins = !isBusy;
  if (begins) {
    rules.claim(runId);
    events.push(
      ...startEvents({
        runId,
        messageId: submission.messageId,
        model,
        inputMessageId: input?.messageId ?? null,
        queueLength: 0,
        index: session.messageCount + (input ? 1 : 0),
      }),
    );
  } else {
    events.push({
      type: 'queue.added',
      queueItemId: submission.queueItemId,
      queuePosition,
      delivery,
      messageId: input?.messageId ?? null,
    });
    if (isUrgent && session.queueLength > 0)
      events.push(
        queueUpdated(
          await waitingRuns(unit, session.key),
          session.queueLength + 1,
          (index, run) => index + 1 + (run.isUrgent ? 0 : 1),
        ),
      );
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
  writing.runs.push({
    runId,
    sessionKey: session.key,
    agentId,
    delivery,
    isUrgent,
    origin,
    queueItemId,
    inputMessageId: input?.messageId ?? null,
    preview: input?.preview ?? '',
    model: begins ? model : submission.model,
    reasoningEffort: submission.reasoningEffort,
    promptId: submission.promptId,
    promptHash: submission.promptHash,
    receipt: submission.promptId === null ? null : receipt,
    expiresInMs: begins ? null : submission.expiresInMs,
    begins: begins ? { messageId: submission.messageId } : null,
  });
  if (input && input.files.length > 0) writing.files.push({ messageId: input.messageId, ready: input.files });
  // Those of other runs stand in the same append, so each event names its own.
  writing.events.push(...events.map((event) => ({ runId, ...event })));
  if (submission.promptId !== null)
    known.set(`${session.key} ${submission.promptId}`, { hash: submission.promptHash, receipt });
  const before = { ...session };
  const messages = (input ? 1 : 0) + (begins && submission.messageId !== null ? 1 : 0);
  const { change } = writing;
  change.messages = (change.messages ?? 0) + messages;
  if (begins) change.activeRunId = runId;
  else change.queue = (change.queue ?? 0) + 1;
  if (input && session.title === null) session.title = change.title = titleOf(input.preview);
  session.headSeq += events.length;
  session.messageCount += messages;
  if (begins) session.activeRunId = runId;
  else session.queueLength += 1;
  return {
    session: before,
    receipt,
    isRepeated: false,
    started: begins
      ? {
          session: before,
          runId,
          messageId: submission.messageId,
          model,
          reasoningEffort: submission.reasoningEffort ?? session.reasoningEffort,
          delivery,
          origin,
          input: before.messageCount === 0 && before.lineage.length === 0 ? (input?.message ?? null) : null,
          seq: receipt.seq,
        }
      : null,
    interrupts: isUrgent ? before.activeRunId : null,
    steers: isBusy && delivery === 'steer' ? before.activeRunId : null,
  };
}

/** The events with which a run begins; its first step is among them, so that the model can be asked at once. */
export function startEvents(run: {
  runId: string;
  messageId: string | null;
  model: string;
  inputMessageId: string | null;
  queueLength: number;
  index: number;
}): LogEntry[] {
  const { runId, messageId, model, inputMessageId, queueLength, index } = run;
  return [
    { type: 'run.started', runId, model, messageId, ...(inputMessageId === null ? {} : { inputMessageId }) },
    { type: 'status.changed', runId, status: 'running', activeRunId: runId, queueLength },
    ...(messageId === null
      ? []
      : [
          { type: 'message.created' as const, runId, messageId, role: 'assistant' as const, index },
          { type: 'run.step.started' as const, runId, step: 1 },
        ]),
  ];
}

// A queue of a thousand would make every change of it a large event.
export const maxQueueItemsShown = 200;

/** Where everything that waits stands now. */
export function queueUpdated(
  waiting: readonly RunRecord[],
  queueLength: number,
  position: (index: number, run: RunRecord) => number,
): LogEntry {
  const items = waiting.slice(0, maxQueueItemsShown).map((run, index) => ({
    queueItemId: run.queueItemId ?? run.runId,
    runId: run.runId,
    queuePosition: position(index, run),
  }));
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

export function sessionNotFound(): Problem {
  return new Problem('not_found', 'session_not_found', 'There is no session of this id.', {
    param: 'sessionId',
  });
}

function capacityProblem(): Problem {
  return new Problem('rate_limited', 'rate_limited', 'The agent has as many runs as it takes already.', {
    headers: { 'retry-after': '5' },
  });
}
