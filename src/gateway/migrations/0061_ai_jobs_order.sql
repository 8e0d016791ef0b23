-- Models: what a job has ordered from a provider that makes it in its own time. Whoever takes the job up again waits
-- for that order, since another would be made, and paid for, a second time.
alter table gateway.ai_jobs
  -- {"model", "id"}: the model of the catalog that took it, and the provider's name of it.
  add column upstream_order jsonb;
