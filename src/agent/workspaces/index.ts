// The folders that sessions work in: the agent's, or a folder of their own.
export {
  createWorkspaces,
  type WorkspaceKind,
  type Workspaces,
  type WorkspaceSession,
} from './workspaces.ts';
