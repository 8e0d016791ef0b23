-- A session is an append-only log of events with a gapless `seq`; the row beside it is what has to be read or
-- locked without reading the log.
create table agent.sessions_sessions (
  session_id text primary key,
  agent_id text not null references agent.tokens_agents,
  kind text not null check (kind in ('sdk', 'chat', 'dashboard', 'execute')),
  -- The seq of the newest event. Raising it is what serializes two writers.
  head_seq integer not null default 0 check (head_seq >= 0),
  -- The run that may write now: null between runs. A settled run finds itself not here and stops.
  active_run_id text,
  created_at timestamptz not null default agent.townhall_now(),
  updated_at timestamptz not null default agent.townhall_now()
);

create index sessions_sessions_by_age on agent.sessions_sessions (agent_id, kind, created_at);

create table agent.sessions_events (
  session_id text not null references agent.sessions_sessions on delete cascade,
  seq integer not null check (seq > 0),
  run_id text,
  type text not null,
  data jsonb not null,
  time timestamptz not null default agent.townhall_now(),
  primary key (session_id, seq)
);

create index sessions_events_by_run on agent.sessions_events (run_id, seq);

create table agent.sessions_runs (
  run_id text primary key,
  session_id text not null references agent.sessions_sessions on delete cascade,
  agent_id text not null references agent.tokens_agents,
  -- The assistant message that the run writes.
  message_id text not null,
  model text not null,
  status text not null check (status in ('accepted', 'running', 'completed', 'failed', 'cancelled', 'interrupted', 'expired')),
  -- The process that has the run, and until when it is believed to be alive without another word from it.
  instance_id text not null,
  lease_until timestamptz not null,
  accepted_at timestamptz not null default agent.townhall_now(),
  started_at timestamptz,
  settled_at timestamptz,
  finish_reason text,
  usage jsonb,
  error jsonb,
  check ((settled_at is null) = (status in ('accepted', 'running')))
);

-- What a start has to look at: the few runs that are not settled.
create index sessions_runs_open on agent.sessions_runs (agent_id, lease_until) where settled_at is null;
create index sessions_runs_by_session on agent.sessions_runs (session_id, accepted_at);
