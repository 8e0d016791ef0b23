-- Until when an input may wait; null for ever. One that has not begun by then ends as expired.
alter table agent.sessions_runs add column expires_at timestamptz;

create index sessions_runs_by_expiry on agent.sessions_runs (agent_id, expires_at)
  where status = 'accepted' and steered_into is null and expires_at is not null;
