// Accepts inputs: one commit turns an input into a message, a run and a place in the queue, or starts the
// run at once when the queue is empty. An accepted input is never lost, and no input is accepted twice.
import { Problem } from '../../../kernel/problem.ts';
import { insertAttachments } from '../attachments/store.ts';
import type { EventLog } from '../event-log/log.ts';
import { nameOf } from '../event-log/session-cache.ts';
import {
  insertSessions,
  type NewSession,
  type SessionLocator,
  type SessionRecord,
} from '../event-log/session-store.ts';
import { appendAll } from '../event-log/store.ts';
import type { UnitOfWork } from '../event-log/unit.ts';
import { planInput, type AcceptedPrompt, type SessionWrite } from './admission-plan.ts';
import { createCapacity, type Capacity } from './capacity.ts';
import { insertRuns, runsByPrompt, type LeaseHolder, type Receipt } from './store.ts';
import { capacityProblem, sessionNotFound } from './problems.ts';
import type { Admission, AdmissionRules, Submission } from './submission.ts';

/** `stale`: another process created or changed the session; admit the input again. */
export type AdmissionVerdict = Admission | Problem | 'stale';

/**
 * Accepts inputs of many callers and sessions in a handful of statements, in their order.
 * An interrupting input has to be alone in its batch, because it moves waiting inputs.
 */
export async function admitInputs(
  eventLog: EventLog,
  submissions: readonly Submission[],
  rules: AdmissionRules,
): Promise<AdmissionVerdict[]> {
  return eventLog.decide<Submission, Admission | Problem>(submissions, {
    // A locator with a key belongs to a new session, which cannot exist yet.
    locate: ({ session }) => ('key' in session ? null : session),
    run: (unit, items, context) => decideAdmissions(unit, items, context, rules),
  });
}

interface AdmissionContext {
  sessions: readonly SessionRecord[];
  isLocked: boolean;
}

async function decideAdmissions(
  unit: UnitOfWork,
  submissions: readonly Submission[],
  { sessions, isLocked }: AdmissionContext,
  rules: AdmissionRules,
): Promise<AdmissionVerdict[]> {
  const lookup = createLookup(sessions);
  if (!isLocked && !submissions.every((submission) => isSimple(submission, lookup)))
    return submissions.map(() => 'stale');
  // The attempt without a lock may have claimed these runs.
  for (const { runId } of submissions) rules.release(runId);
  const capacity = createCapacity(unit, rules);
  const createdKeys = isLocked
    ? await createSessions(unit, submissions, lookup, capacity)
    : new Set<string>();
  const prompts = await findAcceptedPrompts(unit, submissions, lookup, createdKeys);
  const writes = new Map<string, SessionWrite>();
  const plans: { verdict: AdmissionVerdict; write?: SessionWrite }[] = [];
  for (const submission of submissions) {
    const session = lookup.get(submission.session);
    if (session === undefined) {
      // A session that should be created is missing when its input finds no slot.
      const isMissing = submission.create === null;
      plans.push({ verdict: isMissing ? sessionNotFound() : capacityProblem(rules.maxQueuedRuns) });
    } else if (session === 'taken') {
      plans.push({ verdict: 'stale' });
    } else {
      const write = writes.get(session.key) ?? newWrite(session, createdKeys.has(session.key));
      writes.set(session.key, write);
      const verdict = await planInput(unit, submission, { write, prompts, capacity }, rules);
      plans.push({ verdict, write });
    }
  }
  // Cached sessions may be out of date, so a refusal counts only under the lock.
  if (!isLocked && plans.some(({ verdict }) => verdict instanceof Problem)) return plans.map(() => 'stale');
  const headSeqs = await writeAll(unit, [...writes.values()], { isLocked, holder: rules.holder });
  return plans.map(({ verdict, write }) =>
    write && write.runs.length > 0 && !headSeqs.has(write.session.key) ? 'stale' : verdict,
  );
}

/** Whether one statement is enough: the session exists, nothing is interrupted and no file is stored. */
function isSimple({ session, delivery, input }: Submission, lookup: SessionLookup): boolean {
  return delivery !== 'interrupt' && (input?.files.length ?? 0) === 0 && lookup.get(session) !== undefined;
}

function newWrite(session: SessionRecord, isNew: boolean): SessionWrite {
  return { session, expectedSeq: session.headSeq, isNew, events: [], change: {}, runs: [], files: [] };
}

async function writeAll(
  unit: UnitOfWork,
  writes: readonly SessionWrite[],
  { isLocked, holder }: { isLocked: boolean; holder: LeaseHolder },
): Promise<Map<string, number>> {
  const writesWithRuns = writes.filter(({ runs }) => runs.length > 0);
  if (writesWithRuns.length === 0) return new Map();
  for (const { session, files } of writesWithRuns)
    for (const { messageId, attachments } of files)
      await insertAttachments(unit, session.key, messageId, attachments);
  const runs = writesWithRuns.flatMap((write) => write.runs);
  return appendAll(
    unit,
    writesWithRuns.map(({ session, expectedSeq, events, change }) => ({
      sessionKey: session.key,
      events,
      change,
      ...(isLocked ? {} : { expectedSeq }),
    })),
    insertRuns(unit.tx, runs, holder),
  );
}

/** Sessions by locator; `taken` for a session that another process is creating. */
interface SessionLookup {
  get(locator: SessionLocator): SessionRecord | 'taken' | undefined;
  add(locator: SessionLocator, session: SessionRecord | 'taken'): void;
}

function createLookup(sessions: readonly SessionRecord[]): SessionLookup {
  const byName = new Map<string, SessionRecord | 'taken'>();
  for (const session of sessions) {
    byName.set(nameOf({ id: session.id }), session);
    if (session.chatId !== null) byName.set(nameOf({ chatId: session.chatId }), session);
  }
  return {
    get: (locator) => byName.get(nameOf(locator)),
    add: (locator, session) => void byName.set(nameOf(locator), session),
  };
}

/**
 * Creates the sessions that do not exist and returns their keys. Creates none for an input that finds no slot
 * and is refused.
 */
async function createSessions(
  unit: UnitOfWork,
  submissions: readonly Submission[],
  lookup: SessionLookup,
  capacity: Capacity,
): Promise<Set<string>> {
  const missingSessions: { locator: SessionLocator; session: NewSession }[] = [];
  for (const { session: locator, create, runId } of submissions) {
    if (create === null || lookup.get(locator) !== undefined) continue;
    if ((await capacity.take(runId)) === 'full') continue;
    lookup.add(locator, emptyRecord(create));
    missingSessions.push({ locator, session: create });
  }
  if (missingSessions.length === 0) return new Set();
  const records = await insertSessions(
    unit.tx,
    missingSessions.map(({ session }) => session),
  );
  for (const { locator, session } of missingSessions)
    if (!records.has(session.key)) lookup.add(locator, 'taken');
  return new Set(records.keys());
}

async function findAcceptedPrompts(
  unit: UnitOfWork,
  submissions: readonly Submission[],
  lookup: SessionLookup,
  createdKeys: ReadonlySet<string>,
): Promise<Map<string, AcceptedPrompt>> {
  const prompts = submissions.flatMap(({ session, promptId }) => {
    const record = lookup.get(session);
    return promptId === null || record === undefined || record === 'taken' || createdKeys.has(record.key)
      ? []
      : [{ key: record.key, promptId }];
  });
  if (prompts.length === 0) return new Map();
  const runs = await runsByPrompt(
    unit,
    [...new Set(prompts.map(({ key }) => key))],
    [...new Set(prompts.map(({ promptId }) => promptId))],
  );
  return new Map(
    runs.map(({ sessionKey, promptId, promptHash, receipt }) => [
      `${sessionKey} ${promptId}`,
      { hash: promptHash, receipt: receipt as Receipt },
    ]),
  );
}

/** The record of a session that is about to be inserted. The plan of its first inputs reads no times. */
function emptyRecord(session: NewSession): SessionRecord {
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
    mode: session.mode ?? 'work',
    workspace: session.workspace ?? 'shared',
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
    cachedInputTokens: 0,
    reasoningTokens: 0,
    credits: 0,
    createdAt: '',
    updatedAt: '',
    archivedAt: null,
  };
}
