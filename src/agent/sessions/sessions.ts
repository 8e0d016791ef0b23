// The routes of sessions as records: list, create, get, update, remove.
import { id as makeId } from '../../kernel/ids.ts';
import { decodeCursor, isTimeAndId, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { requireStorable } from '../../kernel/contract/storable.ts';
import { isRecord } from '../../kernel/json-value.ts';
import { invalidMember, Problem } from '../../kernel/problem.ts';
import type { Service } from '../service.ts';
import { allSessionsHandlers } from './all-sessions.ts';
import { approvalHandlers } from './approval-handlers.ts';
import { attachmentHandlers } from './attachment-handlers.ts';
import { changeHandlers } from './changes.ts';
import type { SessionEvent } from './event-log/events.ts';
import {
  lockSession,
  patchSession,
  type SessionPatch,
  type SessionRecord,
} from './event-log/session-store.ts';
import { append } from './event-log/store.ts';
import type { Chat } from './chat.ts';
import { executeHandlers } from './execute.ts';
import { forkHandlers } from './fork.ts';
import { historyHandlers } from './history.ts';
import { queueHandlers } from './queue.ts';
import { toSession } from './records.ts';
import { regenerateHandlers } from './regenerate.ts';
import { sessionNotFound } from './runs/problems.ts';
import type { HandlerOptions, SessionHandlers } from './session-options.ts';

export interface SessionServiceOptions extends Omit<HandlerOptions, 'requireSession'> {
  chat: Chat;
  /** After this time a caller of `execute` gets a receipt, and the run continues. */
  executeWaitMs: number;
}

export function sessionService(serviceOptions: SessionServiceOptions): Service<'sessions'> {
  const { store, agentId } = serviceOptions;
  const options: SessionServiceOptions & HandlerOptions = {
    ...serviceOptions,
    async requireSession(sessionId) {
      const session = await store.session(agentId, { id: sessionId });
      if (!session) throw sessionNotFound();
      return session;
    },
  };
  return {
    name: 'sessions',
    handlers: {
      ...recordHandlers(options),
      ...queueHandlers(options),
      ...regenerateHandlers(options),
      ...changeHandlers(options),
      ...historyHandlers(options),
      ...allSessionsHandlers(options),
      ...approvalHandlers(options),
      ...attachmentHandlers(options),
      ...forkHandlers(options),
      ...executeHandlers(options),
    },
  };
}

type RecordHandlers = SessionHandlers<
  'sessions.list' | 'sessions.create' | 'sessions.get' | 'sessions.update' | 'sessions.remove'
>;

function recordHandlers(options: HandlerOptions): RecordHandlers {
  const { requireSession } = options;
  return {
    'sessions.list': (call) => listSessions(options, call),
    'sessions.create': (call) => createSession(options, call),

    'sessions.get': async ({ path }) => ({
      status: 200,
      body: toSession(await requireSession(path.sessionId)),
    }),

    'sessions.update': async ({ path, body }) => {
      if (body.metadata !== undefined) requireStorable(body.metadata, 'metadata');
      const session = await requireSession(path.sessionId);
      await updateSession(options, session.key, body as SessionPatch);
      return { status: 200, body: toSession(await requireSession(path.sessionId)) };
    },

    'sessions.remove': async ({ path }) => {
      await removeSession(options, await requireSession(path.sessionId));
      return { status: 204 };
    },
  };
}

async function listSessions(
  { agentId, store }: HandlerOptions,
  { query }: Parameters<RecordHandlers['sessions.list']>[0],
): ReturnType<RecordHandlers['sessions.list']> {
  const limit = pageLimit(query);
  const beforePosition = query.cursor === undefined ? undefined : decodeCursor(query.cursor, isTimeAndId);
  const rows = await store.list({
    agentId,
    limit: limit + 1,
    ...(beforePosition ? { before: { createdAt: beforePosition[0], key: beforePosition[1] } } : {}),
    ...(query.kind === undefined ? {} : { kind: query.kind }),
    ...(query.status === undefined ? {} : { status: query.status }),
    ...(query.archived === undefined ? {} : { archived: query.archived }),
    search: query.search,
    metadata: query.metadata === undefined ? undefined : readMetadataFilter(query.metadata),
  });
  const { items, next_cursor: nextCursor } = pageOf(rows, limit, ({ createdAt, key }) => [createdAt, key]);
  return { status: 200, body: { items: items.map(toSession), nextCursor } };
}

/** The object in the query parameter `metadata`. Throws 400 for text that is not a JSON object. */
function readMetadataFilter(text: string): object {
  const metadata = parseMetadataFilter(text);
  requireStorable(metadata, 'metadata');
  return metadata;
}

function parseMetadataFilter(text: string): object {
  try {
    const value: unknown = JSON.parse(text);
    if (isRecord(value)) return value;
  } catch {
    // Not JSON; the Problem below reports it.
  }
  throw invalidMember('metadata', 'must be a JSON object such as {"project":"hall"}');
}

async function createSession(
  options: HandlerOptions,
  { body }: Parameters<RecordHandlers['sessions.create']>[0],
): ReturnType<RecordHandlers['sessions.create']> {
  if (body.metadata !== undefined) requireStorable(body.metadata, 'metadata');
  const key = makeId('ses');
  const { id = key, title = null, workspace = 'shared' } = body;
  const { agentId, eventLog, store, workspaces, ownWorkspaces, requireSession } = options;
  const session = { key, workspace };
  // A repeated request finds the session of the first one, so it creates no second workspace.
  const isRepeated = workspace !== 'shared' && (await store.session(agentId, { id })) !== undefined;
  const newSession = isRepeated
    ? undefined
    : await ownWorkspaces.create(session, {
        param: 'workspace',
        createWorkspace: () => workspaces.create(session),
        createSession: () =>
          eventLog.create({
            ...body,
            title,
            key,
            id,
            agentId,
            kind: 'sdk',
            events: [{ type: 'session.created', kind: 'sdk', title, chatId: null }],
          }),
      });
  if (newSession) return { status: 201, body: toSession(newSession) };
  if (body.ifExists !== 'return')
    throw new Problem('conflict', 'session_exists', `A session with the id "${id}" already exists.`, {
      param: 'id',
    });
  return { status: 200, body: toSession(await requireSession(id)) };
}

async function updateSession(
  { eventLog, agentId }: HandlerOptions,
  sessionKey: string,
  patch: SessionPatch,
): Promise<void> {
  const { archived, ...changes } = patch;
  await eventLog.transact(async (unit) => {
    const lockedSession = await lockSession(unit, agentId, { key: sessionKey });
    if (!lockedSession) return sessionNotFound();
    await patchSession(unit, sessionKey, patch);
    // Archiving has an event of its own; restoring a session is an update like any other.
    const updates = archived === false ? patch : changes;
    const events: SessionEvent[] = [];
    if (Object.keys(updates).length > 0) events.push({ type: 'session.updated', ...updates } as SessionEvent);
    if (archived === true && lockedSession.archivedAt === null) events.push({ type: 'session.archived' });
    if (events.length > 0) await append(unit, { sessionKey, events });
    return undefined;
  });
}

/** Cancels the runs of a session and removes it with its files and its own workspace. */
export async function removeSession(
  {
    runs,
    eventLog,
    files,
    snapshots,
    workspaces,
  }: Pick<HandlerOptions, 'runs' | 'eventLog' | 'files' | 'snapshots' | 'workspaces'>,
  session: SessionRecord,
): Promise<void> {
  await runs.cancel(session, { queue: true });
  const outcome = await eventLog.remove(session.key);
  const isOwn = session.workspace !== 'shared';
  await snapshots.removeSession(session.key, isOwn ? workspaces.rootOf(session) : null);
  await workspaces.remove(session);
  // The attachments come last, because a bucket may be unreachable. A hidden session keeps them, because its
  // forks may still show them.
  if (outcome === 'gone') await files.removeAll(session.key);
}
