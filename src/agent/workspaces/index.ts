// The folders that sessions work in: that of the agent, or one of their own.
export {
  createWorkspaces,
  type WorkspaceKind,
  type Workspaces,
  type WorkspaceSession,
} from './workspaces.ts';
