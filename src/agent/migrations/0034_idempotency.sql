-- Answers kept for a day under the caller's Idempotency-Key, as at the gateway, and the call that each run came with.
create table agent.idempotency (
  -- SHA-256 of who calls, the operation and the key.
  scope bytea primary key check (octet_length(scope) = 32),
  -- SHA-256 of the caller, for the quota.
  caller bytea not null,
  -- SHA-256 of the request's parameters and body.
  request bytea not null check (octet_length(request) = 32),
  -- Which of several calls with one key is the one that runs.
  run uuid not null,
  -- Of that call.
  request_id text not null,
  -- running: until the lease ends. done: status and body are the answer. opaque: it was not kept.
  state text not null check (state in ('running', 'done', 'opaque')),
  status integer,
  body text,
  lease_until timestamptz not null,
  expires_at timestamptz not null,
  constraint idempotency_done_has_answer check ((state = 'done') = (body is not null))
);
create index idempotency_expiry on agent.idempotency (expires_at);
create index idempotency_caller on agent.idempotency (caller, expires_at);

-- The request of a call with an Idempotency-Key, in the row of its run: both are written by one statement, so a crash
-- cannot leave a run whose key another call could take.
alter table agent.sessions_runs add column request_id text;
create index sessions_runs_by_request on agent.sessions_runs (request_id) where request_id is not null;

-- Whether a call has accepted a run. Its key is not given to another call then, even when its process has died.
create function agent.idempotency_is_pending(of_request text) returns boolean language sql stable as $$
  select exists (select 1 from agent.sessions_runs r where r.request_id = of_request)
$$;
