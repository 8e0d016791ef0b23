// A fork shares the past of its parent by reference: a row and an event or two, however long the past is. What was going
// on at that point stays with the parent; a message that was being written ends in the fork where it was cut.
import type { UiMessage } from '../../contract/agent/types.gen.ts';
import { id } from '../../kernel/ids.ts';
import { Problem } from '../../kernel/problem.ts';
import { readEvent, type StoredEvent } from './event-log/events.ts';
import { withMessageSeq, type EventStore, type LogEntry, type Segment } from './event-log/store.ts';
import { foldEvents, type OpenText } from './model-loop/message.ts';
import { segmentsOf, type SessionRecord, type SessionStore } from './event-log/session-store.ts';

export interface ForkRequest {
  messageId?: string;
  seq?: number;
  position?: 'after' | 'before';
  title?: string;
  metadata?: Record<string, unknown>;
}

export interface ForkPoint {
  session: SessionRecord;
  seq: number;
  messageId: string | null;
  messageCount: number;
  /** The run that is cut at that point, and what it has written until then. */
  openRun: { runId: string; events: StoredEvent[] } | null;
}

export async function findForkPoint(
  session: SessionRecord,
  { messageId, seq, position = 'after' }: ForkRequest,
  events: EventStore,
): Promise<ForkPoint> {
  if (messageId !== undefined && seq !== undefined)
    throw refused('seq', 'cannot be given together with `messageId`');
  if (messageId === undefined && position === 'before')
    throw refused('position', 'says something of `messageId` alone');
  if (seq !== undefined && seq > session.headSeq)
    throw refused('seq', `is beyond the newest event, ${session.headSeq}`);
  const at =
    messageId === undefined
      ? (seq ?? session.headSeq)
      : await seqOfMessage(session, messageId, position, events);
  const point = { session, seq: at, messageId: messageId ?? null };
  const segments = segmentsOf(session, at);
  if (at === session.headSeq)
    return {
      ...point,
      messageCount: session.messageCount,
      openRun: await openRun(segments, session.activeRunId, events),
    };
  const [started, newest] = await Promise.all([
    events.newestOfType(segments, 'run.started', at),
    events.newestOfType(segments, 'message.created', at),
  ]);
  const index = newest && (readEvent(newest) as { index?: number }).index;
  return {
    ...point,
    messageCount: index === undefined ? 0 : index + 1,
    openRun: await openRun(segments, started?.runId ?? null, events),
  };
}

async function openRun(
  segments: readonly Segment[],
  runId: string | null,
  events: EventStore,
): Promise<ForkPoint['openRun']> {
  if (runId === null) return null;
  const own = await events.ofRun(segments, runId);
  return own.some(({ type }) => type === 'run.settled') ? null : { runId, events: own };
}

async function seqOfMessage(
  session: SessionRecord,
  messageId: string,
  position: 'after' | 'before',
  events: EventStore,
): Promise<number> {
  const found = await events.messageEvents(segmentsOf(session), messageId);
  const created = found.find(({ type }) => type === 'message.created');
  const completed = found.findLast(({ type }) => type === 'message.completed');
  if (!created)
    throw new Problem('not_found', 'message_not_found', 'There is no message of this id in the session.', {
      param: 'messageId',
    });
  if (position === 'before') return created.seq - 1;
  // One that is still being written ends where it is now.
  return completed?.seq ?? session.headSeq;
}

/** Undefined when the parent has been deleted meanwhile. */
export async function makeFork(
  point: ForkPoint,
  request: ForkRequest,
  { agentId, store, openText }: { agentId: string; store: SessionStore; openText(runId: string): OpenText[] },
): Promise<SessionRecord | undefined> {
  const { session: parent, seq, messageId, openRun } = point;
  const key = id('ses');
  const cut =
    openRun === null ? [] : cutMessage(openRun, seq === parent.headSeq ? openText(openRun.runId) : []);
  const own: LogEntry[] = [
    { type: 'session.forked', parentSessionId: parent.id, atSeq: seq, atMessageId: messageId },
    ...cut,
    { type: 'status.changed', status: 'idle', activeRunId: null, queueLength: 0 },
  ];
  const made = await store.create({
    key,
    id: key,
    agentId,
    kind: parent.kind === 'execute' || parent.kind === 'chat' ? 'sdk' : parent.kind,
    title: request.title ?? parent.title,
    model: parent.model,
    reasoningEffort: parent.reasoningEffort,
    system: parent.system,
    metadata: request.metadata ?? parent.metadata,
    attended: parent.attended,
    parentKey: parent.key,
    forkSeq: seq,
    forkMessageId: messageId,
    lineage: segmentsOf(parent, seq).filter(({ upTo }, index, all) => upTo > (all[index - 1]?.upTo ?? 0)),
    messageCount: point.messageCount,
    events: own.map((event, index) => withMessageSeq(event, seq + index + 1)),
  });
  return made && { ...made, parentId: parent.id };
}

// The message that the run was writing, as far as it was, and the run's end as this session sees it.
function cutMessage({ runId, events }: NonNullable<ForkPoint['openRun']>, open: OpenText[]): LogEntry[] {
  const before = events.map(readEvent);
  const at = before.findLastIndex((event) => event.type === 'message.created' && event.role === 'assistant');
  const created = before[at];
  const usage = { inputTokens: 0, outputTokens: 0 };
  const error = { code: 'run_interrupted', message: 'The session was forked while this run was going on.' };
  const settled: LogEntry = {
    type: 'run.settled',
    runId,
    outcome: 'interrupted',
    usage,
    finishReason: null,
    error,
  };
  if (created?.type !== 'message.created') return [settled];
  const isCompleted = before.some(
    (event) => event.type === 'message.completed' && event.messageId === created.messageId,
  );
  if (isCompleted) return [settled];
  const message: UiMessage = {
    id: created.messageId,
    role: 'assistant',
    parts: foldEvents(before.slice(at), open),
    metadata: { runId, status: 'interrupted' },
  };
  return [{ type: 'message.completed', runId, messageId: created.messageId, message }, settled];
}

function refused(param: string, message: string): Problem {
  return new Problem('bad_request', 'invalid_request', `\`${param}\` ${message}.`, {
    param,
    details: [{ path: param, message }],
  });
}
