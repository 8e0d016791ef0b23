// Creates sessions that have a workspace of their own: enforces their limit, and removes the workspace again
// when the session cannot be created.
import { Problem } from '../../kernel/problem.ts';
import type { Workspaces, WorkspaceSession } from '../workspaces/index.ts';
import type { SessionRecord, SessionStore } from './event-log/session-store.ts';

export interface OwnWorkspaces {
  /**
   * Creates the workspace of a session and then the session. Removes the workspace again when the session
   * cannot be created. Throws 409 when too many sessions have a workspace of their own.
   */
  create(session: WorkspaceSession, steps: CreationSteps): Promise<SessionRecord | undefined>;
}

interface CreationSteps {
  /** The member of the request that a 409 names. */
  param: 'workspace' | 'sessionId';
  createWorkspace(): Promise<void>;
  /** Returns undefined when the session cannot be created. */
  createSession(): Promise<SessionRecord | undefined>;
}

export interface OwnWorkspacesOptions {
  agentId: string;
  store: Pick<SessionStore, 'countOwnWorkspaces'>;
  workspaces: Pick<Workspaces, 'remove'>;
  maxWorkspaces: number;
}

export function createOwnWorkspaces(options: OwnWorkspacesOptions): OwnWorkspaces {
  const { agentId, store, workspaces, maxWorkspaces } = options;
  // Sessions that this process is creating. A session that is in the database already counts twice for a
  // moment, so the limit may be reached too early but is never exceeded by this process.
  let creations = 0;

  async function createBoth(
    session: WorkspaceSession,
    { param, createWorkspace, createSession }: CreationSteps,
  ): Promise<SessionRecord | undefined> {
    const otherCreations = creations - 1;
    if ((await store.countOwnWorkspaces(agentId)) + otherCreations >= maxWorkspaces)
      throw tooManyWorkspaces(maxWorkspaces, param);
    await createWorkspace();
    try {
      const record = await createSession();
      if (!record) await workspaces.remove(session);
      return record;
    } catch (error) {
      // After a lost connection the session may exist. A folder without a session is removed at a
      // later start.
      const isInDoubt = error instanceof Problem && error.kind === 'unavailable';
      if (!isInDoubt) await workspaces.remove(session);
      throw error;
    }
  }

  return {
    async create(session, steps) {
      if (session.workspace === 'shared') return steps.createSession();
      creations += 1;
      try {
        return await createBoth(session, steps);
      } finally {
        creations -= 1;
      }
    },
  };
}

function tooManyWorkspaces(maxWorkspaces: number, param: string): Problem {
  return new Problem(
    'conflict',
    'workspace_unavailable',
    `${maxWorkspaces} sessions have a workspace of their own already, which is the limit; delete one or raise AGENT_MAX_WORKSPACES.`,
    { param },
  );
}
