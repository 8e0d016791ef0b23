// The error of a workspace that cannot be created, copied or opened.
import { Problem } from '../../kernel/problem.ts';

/** The member of a request that names the workspace, or the session that has it. */
export type WorkspaceMember = 'workspace' | 'sessionId';

export function workspaceUnavailable(reason: string, param: WorkspaceMember | null = null): Problem {
  return new Problem('conflict', 'workspace_unavailable', reason, { param });
}

/** Adds the request member at fault to a `workspace_unavailable` error; returns any other error unchanged. */
export function addMember(error: unknown, param: WorkspaceMember): unknown {
  if (!(error instanceof Problem) || error.code !== 'workspace_unavailable') return error;
  return new Problem(error.kind, error.code, error.message, { param, cause: error });
}
