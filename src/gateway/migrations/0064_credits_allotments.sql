-- Allotments: credits that the database has set aside for one token in one gateway process, which reserves and charges them
-- in memory. An allotment's amount is part of `held` of its account and key. Every function here is one transaction and
-- locks accounts, then keys (by their account's lock), then allotments, each in the order of the ids.

-- The ledger's identity: new at creation and at a restore, so that charges of another history are not applied to this one.
create table gateway.credits_ledger (
  is_single boolean primary key default true check (is_single),
  generation uuid not null default gen_random_uuid()
);
insert into gateway.credits_ledger default values;

create table gateway.credits_allotments (
  allotment_id text primary key,
  -- Grows with each enlargement and each giving back, which name the version they expect.
  version integer not null default 1 check (version > 0),
  gateway_id text not null,
  account_id text not null,
  bureau_id text not null,
  token_id text not null,
  amount bigint not null check (amount >= 0),
  -- As the holder counted at `reported_at`; idle is the rest of the amount.
  reserved bigint not null default 0 check (reserved >= 0),
  unapplied bigint not null default 0 check (unapplied >= 0),
  -- Another gateway needs credits: the holder gives back the idle part.
  is_recalled boolean not null default false,
  -- The holder reserves nothing more from it.
  is_closed boolean not null default false,
  lease_until timestamptz not null,
  reported_at timestamptz not null,
  created_at timestamptz not null,
  -- The row stays for its retention, so that the id cannot begin again.
  ended_at timestamptz,
  constraint credits_allotment_covers_reports check (reserved + unapplied <= amount),
  constraint credits_ended_allotment_is_empty check (ended_at is null or amount = 0)
) with (fillfactor = 50);
create index credits_allotments_account on gateway.credits_allotments (account_id) where ended_at is null;
-- Read each second by each gateway; renewals do not change it.
create index credits_allotments_recalled on gateway.credits_allotments (gateway_id)
  where ended_at is null and (is_recalled or is_closed);
create index credits_allotments_ended on gateway.credits_allotments (ended_at) where ended_at is not null;
create index credits_allotments_gateway on gateway.credits_allotments (gateway_id) where ended_at is null;

-- A gateway that waits for credits of others. `need` has precedence for a second over later requests of the account.
create table gateway.credits_recalls (
  ticket text primary key,
  gateway_id text not null,
  account_id text not null,
  token_id text not null,
  need bigint not null check (need >= 0),
  -- Only the key's cap lacks: allotments of other tokens were not recalled.
  is_key_only boolean not null,
  created_at timestamptz not null
);
create index credits_recalls_account on gateway.credits_recalls (account_id, created_at);

-- One row per gateway process, for good: a line of its journal up to applied_seq is not applied again.
create table gateway.credits_journals (
  journal_id text primary key,
  generation uuid not null,
  applied_seq bigint not null default 0 check (applied_seq >= 0),
  created_at timestamptz not null default gateway.townhall_now(),
  applied_at timestamptz
) with (fillfactor = 50);

-- The transaction that charged the call, together with others of its account and batch. Null for a call with a hold.
alter table gateway.usage_records add column tx_id bigint;
create index usage_records_tx on gateway.usage_records (tx_id, usage_id) where tx_id is not null;

-- Time goes on while a statement waits for a lock, other than in townhall_now().
create function gateway.credits_clock() returns timestamptz language sql volatile as $$
  select clock_timestamp() + coalesce(nullif(current_setting('townhall.clock_shift', true), ''), '0')::interval
$$;

-- Locks these accounts, in the order of their ids; one that is missing is created.
create function gateway.credits_lock_all(account_ids text[], bureau_ids text[]) returns void language plpgsql as $$
begin
  insert into gateway.credits_accounts (account_id, bureau_id)
  select distinct on (w.account_id) w.account_id, coalesce(w.bureau_id, '') from unnest($1, $2) as w (account_id, bureau_id)
  where w.account_id is not null and not exists (select 1 from gateway.credits_accounts a where a.account_id = w.account_id)
  order by w.account_id
  on conflict do nothing;
  perform 1 from gateway.credits_accounts a where a.account_id = any ($1) order by a.account_id for update;
end
$$;

-- What account and key have left, what of it is promised to older tickets, and what allotments of other gateways could
-- add. `available` and `reach` are the lesser of account and key.
create function gateway.credits_reach(of_gateway text, of_account text, of_token text, of_ticket text)
returns table (available bigint, grantable bigint, reach bigint) language plpgsql as $$
#variable_conflict use_column
declare
  own gateway.credits_recalls;
  account_free bigint;
  key_free bigint;
  account_promised bigint;
  key_promised bigint;
  account_elsewhere bigint;
  key_elsewhere bigint;
begin
  select * into own from gateway.credits_recalls r where r.ticket = of_ticket and r.account_id = of_account;
  select a.posted - a.held into account_free from gateway.credits_accounts a where a.account_id = of_account;
  account_free := coalesce(account_free, 0);
  select k.cap - k.spent - k.held into key_free from gateway.credits_keys k where k.token_id = of_token;
  select coalesce(sum(r.need), 0), coalesce(sum(r.need) filter (where r.token_id = of_token), 0)
  into account_promised, key_promised
  from gateway.credits_recalls r
  where r.account_id = of_account and (r.gateway_id, r.token_id) <> (of_gateway, of_token)
    and r.created_at > gateway.credits_clock() - interval '1 second'
    and (own.ticket is null or (r.created_at, r.ticket) < (own.created_at, own.ticket));
  select coalesce(sum(a.amount), 0), coalesce(sum(a.amount) filter (where a.token_id = of_token), 0)
  into account_elsewhere, key_elsewhere
  from gateway.credits_allotments a
  where a.account_id = of_account and a.ended_at is null and a.gateway_id <> of_gateway
    and (own.ticket is null or a.is_recalled or (own.is_key_only and a.token_id <> of_token));
  available := least(account_free, key_free);
  grantable := least(account_free - account_promised, key_free - key_promised);
  reach := least(account_free + account_elsewhere, key_free + key_elsewhere);
  return next;
end
$$;

-- Opens (version 0) or enlarges an allotment by at least `need` and at most `want`: all or nothing. The outcomes are those
-- of AllotResult in allotments/store.ts; `available` is what is left afterwards. What a grant leaves
-- idle is recalled at once while other requesters of the account wait.
create function gateway.credits_allot(of_allotment text, expected integer, of_gateway text, of_generation uuid, of_account text,
  of_bureau text, of_token text, need bigint, want bigint, lease_seconds double precision, of_ticket text)
returns table (outcome text, version integer, amount bigint, is_recalled boolean, is_closed boolean, available bigint,
  idle_elsewhere bigint) language plpgsql as $$
#variable_conflict use_column
declare
  allotment gateway.credits_allotments;
  found_row boolean;
  free record;
  added bigint := 0;
begin
  if not exists (select 1 from gateway.credits_ledger l where l.generation = of_generation) then
    return query select 'gone', null::integer, null::bigint, null::boolean, null::boolean, 0::bigint, 0::bigint;
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
    version := allotment.version; amount := allotment.amount;
    is_recalled := allotment.is_recalled; is_closed := allotment.is_closed;
  end if;
  available := free.available - added;
  idle_elsewhere := free.reach - free.available;
  return next;
end
$$;

-- Lowers allotments to the named amounts, or ends them; what comes free pays its account's debt first. Only with the named
-- version, or, without versions, only when the lease ended 40 s ago.
create function gateway.credits_lower(allotment_ids text[], versions integer[], amounts bigint[], ends boolean[])
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

  with wanted as (
    select w.id, w.expected, w.ends, case when w.ends then 0 else greatest(w.amount, 0) end as amount
    from unnest(allotment_ids, versions, amounts, ends) as w (id, expected, amount, ends)),
  target as (
    select w.*, a.amount as before, least(a.amount, w.amount) as rest
    from wanted w join gateway.credits_allotments a on a.allotment_id = w.id
    where a.ended_at is null and case when versions is null
      then a.lease_until < gateway.credits_clock() - interval '40 seconds' else a.version = w.expected end),
  lowered as (
    update gateway.credits_allotments a
    set amount = t.rest, version = a.version + 1, is_recalled = false, unapplied = least(a.unapplied, t.rest),
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

  -- Also after an answer that gives nothing back: who waits learns from it that there is no more.
  perform pg_notify('townhall_credits', 'ready:' || r.gateway_id)
  from (select distinct r.gateway_id from gateway.credits_recalls r
    where lowered_ids is not null and r.account_id = any (account_ids)
      and r.created_at > gateway.credits_clock() - interval '1 minute') r;
  return query select l.id, l.freed from unnest(lowered_ids, lowered_freed) as l (id, freed);
end
$$;

-- Answers in the order of the requests; without a row where the allotment is not open.
create function gateway.credits_give_back(allotment_ids text[], versions integer[], amounts bigint[], ends boolean[])
returns table (place bigint, allotment_id text, version integer, amount bigint, is_recalled boolean, is_closed boolean)
language plpgsql as $$
#variable_conflict use_column
begin
  perform gateway.credits_lower(allotment_ids, versions, amounts, ends);
  return query
    select w.place, a.allotment_id, a.version, a.amount, a.is_recalled, a.is_closed
    from unnest(allotment_ids) with ordinality as w (id, place)
      join gateway.credits_allotments a on a.allotment_id = w.id and a.ended_at is null;
end
$$;

-- When the server of this database started.
create function gateway.credits_server_start() returns timestamptz language sql stable as $$ select pg_postmaster_start_time() $$;

-- Ends allotments whose holder has not renewed them: 20 s of lease and 40 s more. Forgets old tickets. Only in a database
-- that has been up for 60 s: until then its holders may not have reached it, or its clock may be another.
create function gateway.credits_take_back_expired(size integer) returns table (allotment_id text, amount bigint)
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
    from gateway.credits_lower(ids, null, array_fill(0::bigint, array[cardinality(ids)]), array_fill(true, array[cardinality(ids)])) l;
end
$$;

-- What of an allotment is not applied: as reported, [reserved, unapplied], else as before, and within the amount.
create function gateway.credits_reported_unapplied(report jsonb, amount bigint, before bigint) returns bigint language sql immutable as $$
  select least(coalesce((report ->> 1)::bigint, before), amount)
$$;

-- A renewal covers all open allotments of its gateway and answers with them, also those that the process does not know:
-- opened by a request whose answer was lost.
-- `reports` is {<allotment id>: [reserved, unapplied]}. A lookup per row instead of a join, which a generic plan would make a
-- nested loop over 10,000 rows on both sides.
create function gateway.credits_renew(of_gateway text, reports jsonb, lease_seconds double precision)
returns table (allotment_id text, version integer, amount bigint, is_recalled boolean, is_closed boolean)
language plpgsql as $$
#variable_conflict use_column
begin
  perform 1 from gateway.credits_allotments a where a.gateway_id = of_gateway and a.ended_at is null
  order by a.allotment_id for update;
  return query
    update gateway.credits_allotments a
    set lease_until = gateway.credits_clock() + make_interval(secs => lease_seconds),
      reported_at = case when reports ? a.allotment_id then gateway.credits_clock() else a.reported_at end,
      unapplied = gateway.credits_reported_unapplied(reports -> a.allotment_id, a.amount, a.unapplied),
      reserved = least(coalesce((reports -> a.allotment_id ->> 0)::bigint, a.reserved),
        a.amount - gateway.credits_reported_unapplied(reports -> a.allotment_id, a.amount, a.unapplied))
    where a.gateway_id = of_gateway and a.ended_at is null
    returning a.allotment_id, a.version, a.amount, a.is_recalled, a.is_closed;
end
$$;

-- Flags what other gateways hold of the account (of the key alone, while the account has enough) and notifies them. Under the
-- account's lock, so that an allotment that opens meanwhile is either flagged or comes after the ticket.
create function gateway.credits_recall(of_ticket text, of_gateway text, of_account text, of_token text, needed bigint)
returns void language plpgsql as $$
declare
  account gateway.credits_accounts;
  is_key_only boolean;
begin
  select * into account from gateway.credits_accounts a where a.account_id = of_account for update;
  if not found then return; end if;
  is_key_only := account.posted - account.held >= needed;
  delete from gateway.credits_recalls r
  where r.account_id = of_account and r.created_at <= gateway.credits_clock() - interval '1 minute';
  insert into gateway.credits_recalls (ticket, gateway_id, account_id, token_id, need, is_key_only, created_at)
  values (of_ticket, of_gateway, of_account, of_token, needed, is_key_only, gateway.credits_clock()) on conflict do nothing;
  if not found then return; end if;
  perform gateway.credits_flag(array(
    select a.allotment_id from gateway.credits_allotments a
    where a.account_id = of_account and a.ended_at is null and a.gateway_id <> of_gateway and a.amount > 0
      and (not is_key_only or a.token_id = of_token)), false);
end
$$;

-- Sets the flags of these allotments and notifies their gateways. Returns how many are open.
create function gateway.credits_flag(allotment_ids text[], closes boolean) returns integer language plpgsql as $$
declare
  gateways text[];
begin
  perform 1 from gateway.credits_allotments a where a.allotment_id = any ($1) order by a.allotment_id for update;
  with flagged as (
    update gateway.credits_allotments a set is_recalled = true, is_closed = a.is_closed or closes
    where a.allotment_id = any ($1) and a.ended_at is null returning a.gateway_id)
  select array_agg(f.gateway_id) into gateways from flagged f;
  perform pg_notify('townhall_credits', 'recall:' || g.id) from (select distinct id from unnest(gateways) as g (id)) g;
  return coalesce(cardinality(gateways), 0);
end
$$;

-- Closes the open allotments of a user, a token or a Bureau; the other two are null.
create function gateway.credits_close(of_account text, of_token text, of_bureau text) returns integer language plpgsql as $$
begin
  perform 1 from gateway.credits_accounts a where a.account_id in (
    select b.account_id from gateway.credits_allotments b
    where b.ended_at is null and (b.account_id = of_account or b.token_id = of_token or b.bureau_id = of_bureau))
  order by a.account_id for update;
  return gateway.credits_flag(array(
    select b.allotment_id from gateway.credits_allotments b
    where b.ended_at is null and (b.account_id = of_account or b.token_id = of_token or b.bureau_id = of_bureau)), true);
end
$$;

-- As before, and a debt closes the account's allotments: what their holders give back pays it.
create or replace function gateway.credits_take_back(of_user text, of_kind text, of_ref text, wanted bigint, because text, partly boolean)
returns table (taken bigint, owed bigint, lacking bigint) language plpgsql as $$
declare
  account gateway.credits_accounts := gateway.credits_lock(of_user);
  free bigint := account.posted - account.held;
  known bigint;
begin
  if account.account_id is null then return; end if;
  select t.tx_id into known from gateway.credits_txs t where t.kind = of_kind and t.ref = of_ref;
  if found then
    return query select
      coalesce(-(select e.amount from gateway.credits_entries e where e.tx_id = known and e.account_id = of_user), 0),
      coalesce(-(select e.amount from gateway.credits_entries e where e.tx_id = known and e.account_id = 'receivable:' || of_user), 0),
      0::bigint;
    return;
  end if;
  if not partly and free < wanted then
    return query select 0::bigint, 0::bigint, wanted - free;
    return;
  end if;
  free := least(free, wanted);
  perform gateway.credits_write(of_kind, of_ref, of_user, because,
    array[gateway.credits_house(of_kind), of_user, 'receivable:' || of_user], array[wanted, -free, free - wanted]);
  update gateway.credits_accounts a set posted = a.posted - free, owed = a.owed + wanted - free where a.account_id = of_user;
  if free < wanted then perform gateway.credits_close(of_user, null, null); end if;
  return query select free, wanted - free, 0::bigint;
end
$$;
