// Forks share the history of their parent by reference: a fork is one row and an
// event or two, however long its history is. Activity at the fork point stays with
// the parent; an unfinished message ends in the fork at its current text.
import type { UiMessage } from '../../contract/agent/types.gen.ts';
import { requireStorable } from '../../kernel/contract/storable.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { invalidMember } from '../../kernel/problem.ts';
import { readEvent, type StoredEvent } from './event-log/events.ts';
import type { OpenPart } from './event-log/live-feed.ts';
import { copyAncestors, segmentsOf, type SessionRecord } from './event-log/session-store.ts';
import { withMessageSeq, type EventStore, type Segment } from './event-log/store.ts';
import type { LogEntry } from './event-log/unit.ts';
import { foldEvents, type OpenText } from './model-loop/message.ts';
import { noUsage } from './model-loop/usage.ts';
import { buildCancellationEvents } from './fork-queue.ts';
import { toSession } from './records.ts';
import { messageNotFound, sessionNotFound } from './runs/problems.ts';
import type { HandlerOptions, SessionHandlers } from './session-options.ts';

// Deeper lineages are copied in the background, because every read walks all ancestors.
const maxLineage = 32;

export function forkHandlers(options: HandlerOptions): SessionHandlers<'sessions.fork'> {
  return {
    'sessions.fork': async ({ path, body = {}, log }) => {
      if (body.metadata !== undefined) requireStorable(body.metadata, 'metadata');
      const session = await options.requireSession(path.sessionId);
      const point = await findForkPoint(session, body as ForkRequest, options.events);
      if (body.dryRun) return { status: 200, body: previewFork(point) };
      const fork = await createFork(options, point, body as ForkRequest);
      if (fork.lineage.length > maxLineage) copyInBackground(options, fork, log);
      return { status: 201, body: toSession(fork) };
    },
  };
}

function previewFork({ session, seq, messageId, messageCount, openRun }: ForkPoint) {
  const isHead = seq === session.headSeq;
  return {
    dryRun: true as const,
    forkedFrom: { sessionId: session.id, seq, messageId },
    messageCount,
    openRunId: openRun?.runId ?? null,
    queueItems: isHead ? session.queueLength : 0,
    approvals: isHead ? session.pendingApprovals : 0,
  };
}

// A long lineage only makes reads slower, so a failed copy is logged and not retried.
function copyInBackground({ eventLog }: HandlerOptions, fork: SessionRecord, log: Log): void {
  eventLog
    .transact((unit) => copyAncestors(unit, fork))
    .catch((error: unknown) =>
      log.warn({ err: error }, 'the events of the ancestors of a fork could not be copied'),
    );
}

interface ForkRequest {
  messageId?: string;
  seq?: number;
  position?: 'after' | 'before';
  title?: string;
  metadata?: Record<string, unknown>;
}

interface ForkPoint {
  session: SessionRecord;
  seq: number;
  messageId: string | null;
  messageCount: number;
  /** The run that was active at the fork point, with its events up to that point. */
  openRun: { runId: string; events: StoredEvent[] } | null;
}

async function findForkPoint(
  session: SessionRecord,
  { messageId, seq, position = 'after' }: ForkRequest,
  events: EventStore,
): Promise<ForkPoint> {
  if (seq !== undefined && seq > session.headSeq)
    throw invalidMember('seq', `is beyond the newest event, ${session.headSeq}`);
  const forkSeq =
    messageId === undefined
      ? (seq ?? session.headSeq)
      : await findSeqOfMessage(session, messageId, position, events);
  const point = { session, seq: forkSeq, messageId: messageId ?? null };
  const segments = segmentsOf(session, forkSeq);
  if (forkSeq === session.headSeq)
    return {
      ...point,
      messageCount: session.messageCount,
      openRun: await openRun(segments, session.activeRunId, events),
    };
  const [startEvent, newestEvent] = await Promise.all([
    events.newestOfType(segments, 'run.started', forkSeq),
    events.newestOfType(segments, 'message.created', forkSeq),
  ]);
  const index = newestEvent && (readEvent(newestEvent) as { index?: number }).index;
  return {
    ...point,
    messageCount: index === undefined ? 0 : index + 1,
    openRun: await openRun(segments, startEvent?.runId ?? null, events),
  };
}

async function openRun(
  segments: readonly Segment[],
  runId: string | null,
  events: EventStore,
): Promise<ForkPoint['openRun']> {
  if (runId === null) return null;
  const runEvents = await events.runEvents(segments, runId);
  return runEvents.some(({ type }) => type === 'run.settled') ? null : { runId, events: runEvents };
}

async function findSeqOfMessage(
  session: SessionRecord,
  messageId: string,
  position: 'after' | 'before',
  events: EventStore,
): Promise<number> {
  const messageEvents = await events.messageEvents(segmentsOf(session), messageId);
  const creation = messageEvents.find(({ type }) => type === 'message.created');
  const completion = messageEvents.findLast(({ type }) => type === 'message.completed');
  if (!creation) throw messageNotFound();
  if (position === 'before') return creation.seq - 1;
  // A message that is still being written is cut here.
  return completion?.seq ?? session.headSeq;
}

/** Throws 404 when the parent has been removed meanwhile. */
async function createFork(
  options: HandlerOptions,
  point: ForkPoint,
  request: ForkRequest,
): Promise<SessionRecord> {
  const { eventLog, agentId, workspaces, ownWorkspaces } = options;
  const { session: parent, seq, messageId, openRun } = point;
  const key = id('ses');
  const isHead = seq === parent.headSeq;
  const openTexts = openRun === null || !isHead ? [] : await openTextsOf(options, point, openRun.runId);
  const events: LogEntry[] = [
    { type: 'session.forked', parentSessionId: parent.id, atSeq: seq, atMessageId: messageId },
    ...(openRun === null ? [] : interruptionEvents(openRun, openTexts)),
    ...(await buildCancellationEvents(options, parent, seq)),
    { type: 'status.changed', status: 'idle', activeRunId: null, queueLength: 0 },
  ];
  const fork = { key, workspace: parent.workspace };
  const row = {
    key,
    id: key,
    agentId,
    // A fork has no chat, and is not removed after the retention of `execute` sessions.
    kind: parent.kind === 'execute' || parent.kind === 'chat' ? 'sdk' : parent.kind,
    title: request.title ?? parent.title,
    model: parent.model,
    reasoningEffort: parent.reasoningEffort,
    system: parent.system,
    metadata: request.metadata ?? parent.metadata,
    attended: parent.attended,
    mode: parent.mode,
    workspace: parent.workspace,
    parentKey: parent.key,
    forkSeq: seq,
    forkMessageId: messageId,
    lineage: withoutEmptySegments(segmentsOf(parent, seq)),
    messageCount: point.messageCount,
    events: events.map((event, index) => withMessageSeq(event, seq + index + 1)),
  };
  const record = await ownWorkspaces.create(fork, {
    param: 'sessionId',
    createWorkspace: () => workspaces.copy(parent, fork),
    createSession: () => eventLog.create(row),
  });
  if (!record) throw sessionNotFound();
  return { ...record, parentId: parent.id };
}

/** A fork point in the history of an ancestor leaves the later segments empty. */
function withoutEmptySegments(segments: readonly Segment[]): Segment[] {
  return segments.filter(({ upTo }, index) => upTo > (segments[index - 1]?.upTo ?? 0));
}

/** The text so far of the parts that the run is writing, whichever process executes it. */
async function openTextsOf(
  { eventLog, events, hasReplicas }: HandlerOptions,
  { session, seq }: ForkPoint,
  runId: string,
): Promise<OpenText[]> {
  const isOpen = (part: OpenPart) => part.runId === runId && part.startedSeq <= seq;
  const localParts = eventLog.openParts(session.key).filter(isOpen);
  if (localParts.length > 0 || !hasReplicas) return localParts;
  // This process has no text of a run that another one executes. The checkpoints are a moment behind.
  return (await events.openTexts([session.key])).filter(isOpen);
}

/** Events that end, in the fork only, the run that was active at the fork point and its open message. */
function interruptionEvents(
  { runId, events }: NonNullable<ForkPoint['openRun']>,
  openTexts: OpenText[],
): LogEntry[] {
  const history = events.map(readEvent);
  const answerIndex = history.findLastIndex(
    (event) => event.type === 'message.created' && event.role === 'assistant',
  );
  const creation = history[answerIndex];
  const error = { code: 'run_interrupted', message: 'The session was forked while this run was active.' };
  const settlement: LogEntry = {
    type: 'run.settled',
    runId,
    outcome: 'interrupted',
    usage: noUsage,
    finishReason: null,
    error,
  };
  if (creation?.type !== 'message.created') return [settlement];
  const startEvent = history.find(({ type }) => type === 'run.started');
  const isCompleted = history.some(
    (event) => event.type === 'message.completed' && event.messageId === creation.messageId,
  );
  if (isCompleted) return [settlement];
  const message: UiMessage = {
    id: creation.messageId,
    role: 'assistant',
    parts: foldEvents(events.slice(answerIndex), openTexts),
    metadata: {
      runId,
      status: 'interrupted',
      ...(startEvent?.type === 'run.started' ? { model: startEvent.model } : {}),
    },
  };
  return [{ type: 'message.completed', runId, messageId: creation.messageId, message }, settlement];
}
