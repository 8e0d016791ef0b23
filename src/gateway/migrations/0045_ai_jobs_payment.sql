-- Models: what a job is paid with. The hold is made with the job and taken up again by whoever runs it.
alter table gateway.ai_jobs
  -- Of the ledger; null where nothing is held: an administrator's job, or one that has come to an end.
  add column hold_id text,
  -- The request that made the job, and the token that it came with.
  add column request_id text,
  add column token_id text,
  -- Null for an administrator's.
  add column bureau_id text,
  add column credits bigint check (credits >= 0);
