// The limit of sessions with a workspace of their own.
import { Problem } from '../../kernel/problem.ts';
import type { WorkspaceSession } from '../workspaces/index.ts';
import type { HandlerOptions } from './session-options.ts';

/** Throws 409 where too many sessions have workspaces of their own. */
export async function requirePlace(
  { agentId, store, maxWorkspaces }: HandlerOptions,
  { workspace }: WorkspaceSession,
): Promise<void> {
  if (workspace === 'shared' || (await store.countOwnWorkspaces(agentId)) < maxWorkspaces) return;
  throw new Problem(
    'conflict',
    'workspace_unavailable',
    `There are ${maxWorkspaces} sessions with a workspace of their own already; delete one, or set AGENT_MAX_WORKSPACES.`,
    { param: 'workspace' },
  );
}
