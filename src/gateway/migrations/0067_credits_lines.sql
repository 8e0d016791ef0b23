-- Renewals that cover a whole gateway, batches of charges with less to parse and to scan, and rules that the simulation found
-- missing.

-- A renewal covers all open allotments of its gateway and answers with them, also those that the process does not know:
-- opened by a request whose answer was lost.
create index credits_allotments_gateway on gateway.credits_allotments (gateway_id) where ended_at is null;

drop function gateway.credits_renew(text, text[], bigint[], bigint[], double precision);
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

-- What of an allotment is not applied: as reported, [reserved, unapplied], else as before, and within the amount.
create function gateway.credits_reported_unapplied(report jsonb, amount bigint, before bigint) returns bigint language sql immutable as $$
  select least(coalesce((report ->> 1)::bigint, before), amount)
$$;

-- A finished call as the gateway sends it: counts are whole and within bounds, `user_id` is null for a call without a price.
-- `covered` is what its holder took from the allotment for it, null for all: more would be another call's reservation.
create type gateway.credits_line as (
  seq bigint, usage_id text, allotment_id text, credits bigint, covered bigint,
  request_id text, user_id text, bureau_id text, token_id text, action text, model text, provider text, reason text,
  input_tokens bigint, cached_input_tokens bigint, cache_write_tokens bigint, output_tokens bigint, reasoning_tokens bigint,
  units jsonb, outcome text, estimated boolean, ttft_ms bigint, duration_ms bigint
);

drop function gateway.credits_apply_charges(text, uuid, bigint, bigint, jsonb, jsonb);
drop function gateway.credits_write_charges(text, bigint[], text[], jsonb[], jsonb[], bigint[], bigint[]);
drop function gateway.credits_lower_charged(text[], bigint[], jsonb);

-- Lowers allotments by the charges that they covered, {<allotment id>: credits}, and stores what their holder counts now.
create function gateway.credits_lower_charged(named_ids text[], covers jsonb, reports jsonb) returns void language sql as $$
  update gateway.credits_allotments a
  set amount = n.rest, unapplied = n.unapplied, reserved = least(coalesce((reports -> a.allotment_id ->> 0)::bigint, a.reserved), n.rest - n.unapplied),
    reported_at = case when reports ? a.allotment_id then gateway.credits_clock() else a.reported_at end
  from (
    select c.allotment_id, c.rest,
      gateway.credits_reported_unapplied(reports -> c.allotment_id, c.rest, greatest(c.unapplied - c.cover, 0)) as unapplied
    from (
      select b.allotment_id, b.unapplied, d.cover, b.amount - d.cover as rest
      from gateway.credits_allotments b, lateral (select coalesce((covers ->> b.allotment_id)::bigint, 0) as cover) d
      where b.allotment_id = any (named_ids) and b.ended_at is null) c) n
  where a.allotment_id = n.allotment_id
$$;

-- Writes one transaction per account, and answers with the transaction of each line; null for one without a price.
create function gateway.credits_write_charges(of_journal text, seqs bigint[], account_ids text[], reasons text[],
  prices bigint[], charged bigint[]) returns bigint[] language sql
-- It joins lists only, whose sizes the planner does not know.
set enable_nestloop = off as $$
  with batch as materialized (
    select w.account_id, of_journal || ':' || min(w.seq) || '-' || max(w.seq) as ref,
      case when count(*) > 1 then count(*) || ' calls' else min(w.reason) end as reason,
      sum(w.price)::bigint as price, sum(w.charged)::bigint as charged
    from unnest($2, $3, $4, $5, $6) as w (seq, account_id, reason, price, charged)
    where w.price > 0 group by w.account_id),
  made as (
    insert into gateway.credits_txs (kind, ref, account_id, reason)
    select 'charge', b.ref, b.account_id, b.reason from batch b order by b.account_id
    returning tx_id, account_id),
  entries as (
    insert into gateway.credits_entries (tx_id, account_id, amount)
    select made.tx_id, e.account, e.amount
    from batch b join made using (account_id),
      lateral (values (b.account_id, -b.charged), ('house:usage', b.price), ('house:overrun', b.charged - b.price)) as e (account, amount)
    where e.amount <> 0)
  select array_agg(made.tx_id order by w.place)
  from unnest($3, $5) with ordinality as w (account_id, price, place) left join made on made.account_id = w.account_id and w.price > 0
$$;

create function gateway.usage_add_lines(lines gateway.credits_line[], charged bigint[], tx_ids bigint[]) returns void language sql as $$
  insert into gateway.usage_records (usage_id, request_id, user_id, bureau_id, token_id, action, model, provider,
    input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens, units, credits, outcome,
    estimated, ttft_ms, duration_ms, tx_id)
  select l.usage_id, l.request_id, l.user_id, l.bureau_id, l.token_id, l.action, l.model, l.provider,
    l.input_tokens, l.cached_input_tokens, l.cache_write_tokens, l.output_tokens, l.reasoning_tokens, l.units, charged[l.ordinality], l.outcome,
    l.estimated, l.ttft_ms, l.duration_ms, tx_ids[l.ordinality]
  from unnest(lines) with ordinality l
  on conflict do nothing
$$;

-- Applies the lines above the journal's applied_seq. `charges` is an array of credits_line by ascending seq, `reports` as for a
-- renewal. The outcomes are those of ApplyResult in allotments/store.ts; the arrays are null
-- unless it was applied.
create function gateway.credits_apply_charges(of_journal text, of_generation uuid, expected bigint, upto bigint, charges json, reports jsonb)
returns table (outcome text, applied_seq bigint, charged bigint[], overruns bigint[], lates boolean[], allotments jsonb) language plpgsql as $$
#variable_conflict use_column
declare
  journal gateway.credits_journals;
  lines gateway.credits_line[];
  seqs bigint[];
  account_ids text[];
  token_ids text[];
  allotment_ids text[];
  named_ids text[];
  reasons text[];
  prices bigint[];
  covers bigint[];
  rests bigint[];
  extras bigint[];
  tx_ids bigint[];
begin
  update gateway.credits_journals j set applied_seq = upto, applied_at = gateway.credits_clock()
  where j.journal_id = of_journal and j.generation = of_generation and j.applied_seq = expected and upto > expected
    and exists (select 1 from gateway.credits_ledger l where l.generation = of_generation);
  if found then
    outcome := 'applied';
    applied_seq := upto;
  else
    select * into journal from gateway.credits_journals j where j.journal_id = of_journal;
    outcome := case
      when not exists (select 1 from gateway.credits_ledger l where l.generation = of_generation)
        or journal.generation <> of_generation then 'other_generation'
      when journal.applied_seq >= upto then 'repeated'
      else 'mismatch' end;
    applied_seq := coalesce(journal.applied_seq, 0);
  end if;

  lines := array(select l from json_populate_recordset(null::gateway.credits_line, charges) l order by l.seq);
  select array_agg(l.seq order by l.seq), array_agg(l.user_id order by l.seq), array_agg(l.token_id order by l.seq),
    array_agg(l.allotment_id order by l.seq), array_agg(concat_ws(' · ', l.action, coalesce(l.reason, l.model)) order by l.seq)
  into seqs, account_ids, token_ids, allotment_ids, reasons
  from unnest(lines) l;
  named_ids := array(
    select distinct n.id from unnest(allotment_ids || array(select jsonb_object_keys(reports))) as n (id)
    where n.id is not null order by 1);
  if outcome <> 'applied' then
    allotments := gateway.credits_allotment_rows(named_ids);
    return next;
    return;
  end if;

  if seqs is not null then
    perform gateway.credits_lock_all(array_agg(o.user_id), array_agg(o.bureau_id))
    from (select distinct l.user_id, l.bureau_id from unnest(lines) l where l.user_id is not null) o;
  end if;
  perform 1 from gateway.credits_allotments a where a.allotment_id = any (named_ids) order by a.allotment_id for update;

  if seqs is not null then
    -- A line whose usage id is recorded already, or comes twice, costs nothing. An allotment covers its lines in their
    -- order, until it is empty.
    select array_agg(p.price order by p.place),
      array_agg(p.user_id is not null and p.allotment_id is not null and p.amount is null order by p.place),
      array_agg(least(p.total, coalesce(p.amount, 0)) - least(p.total - least(p.price, p.covered), coalesce(p.amount, 0)) order by p.place)
    into prices, lates, covers
    from (
      select n.*, a.amount,
        (sum(least(n.price, n.covered)) over (partition by n.allotment_id, n.user_id order by n.place))::bigint as total
      from (
        select l.ordinality as place, l.user_id, l.allotment_id, greatest(coalesce(l.covered, l.credits), 0) as covered,
          case when l.user_id is null or u.usage_id is not null
            or row_number() over (partition by l.usage_id order by l.ordinality) > 1 then 0 else l.credits end as price
        from unnest(lines) with ordinality l left join gateway.usage_records u on u.usage_id = l.usage_id) n
        left join gateway.credits_allotments a
          on a.allotment_id = n.allotment_id and a.account_id = n.user_id and a.ended_at is null) p;
    rests := array(select w.price - w.cover from unnest(prices, covers) with ordinality as w (price, cover, place) order by w.place);
    extras := gateway.credits_extras(account_ids, token_ids, rests);
    charged := array(select w.cover + w.extra from unnest(covers, extras) with ordinality as w (cover, extra, place) order by w.place);
    overruns := array(select w.rest - w.extra from unnest(rests, extras) with ordinality as w (rest, extra, place) order by w.place);

    update gateway.credits_accounts a set posted = a.posted - s.charged, held = a.held - s.cover
    from (select w.id, sum(w.charged)::bigint as charged, sum(w.cover)::bigint as cover
      from unnest(account_ids, charged, covers) as w (id, charged, cover) where w.charged > 0 group by w.id) s
    where a.account_id = s.id;
    update gateway.credits_keys k set spent = k.spent + s.charged, held = k.held - s.cover
    from (select w.id, sum(w.charged)::bigint as charged, sum(w.cover)::bigint as cover
      from unnest(token_ids, charged, covers) as w (id, charged, cover) where w.charged > 0 group by w.id) s
    where k.token_id = s.id;
    tx_ids := gateway.credits_write_charges(of_journal, seqs, account_ids, reasons, prices, charged);
    perform gateway.usage_add_lines(lines, charged, tx_ids);
  end if;
  perform gateway.credits_lower_charged(named_ids, coalesce(jsonb_object_agg(w.id, w.cover), '{}'), reports)
  from (select c.id, sum(c.cover) as cover from unnest(allotment_ids, covers) as c (id, cover) where c.id is not null group by c.id) w;
  allotments := gateway.credits_allotment_rows(named_ids);
  return next;
end
$$;

-- When the server of this database started.
create function gateway.credits_server_start() returns timestamptz language sql stable as $$ select pg_postmaster_start_time() $$;

-- As before, by a database that has been up for 60 s: until then its holders may not have reached it, or its clock be another.
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
    from gateway.credits_lower(ids, null, array_fill(0::bigint, array[cardinality(ids)]), array_fill(true, array[cardinality(ids)])) l;
end
$$;

-- As before, and what a grant leaves idle is recalled at once while other requesters of the account wait.
create or replace function gateway.credits_allot(of_allotment text, expected integer, of_gateway text, of_generation uuid, of_account text,
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
