// The error of a workspace that cannot be created, copied or opened.
import { Problem } from '../../kernel/problem.ts';

/** The member of a request that names the workspace, or the session that has it. */
export type WorkspaceMember = 'workspace' | 'sessionId';

export function workspaceUnavailable(reason: string, param: WorkspaceMember | null = null): Problem {
  return new Problem('conflict', 'workspace_unavailable', reason, { param });
}

/** The error with the member of the request that is at fault. */
export function nameMember(error: unknown, param: WorkspaceMember): unknown {
  if (!(error instanceof Problem) || error.code !== 'workspace_unavailable') return error;
  return new Problem(error.kind, error.code, error.message, { param, cause: error });
}
