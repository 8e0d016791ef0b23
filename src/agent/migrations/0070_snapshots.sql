-- What runs changed in the files of the workspace. The contents are in the data folder, under their hashes.
create table agent.snapshots_runs (
  run_id text primary key,
  agent_id text not null,
  session_id text not null references agent.sessions_sessions on delete cascade,
  -- `open`: the run, or its process, has not said yet what it changed.
  status text not null check (status in ('open', 'applied', 'undone')),
  -- The hash of the list of all files before the run's first change, while it is open.
  tree_hash text,
  created_at timestamptz not null default agent.townhall_now()
);
create index snapshots_runs_by_age on agent.snapshots_runs (agent_id, created_at);
create index snapshots_runs_by_session on agent.snapshots_runs (session_id, created_at);

create table agent.snapshots_files (
  run_id text not null references agent.snapshots_runs on delete cascade,
  path text not null,
  -- Null where the file did not exist.
  before_hash text,
  before_mode integer,
  after_hash text,
  after_mode integer,
  additions integer,
  deletions integer,
  primary key (run_id, path)
);
create index snapshots_files_by_before on agent.snapshots_files (before_hash);
create index snapshots_files_by_after on agent.snapshots_files (after_hash);
