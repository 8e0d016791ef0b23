-- The handler's own headers of a stored answer, such as the model and its attempts, which a replay repeats. Null for
-- answers without any and for rows of older releases.
alter table gateway.idempotency add column headers jsonb;

-- As before, with the headers of the answer, {scope (hex), run, status, body, headers}.
create or replace function gateway.idempotency_settle(answer jsonb) returns boolean language plpgsql as $$
declare
  row_run uuid;
begin
  if answer ->> 'run' is null then return true; end if;
  select i.run into row_run from gateway.idempotency i where i.scope = decode(answer ->> 'scope', 'hex') for update;
  if row_run <> (answer ->> 'run')::uuid then return false; end if;
  update gateway.idempotency i
  set state = case when answer ->> 'body' is null then 'opaque' else 'done' end,
    status = (answer ->> 'status')::integer, body = answer ->> 'body', headers = nullif(answer -> 'headers', 'null')
  where i.scope = decode(answer ->> 'scope', 'hex') and i.state = 'running';
  return true;
end
$$;
