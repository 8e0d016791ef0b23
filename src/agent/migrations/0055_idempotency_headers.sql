-- The handler's own headers of a stored answer, which a replay repeats. Null for answers without any and for rows of
-- older releases.
alter table agent.idempotency add column headers jsonb;
