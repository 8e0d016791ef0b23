-- The folder that the tools of a session work in: that of the agent, or one of its own.
alter table agent.sessions_sessions add column workspace text not null default 'shared'
  check (workspace in ('shared', 'folder', 'worktree'));
create index sessions_of_own_workspaces on agent.sessions_sessions (agent_id) where workspace <> 'shared' and deleted_at is null;
