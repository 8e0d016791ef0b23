-- Answers kept for a day under the caller's Idempotency-Key, so that a repeated call is not done twice.
create table gateway.idempotency (
  -- SHA-256 of who calls, the operation and the key.
  scope bytea primary key check (octet_length(scope) = 32),
  -- SHA-256 of what was asked for.
  request bytea not null check (octet_length(request) = 32),
  -- Which of several calls with one key is the one that runs.
  run uuid not null,
  -- running: until the lease ends. done: status and body are the answer. opaque: it was not kept.
  state text not null check (state in ('running', 'done', 'opaque')),
  status integer,
  body text,
  lease_until timestamptz not null,
  expires_at timestamptz not null,
  constraint idempotency_done_has_answer check ((state = 'done') = (body is not null))
);
create index idempotency_expiry on gateway.idempotency (expires_at);

-- What is left of the rate limits of callers that all replicas share. Not worth a write to disk: whatever a
-- crash takes away is given back to the callers.
create unlogged table gateway.rate_quotas (
  key text primary key,
  tokens double precision not null,
  at timestamptz not null
);
create index rate_quotas_old on gateway.rate_quotas (at);
