// The routes of inputs and runs: prompt, compact, cancel, and the queue of a session.
import { decodeCursor, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { Problem } from '../../kernel/problem.ts';
import { openSegmentsOf, type SessionRecord } from './event-log/session-store.ts';
import { toQueueItem, toRun } from './records.ts';
import type { RunRecord } from './runs/store.ts';
import { runNotFound, sessionNotFound } from './runs/problems.ts';
import { keyedRequestId, type HandlerOptions, type SessionHandlers } from './session-options.ts';
import type { InputPart } from './submit.ts';

const maxWaitSeconds = 300;

export function queueHandlers(
  options: HandlerOptions,
): SessionHandlers<
  | 'sessions.prompt'
  | 'sessions.compact'
  | 'sessions.cancel'
  | 'sessions.getRun'
  | 'sessions.listQueue'
  | 'sessions.removeQueueItem'
> {
  const { runs, inputs, runStore, requireSession } = options;
  return {
    'sessions.prompt': (call) => prompt(options, call),

    'sessions.compact': async (call) => ({
      status: 202,
      body: (await inputs.compact(call.path.sessionId, keyedRequestId(call))).receipt,
    }),

    'sessions.cancel': async ({ path, body }) => {
      const session = await requireSession(path.sessionId);
      return {
        status: 200,
        body: { sessionId: session.id, cancelled: await runs.cancel(session, body ?? {}) },
      };
    },

    'sessions.getRun': async ({ path }) => {
      const session = await requireSession(path.sessionId);
      const run = await runStore.run(session.key, path.runId);
      if (!run) throw runNotFound();
      return { status: 200, body: await showRun(options, session, run) };
    },

    'sessions.listQueue': async ({ path, query }) => {
      const session = await requireSession(path.sessionId);
      const { activeRunId, queueLength, headSeq: seq } = session;
      const waitingInputs = await runStore.queue(session.key);
      const page = pageOfQueue(waitingInputs, await countInputsAhead(options, session, waitingInputs), query);
      return { status: 200, body: { ...page, activeRunId, queueLength, seq } };
    },

    'sessions.removeQueueItem': async ({ path }) => {
      await removeQueueItem(options, await requireSession(path.sessionId), path.queueItemId);
      return { status: 204 };
    },
  };
}

/**
 * Counts the inputs ahead of the session's first waiting input: 1 while a run of the session is active,
 * otherwise the inputs of other sessions that get a free place before it.
 */
async function countInputsAhead(
  { runStore, agentId }: HandlerOptions,
  { activeRunId }: SessionRecord,
  [nextInput]: readonly RunRecord[],
): Promise<number> {
  if (activeRunId !== null) return 1;
  return nextInput === undefined ? 0 : runStore.waitingAhead(agentId, nextInput);
}

function pageOfQueue(
  waitingInputs: readonly RunRecord[],
  aheadCount: number,
  query: { limit?: number; cursor?: string },
): { items: ReturnType<typeof toQueueItem>[]; nextCursor: string | null } {
  const limit = pageLimit(query);
  const items = waitingInputs.map((run, index) => ({ run, queuePosition: index + aheadCount }));
  const cursor = query.cursor === undefined ? undefined : decodeCursor(query.cursor, isQueueCursor);
  const itemsAfterCursor =
    cursor === undefined ? items : items.filter(({ run }) => isAfterCursor(run, cursor));
  const page = pageOf(itemsAfterCursor.slice(0, limit + 1), limit, ({ run }) => [
    run.isUrgent,
    String(run.place),
  ]);
  return {
    items: page.items.map(({ run, queuePosition }) => toQueueItem(run, queuePosition)),
    nextCursor: page.next_cursor,
  };
}

async function removeQueueItem(
  { runs, runStore }: HandlerOptions,
  session: SessionRecord,
  queueItemId: string,
): Promise<void> {
  const run = await runStore.queueItem(session.key, queueItemId);
  if (!run)
    throw new Problem(
      'not_found',
      'queue_item_not_found',
      'No input of this session has had this queue item id.',
      { param: 'queueItemId' },
    );
  if (run.status === 'cancelled') return;
  const isWaiting = run.status === 'accepted' && run.steeredInto === null;
  const removedIds = isWaiting ? await runs.cancelWaiting(session, run.runId) : [];
  if (removedIds.length === 0)
    throw new Problem(
      'conflict',
      'run_started',
      `The input is already running; cancel the run ${run.runId} instead.`,
      {
        param: 'queueItemId',
      },
    );
}

async function showRun(options: HandlerOptions, session: SessionRecord, run: RunRecord) {
  const { runStore, events } = options;
  const isWaiting = run.status === 'accepted' && run.steeredInto === null;
  const waitingRuns = isWaiting ? await runStore.queue(session.key) : [];
  const index = waitingRuns.findIndex(({ runId }) => runId === run.runId);
  const aheadCount = await countInputsAhead(options, session, waitingRuns);
  const waitsFor: 'session' | 'capacity' = index > 0 || session.activeRunId !== null ? 'session' : 'capacity';
  const messageEvents =
    run.messageId === null ? [] : await events.messageEvents(openSegmentsOf(session), run.messageId);
  return toRun(run, {
    sessionId: session.id,
    place: index < 0 ? null : { queuePosition: index + aheadCount, waitsFor },
    completion: messageEvents.findLast(({ type }) => type === 'message.completed'),
  });
}

/**
 * Names the last run of a page. Its place alone is not enough, because urgent runs are sorted before all
 * others.
 */
type QueueCursor = [isUrgent: boolean, place: string];

function isQueueCursor(content: unknown): content is QueueCursor {
  if (!Array.isArray(content) || content.length !== 2) return false;
  const [isUrgent, place] = content as unknown[];
  return typeof isUrgent === 'boolean' && typeof place === 'string' && /^\d{1,18}$/.test(place);
}

function isAfterCursor({ isUrgent, place }: RunRecord, [isCursorUrgent, cursorPlace]: QueueCursor): boolean {
  return isUrgent === isCursorUrgent ? place > BigInt(cursorPlace) : isCursorUrgent;
}

type PromptHandler = SessionHandlers<'sessions.prompt'>['sessions.prompt'];

async function prompt(
  options: HandlerOptions,
  call: Parameters<PromptHandler>[0],
): ReturnType<PromptHandler> {
  const { runs, inputs } = options;
  const { path, body, headers, signal } = call;
  const waitSeconds = readWaitSeconds(headers.prefer);
  const parts = 'parts' in body ? body.parts : [{ type: 'text' as const, text: body.text }];
  const { receipt, session } = await inputs.submit({
    ...body,
    parts: parts as InputPart[],
    to: { sessionId: path.sessionId },
    origin: 'sdk',
    requestId: keyedRequestId(call),
  });
  if (waitSeconds === null) return { status: 202, body: receipt };
  const appliedHeader = { 'preference-applied': `wait=${waitSeconds}` };
  const run = await runs.wait(
    { sessionKey: session.key, runId: receipt.runId },
    { timeoutMs: waitSeconds * 1_000, signal },
  );
  if (run === 'waiting') return { status: 202, body: receipt, headers: appliedHeader };
  if (run === 'gone') throw sessionNotFound();
  return {
    status: 200,
    body: { ...receipt, status: run.status, run: await showRun(options, session, run) },
    headers: appliedHeader,
  };
}

/**
 * Seconds of `Prefer: wait=n` (RFC 7240); null without it. Other preferences are ignored, as the RFC allows.
 */
function readWaitSeconds(prefer: string | undefined): number | null {
  const seconds = /(?:^|[,;\s])wait\s*=\s*"?(\d{1,6})"?/i.exec(prefer ?? '')?.[1];
  return seconds === undefined ? null : Math.min(Number(seconds), maxWaitSeconds);
}
