// The routes of a run's changes to the files of the workspace: list, undo and redo.
import { Problem } from '../../kernel/problem.ts';
import type { Direction } from '../snapshots/index.ts';
import { lockSession, type SessionRecord } from './event-log/session-store.ts';
import { append } from './event-log/store.ts';
import { runNotFound, sessionNotFound } from './runs/problems.ts';
import { maxFilesShown } from './runs/run-events.ts';
import type { HandlerOptions, SessionHandlers } from './session-options.ts';

export function changeHandlers(
  options: HandlerOptions,
): SessionHandlers<'sessions.getChanges' | 'sessions.undoRun' | 'sessions.redoRun'> {
  return {
    'sessions.getChanges': async ({ path: { sessionId, runId } }) => {
      const session = await requireRun(options, sessionId, runId);
      const body = { sessionId: session.id, runId };
      if (session.activeRunId === runId) return { status: 200, body: { ...body, status: 'open', files: [] } };
      const workspace = await options.workspaces.of(session).catch(ignoreUnavailable);
      const changes = await options.snapshots.changes({ sessionKey: session.key, runId, workspace });
      return { status: 200, body: { ...body, ...changes } };
    },

    'sessions.undoRun': async ({ path }) => ({ status: 200, body: await restore(options, path, 'undo') }),

    'sessions.redoRun': async ({ path }) => ({ status: 200, body: await restore(options, path, 'redo') }),
  };
}

async function restore(
  options: HandlerOptions,
  { sessionId, runId }: { sessionId: string; runId: string },
  direction: Direction,
) {
  const { agentId, eventLog, snapshots, workspaces } = options;
  const session = await requireRun(options, sessionId, runId);
  if (session.activeRunId !== null) throw sessionBusy(session.activeRunId);
  const run = { sessionKey: session.key, runId };
  const workspace = await workspaces.of(session);
  // The files change under the session's lock, so that no run of the session starts in the meantime.
  return snapshots.restore({ ...run, workspace }, direction, async (apply, files) => {
    const seq = await eventLog.transact<number>(async (unit) => {
      const lockedSession = await lockSession(unit, agentId, { key: session.key });
      if (!lockedSession) return sessionNotFound();
      if (lockedSession.activeRunId !== null) return sessionBusy(lockedSession.activeRunId);
      const problem = await apply(unit.tx);
      if (problem !== null) return problem;
      const event = { count: files.length, files: files.slice(0, maxFilesShown) };
      const type = direction === 'undo' ? 'workspace.undone' : 'workspace.redone';
      const headSeq = await append(unit, { ...run, events: [{ type, ...event }] });
      if (headSeq === null) throw new Error('A session changed under its lock.');
      return headSeq;
    });
    const status = direction === 'undo' ? ('undone' as const) : ('applied' as const);
    return { sessionId: session.id, runId, status, seq, files };
  });
}

function ignoreUnavailable(error: unknown): null {
  if (error instanceof Problem && error.code === 'workspace_unavailable') return null;
  throw error;
}

async function requireRun(
  { requireSession, runStore }: HandlerOptions,
  sessionId: string,
  runId: string,
): Promise<SessionRecord> {
  const session = await requireSession(sessionId);
  if (!(await runStore.run(session.key, runId))) throw runNotFound();
  return session;
}

function sessionBusy(activeRunId: string): Problem {
  return new Problem(
    'conflict',
    'session_busy',
    `The run ${activeRunId} of this session is active; wait until it ends, or cancel it.`,
  );
}
