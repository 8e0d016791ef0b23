// The error of a workspace that cannot be created, copied or opened.
import { Problem } from '../../kernel/problem.ts';

export function workspaceUnavailable(reason: string, cause?: unknown): Problem {
  return new Problem('conflict', 'workspace_unavailable', reason, { param: 'workspace', cause });
}
