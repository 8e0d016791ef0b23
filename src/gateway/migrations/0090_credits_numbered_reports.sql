-- Reports and give-backs say what they know: a holder counts in memory while its charges are applied, so that its numbers
-- reach the database later than they were true. NOTIFY of recalls is gone: gateways read their flags.

alter table gateway.credits_allotments
  -- What charges have taken from it. `amount + charged` changes only with the version.
  add column charged bigint not null default 0,
  -- Number of its holder's report that is stored: an older one comes too late.
  add column report bigint not null default 0,
  -- How often it was recalled: a give-back answers the recalls that its holder knew of.
  add column recall bigint not null default 0;

-- A reader of balances asks for reports of other gateways by number. The holder answers with the number that it has read,
-- after everything that it had charged until then.
alter table gateway.credits_journals
  add column report_asked bigint not null default 0,
  add column report_done bigint not null default 0;

-- A report is [reserved, unapplied, charged, number]: what the holder counted while it knew of `charged`. Without the last two,
-- it is of this moment.
drop function gateway.credits_reported_unapplied(jsonb, bigint, bigint) cascade;

create function gateway.credits_is_newer(report jsonb, stored bigint) returns boolean language sql immutable as $$
  select report is not null and coalesce((report ->> 3)::bigint, stored) >= stored
$$;

-- Unapplied credits of a row after a report; `before` where the report is missing or too late.
create function gateway.credits_unapplied(report jsonb, stored bigint, amount bigint, charged bigint, before bigint)
returns bigint language sql immutable as $$
  select least(amount, case when gateway.credits_is_newer(report, stored)
    then greatest((report ->> 1)::bigint - greatest(charged - coalesce((report ->> 2)::bigint, charged), 0), 0)
    else before end)
$$;

create function gateway.credits_reserved(report jsonb, stored bigint, room bigint, before bigint) returns bigint language sql immutable as $$
  select least(room, case when gateway.credits_is_newer(report, stored) then (report ->> 0)::bigint else before end)
$$;

create or replace function gateway.credits_lower_charged(named_ids text[], covers jsonb, reports jsonb) returns void language sql as $$
  update gateway.credits_allotments a
  set amount = n.rest, charged = n.charged, unapplied = n.unapplied,
    reserved = gateway.credits_reserved(n.report, a.report, n.rest - n.unapplied, a.reserved),
    reported_at = case when gateway.credits_is_newer(n.report, a.report) then gateway.credits_clock() else a.reported_at end,
    report = greatest(a.report, (n.report ->> 3)::bigint)
  from (
    select c.*, gateway.credits_unapplied(c.report, c.stored, c.rest, c.charged, greatest(c.before - c.cover, 0)) as unapplied
    from (
      select b.allotment_id, b.unapplied as before, b.report as stored, d.cover, b.amount - d.cover as rest,
        b.charged + d.cover as charged, reports -> b.allotment_id as report
      from gateway.credits_allotments b, lateral (select coalesce((covers ->> b.allotment_id)::bigint, 0) as cover) d
      where b.allotment_id = any (named_ids) and b.ended_at is null) c) n
  where a.allotment_id = n.allotment_id
$$;

create or replace function gateway.credits_allotment_rows(allotment_ids text[]) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(jsonb_build_object('allotmentId', a.allotment_id, 'version', a.version, 'amount', a.amount::text,
    'charged', a.charged::text, 'recall', a.recall::text, 'isRecalled', a.is_recalled, 'isClosed', a.is_closed)), '[]')
  from gateway.credits_allotments a where a.allotment_id = any ($1) and a.ended_at is null
$$;

-- A renewal covers all open allotments of its gateway and answers with them, also those that the process does not know:
-- opened by a request whose answer was lost. `reports` is {<allotment id>: report}. A lookup per row instead of a join, which a
-- generic plan would make a nested loop over 10,000 rows on both sides.
drop function gateway.credits_renew(text, jsonb, double precision);
create function gateway.credits_renew(of_gateway text, reports jsonb, lease_seconds double precision)
returns table (allotment_id text, version integer, amount bigint, charged bigint, recall bigint, is_recalled boolean, is_closed boolean)
language plpgsql as $$
#variable_conflict use_column
begin
  perform 1 from gateway.credits_allotments a where a.gateway_id = of_gateway and a.ended_at is null
  order by a.allotment_id for update;
  return query
    update gateway.credits_allotments a
    set lease_until = gateway.credits_clock() + make_interval(secs => lease_seconds),
      reported_at = case when gateway.credits_is_newer(reports -> a.allotment_id, a.report) then gateway.credits_clock() else a.reported_at end,
      unapplied = gateway.credits_unapplied(reports -> a.allotment_id, a.report, a.amount, a.charged, a.unapplied),
      reserved = gateway.credits_reserved(reports -> a.allotment_id, a.report,
        a.amount - gateway.credits_unapplied(reports -> a.allotment_id, a.report, a.amount, a.charged, a.unapplied), a.reserved),
      report = greatest(a.report, (reports -> a.allotment_id ->> 3)::bigint)
    where a.gateway_id = of_gateway and a.ended_at is null
    returning a.allotment_id, a.version, a.amount, a.charged, a.recall, a.is_recalled, a.is_closed;
end
$$;

-- Stores reports of the named allotments alone, and, with `answered`, that this gateway reported all that it was asked for.
create function gateway.credits_report(of_gateway text, reports jsonb, answered bigint) returns void language plpgsql as $$
begin
  if answered is not null then
    update gateway.credits_journals j set report_done = greatest(j.report_done, answered) where j.journal_id = of_gateway;
  end if;
  perform 1 from gateway.credits_allotments a
  where a.allotment_id = any (array(select jsonb_object_keys(reports))) and a.gateway_id = of_gateway and a.ended_at is null
  order by a.allotment_id for update;
  perform gateway.credits_lower_charged(array(
    select a.allotment_id from gateway.credits_allotments a
    where a.allotment_id = any (array(select jsonb_object_keys(reports))) and a.gateway_id = of_gateway and a.ended_at is null), '{}', reports);
end
$$;

-- Asks the other gateways that hold credits of the account, or of any account, for a report; of those whose lease is valid.
create function gateway.credits_ask_reports(of_gateway text, of_account text)
returns table (gateway_id text, number bigint) language plpgsql as $$
#variable_conflict use_column
declare
  ids text[];
begin
  select array_agg(distinct a.gateway_id) into ids from gateway.credits_allotments a
  where a.ended_at is null and (of_account is null or a.account_id = of_account) and a.amount > 0
    and a.gateway_id is distinct from of_gateway and a.lease_until > gateway.credits_clock();
  if ids is null then return; end if;
  perform 1 from gateway.credits_journals j where j.journal_id = any (ids) order by j.journal_id for update;
  return query
    update gateway.credits_journals j set report_asked = j.report_asked + 1
    where j.journal_id = any (ids) returning j.journal_id, j.report_asked;
end
$$;

-- `amounts` are of the time at which the holder knew of `charges`, or of now where they are null. A give-back answers the recalls up
-- to `recalls`, or all where they are null.
drop function gateway.credits_give_back(text[], integer[], bigint[], boolean[]);
drop function gateway.credits_lower(text[], integer[], bigint[], boolean[]);

-- Lowers allotments to the named amounts, or ends them; what comes free pays its account's debt first. Only with the named
-- version, or, without versions, only when the lease ended 40 s ago.
create function gateway.credits_lower(allotment_ids text[], versions integer[], amounts bigint[], ends boolean[], charges bigint[], recalls bigint[])
returns table (allotment_id text, freed bigint) language plpgsql as $$
#variable_conflict use_column
declare
  account_ids text[];
  lowered_ids text[];
  lowered_freed bigint[];
  debt record;
begin
  select array_agg(distinct a.account_id) into account_ids from gateway.credits_allotments a
  where a.allotment_id = any (allotment_ids) and a.ended_at is null;
  perform 1 from gateway.credits_accounts a where a.account_id = any (account_ids) order by a.account_id for update;
  perform 1 from gateway.credits_allotments a where a.allotment_id = any (allotment_ids) order by a.allotment_id for update;

  with target as (
    select w.id, w.ends, a.amount as before, coalesce(a.recall > w.recall, false) as is_recalled,
      least(a.amount, case when w.ends then 0
        else greatest(w.amount - coalesce(greatest(a.charged - w.charged, 0), 0), 0) end) as rest
    from unnest(allotment_ids, versions, amounts, ends, charges, recalls) as w (id, expected, amount, ends, charged, recall)
      join gateway.credits_allotments a on a.allotment_id = w.id
    where a.ended_at is null and case when versions is null
      then a.lease_until < gateway.credits_clock() - interval '40 seconds' else a.version = w.expected end),
  lowered as (
    update gateway.credits_allotments a
    set amount = t.rest, version = a.version + 1, is_recalled = t.is_recalled, unapplied = least(a.unapplied, t.rest),
      reserved = least(a.reserved, t.rest - least(a.unapplied, t.rest)),
      ended_at = case when t.ends then gateway.credits_clock() end
    from target t where a.allotment_id = t.id
    returning a.allotment_id, a.token_id, t.before - t.rest as freed),
  keys as (
    update gateway.credits_keys k set held = k.held - s.freed
    from (select token_id, sum(freed)::bigint as freed from lowered group by token_id) s
    where k.token_id = s.token_id and s.freed > 0)
  select array_agg(l.allotment_id), array_agg(l.freed) into lowered_ids, lowered_freed from lowered l;

  for debt in
    select a.account_id, min(l.id || ':' || b.version) as ref, least(min(a.owed), sum(l.freed))::bigint as paid
    from unnest(lowered_ids, lowered_freed) as l (id, freed) join gateway.credits_allotments b on b.allotment_id = l.id
      join gateway.credits_accounts a on a.account_id = b.account_id
    where a.owed > 0 and l.freed > 0 group by a.account_id
  loop
    perform gateway.credits_write('collection', debt.ref, debt.account_id, 'paid towards a debt',
      array[debt.account_id, 'receivable:' || debt.account_id], array[-debt.paid, debt.paid]);
  end loop;
  update gateway.credits_accounts a
  set held = a.held - s.freed, posted = a.posted - least(a.owed, s.freed), owed = a.owed - least(a.owed, s.freed)
  from (
    select b.account_id, sum(l.freed)::bigint as freed
    from unnest(lowered_ids, lowered_freed) as l (id, freed) join gateway.credits_allotments b on b.allotment_id = l.id
    group by b.account_id) s
  where a.account_id = s.account_id and s.freed > 0;
  return query select l.id, l.freed from unnest(lowered_ids, lowered_freed) as l (id, freed);
end
$$;

-- Answers in the order of the requests; without a row where the allotment is not open.
create function gateway.credits_give_back(allotment_ids text[], versions integer[], amounts bigint[], ends boolean[],
  charges bigint[] default null, recalls bigint[] default null)
returns table (place bigint, allotment_id text, version integer, amount bigint, charged bigint, recall bigint, is_recalled boolean,
  is_closed boolean) language plpgsql as $$
#variable_conflict use_column
begin
  perform gateway.credits_lower(allotment_ids, versions, amounts, ends, charges, recalls);
  return query
    select w.place, a.allotment_id, a.version, a.amount, a.charged, a.recall, a.is_recalled, a.is_closed
    from unnest(allotment_ids) with ordinality as w (id, place)
      join gateway.credits_allotments a on a.allotment_id = w.id and a.ended_at is null;
end
$$;

create or replace function gateway.credits_take_back_expired(size integer) returns table (allotment_id text, amount bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  ids text[];
begin
  if gateway.credits_server_start() > gateway.credits_clock() - interval '1 minute' then return; end if;
  delete from gateway.credits_recalls r where r.ticket in (
    select o.ticket from gateway.credits_recalls o where o.created_at <= gateway.credits_clock() - interval '1 minute'
    for update skip locked);
  select array_agg(e.allotment_id) into ids from (
    select a.allotment_id from gateway.credits_allotments a
    where a.ended_at is null and a.lease_until < gateway.credits_clock() - interval '40 seconds'
    order by a.lease_until limit size) e;
  if ids is null then return; end if;
  return query select l.allotment_id, l.freed
    from gateway.credits_lower(ids, null, array_fill(0::bigint, array[cardinality(ids)]), array_fill(true, array[cardinality(ids)]), null, null) l;
end
$$;

-- Sets the flags of these allotments; their gateways read them. Returns how many are open.
create or replace function gateway.credits_flag(allotment_ids text[], closes boolean) returns integer language plpgsql as $$
declare
  flagged integer;
begin
  perform 1 from gateway.credits_allotments a where a.allotment_id = any ($1) order by a.allotment_id for update;
  update gateway.credits_allotments a set is_recalled = true, recall = a.recall + 1, is_closed = a.is_closed or closes
  where a.allotment_id = any ($1) and a.ended_at is null;
  get diagnostics flagged = row_count;
  return flagged;
end
$$;

-- Opens (version 0) or enlarges an allotment by at least `need` and at most `want`: all or nothing. The outcomes are those
-- of AllotResult in allotments/store.ts; `available` is what is left afterwards. What a grant leaves
-- idle is recalled at once while other requesters of the account wait.
drop function gateway.credits_allot(text, integer, text, uuid, text, text, text, bigint, bigint, double precision, text);
create function gateway.credits_allot(of_allotment text, expected integer, of_gateway text, of_generation uuid, of_account text,
  of_bureau text, of_token text, need bigint, want bigint, lease_seconds double precision, of_ticket text)
returns table (outcome text, version integer, amount bigint, charged bigint, recall bigint, is_recalled boolean, is_closed boolean,
  available bigint, idle_elsewhere bigint) language plpgsql as $$
#variable_conflict use_column
declare
  allotment gateway.credits_allotments;
  found_row boolean;
  free record;
  added bigint := 0;
begin
  if not exists (select 1 from gateway.credits_ledger l where l.generation = of_generation) then
    return query select 'gone', null::integer, null::bigint, null::bigint, null::bigint, null::boolean, null::boolean, 0::bigint, 0::bigint;
    return;
  end if;
  perform gateway.credits_lock_all(array[of_account], array[of_bureau]);
  select * into allotment from gateway.credits_allotments a where a.allotment_id = of_allotment for update;
  found_row := found;
  select * into free from gateway.credits_reach(of_gateway, of_account, of_token, of_ticket);

  if found_row then
    outcome := case
      when allotment.ended_at is not null or (allotment.gateway_id, allotment.account_id, allotment.token_id)
        <> (of_gateway, of_account, of_token) then 'gone'
      when allotment.version <> expected then 'stale'
      when allotment.is_closed then 'closed'
      when free.grantable < need then 'short'
      else 'granted' end;
  else
    outcome := case when expected <> 0 then 'gone' when free.grantable < need then 'short' else 'granted' end;
  end if;

  if outcome = 'granted' then
    added := greatest(need, least(want, free.grantable));
    update gateway.credits_accounts a set held = a.held + added where a.account_id = of_account;
    update gateway.credits_keys k set held = k.held + added where k.token_id = of_token;
    insert into gateway.credits_allotments as a (allotment_id, gateway_id, account_id, bureau_id, token_id, amount, is_recalled,
      lease_until, reported_at, created_at)
    select of_allotment, of_gateway, of_account, of_bureau, of_token, added,
      exists (
        select 1 from gateway.credits_recalls r
        where r.account_id = of_account and (r.gateway_id, r.token_id) <> (of_gateway, of_token)
          and r.created_at > gateway.credits_clock() - interval '1 second'),
      gateway.credits_clock() + make_interval(secs => lease_seconds), gateway.credits_clock(), gateway.credits_clock()
    on conflict (allotment_id) do update
      set amount = a.amount + excluded.amount, version = a.version + 1, lease_until = excluded.lease_until,
        is_recalled = a.is_recalled or excluded.is_recalled
    returning * into allotment;
    delete from gateway.credits_recalls r
    where r.account_id = of_account and r.gateway_id = of_gateway and r.token_id = of_token;
  end if;
  if (found_row or outcome = 'granted') and outcome <> 'gone' then
    version := allotment.version; amount := allotment.amount; charged := allotment.charged; recall := allotment.recall;
    is_recalled := allotment.is_recalled; is_closed := allotment.is_closed;
  end if;
  available := free.available - added;
  idle_elsewhere := free.reach - free.available;
  return next;
end
$$;

-- After a restore: another history, without the allotments of the one before.
create function gateway.credits_begin_generation() returns void language plpgsql as $$
declare
  ids text[];
  versions integer[];
begin
  update gateway.credits_ledger set generation = gen_random_uuid();
  delete from gateway.credits_recalls;
  loop
    select array_agg(o.allotment_id), array_agg(o.version) into ids, versions from (
      select a.allotment_id, a.version from gateway.credits_allotments a where a.ended_at is null order by a.allotment_id limit 500) o;
    exit when ids is null;
    perform gateway.credits_lower(ids, versions, array_fill(0::bigint, array[cardinality(ids)]),
      array_fill(true, array[cardinality(ids)]), null, null);
  end loop;
end
$$;
