-- Models: responses in the background. The lease is of the process that runs the call; it is null for a
-- response with a final status. A lease that has ended belongs to a process that has stopped.
alter table gateway.ai_responses
  add column run_lease timestamptz,
  add column cancel_requested boolean not null default false;
create index ai_responses_runs on gateway.ai_responses (run_lease) where run_lease is not null;
