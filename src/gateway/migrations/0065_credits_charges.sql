-- Charges of a gateway's journal: each line once, by the journal's number, in batches of up to 500.

-- As before, with the transaction that charged each record.
create function gateway.usage_add_charges(usage_ids text[], calls jsonb[], facts jsonb[], credits bigint[], tx_ids bigint[])
returns void language plpgsql as $$
begin
  insert into gateway.usage_records (usage_id, request_id, user_id, bureau_id, token_id, action, model, provider,
    input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens, units, credits, outcome,
    estimated, ttft_ms, duration_ms, tx_id)
  select g.id, c.request_id, c.user_id, c.bureau_id, c.token_id, coalesce(f.action, c.action), coalesce(f.model, c.model), coalesce(f.provider, c.provider),
    gateway.usage_count(f.tokens -> 'input'), gateway.usage_count(f.tokens -> 'cachedInput'), gateway.usage_count(f.tokens -> 'cacheWrite'),
    gateway.usage_count(f.tokens -> 'output'), gateway.usage_count(f.tokens -> 'reasoning'), coalesce(nullif(f.units, 'null'), '{}'),
    g.charged, coalesce(f.outcome, 'upstream_failed'), coalesce(f.estimated, true),
    case when jsonb_typeof(f."ttftMs") = 'number' then gateway.usage_count(f."ttftMs") end, gateway.usage_count(f."durationMs"), g.tx_id
  from unnest($1, $2, $3, $4, $5) as g (id, call, facts, charged, tx_id),
    lateral jsonb_to_record(g.call) as c (request_id text, user_id text, bureau_id text, token_id text, action text, model text, provider text),
    lateral jsonb_to_record(g.facts) as f (action text, model text, provider text, tokens jsonb, units jsonb, outcome text,
      estimated boolean, "ttftMs" jsonb, "durationMs" jsonb)
  on conflict do nothing;
end
$$;

create or replace function gateway.usage_add_all(usage_ids text[], calls jsonb[], facts jsonb[], credits bigint[])
returns void language sql as $$
  select gateway.usage_add_charges($1, $2, $3, $4, '{}')
$$;

-- What a charge beyond its allotment may take, line by line in the order of accounts and seq: what account and key have
-- left. The arrays are the lines of one batch; `rests` is what their allotments do not cover.
create function gateway.credits_extras(account_ids text[], token_ids text[], rests bigint[]) returns bigint[] language plpgsql as $$
declare
  extras bigint[] := array_fill(0::bigint, array[cardinality(rests)]);
  line record;
  account text;
  account_free bigint;
  keys text[] := '{}';
  keys_free bigint[] := '{}';
  place integer;
  extra bigint;
begin
  for line in
    select w.* from unnest(account_ids, token_ids, rests) with ordinality as w (account_id, token_id, rest, n)
    where w.rest > 0 order by w.account_id, w.n
  loop
    if account is distinct from line.account_id then
      account := line.account_id;
      select a.posted - a.held into account_free from gateway.credits_accounts a where a.account_id = account;
    end if;
    place := array_position(keys, line.token_id);
    if place is null then
      keys := keys || line.token_id;
      keys_free := keys_free || (select k.cap - k.spent - k.held from gateway.credits_keys k where k.token_id = line.token_id);
      place := cardinality(keys);
    end if;
    extra := least(line.rest, account_free, keys_free[place]);
    extras[line.n] := extra;
    account_free := account_free - extra;
    keys_free[place] := keys_free[place] - extra;
  end loop;
  return extras;
end
$$;

-- Lowers allotments by the charges that they covered and stores what their holder counts now.
create function gateway.credits_lower_charged(allotment_ids text[], covers bigint[], reports jsonb) returns void language sql as $$
  update gateway.credits_allotments a
  set amount = n.rest, unapplied = n.unapplied, reserved = least(n.reserved, n.rest - n.unapplied),
    reported_at = case when n.is_reported then gateway.credits_clock() else a.reported_at end
  from (
    select b.allotment_id, b.amount - coalesce(c.cover, 0) as rest, r.allotment_id is not null as is_reported,
      least(coalesce(r.unapplied, greatest(b.unapplied - c.cover, 0)), b.amount - coalesce(c.cover, 0)) as unapplied,
      coalesce(r.reserved, b.reserved) as reserved
    from (select w.id, sum(w.cover)::bigint as cover from unnest($1, $2) as w (id, cover) group by w.id) c
      full join jsonb_to_recordset($3) as r (allotment_id text, reserved bigint, unapplied bigint) on r.allotment_id = c.id
      join gateway.credits_allotments b on b.allotment_id = coalesce(c.id, r.allotment_id) and b.ended_at is null) n
  where a.allotment_id = n.allotment_id
$$;

-- Writes one transaction per account, and answers with the transaction of each line; null for one without a price.
create function gateway.credits_write_charges(of_journal text, seqs bigint[], account_ids text[], calls jsonb[], facts jsonb[],
  prices bigint[], charged bigint[]) returns bigint[] language sql as $$
  with batch as materialized (
    select w.account_id, of_journal || ':' || min(w.seq) || '-' || max(w.seq) as ref,
      case when count(*) > 1 then count(*) || ' calls' else
        min(concat_ws(' · ', coalesce(w.facts ->> 'action', w.call ->> 'action'),
          coalesce(nullif(w.facts ->> 'reason', ''), w.facts ->> 'model', w.call ->> 'model'))) end as reason,
      sum(w.price)::bigint as price, sum(w.charged)::bigint as charged
    from unnest($2, $3, $4, $5, $6, $7) as w (seq, account_id, call, facts, price, charged)
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
  from unnest($3, $6) with ordinality as w (account_id, price, place) left join made on made.account_id = w.account_id and w.price > 0
$$;

-- Open allotments as an AllotmentRow has them.
create function gateway.credits_allotment_rows(allotment_ids text[]) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(jsonb_build_object('allotmentId', a.allotment_id, 'version', a.version, 'amount', a.amount::text,
    'isRecalled', a.is_recalled, 'isClosed', a.is_closed)), '[]')
  from gateway.credits_allotments a where a.allotment_id = any ($1) and a.ended_at is null
$$;

-- Applies the lines above the journal's applied_seq. `charges` is an array of {seq, usage_id, allotment_id, credits, call,
-- facts} by ascending seq, `reports` one of {allotment_id, reserved, unapplied}. The outcomes are those of ApplyResult in
-- allotments/store.ts; the arrays are null unless it was applied.
create function gateway.credits_apply_charges(of_journal text, of_generation uuid, expected bigint, upto bigint, charges jsonb, reports jsonb)
returns table (outcome text, applied_seq bigint, charged bigint[], overruns bigint[], lates boolean[], allotments jsonb) language plpgsql as $$
#variable_conflict use_column
declare
  journal gateway.credits_journals;
  seqs bigint[];
  usage_ids text[];
  calls jsonb[];
  facts jsonb[];
  account_ids text[];
  bureau_ids text[];
  token_ids text[];
  allotment_ids text[];
  prices bigint[];
  covers bigint[];
  rests bigint[];
  extras bigint[];
  tx_ids bigint[];
  named_ids text[] := array(
    select c ->> 'allotment_id' from jsonb_array_elements(charges || reports) c where c ->> 'allotment_id' is not null);
begin
  update gateway.credits_journals j set applied_seq = upto, applied_at = gateway.credits_clock()
  where j.journal_id = of_journal and j.generation = of_generation and j.applied_seq = expected
    and exists (select 1 from gateway.credits_ledger l where l.generation = of_generation);
  if not found then
    select * into journal from gateway.credits_journals j where j.journal_id = of_journal;
    outcome := case
      when not exists (select 1 from gateway.credits_ledger l where l.generation = of_generation)
        or journal.generation <> of_generation then 'other_generation'
      when journal.applied_seq >= upto then 'repeated'
      else 'mismatch' end;
    applied_seq := coalesce(journal.applied_seq, 0);
    allotments := gateway.credits_allotment_rows(named_ids);
    return next;
    return;
  end if;

  select array_agg(c.seq order by c.seq), array_agg(c.usage_id order by c.seq), array_agg(c.call order by c.seq),
    array_agg(c.facts order by c.seq), array_agg(c.call ->> 'user_id' order by c.seq), array_agg(c.call ->> 'bureau_id' order by c.seq),
    array_agg(c.call ->> 'token_id' order by c.seq), array_agg(c.allotment_id order by c.seq),
    array_agg(case when c.call ->> 'user_id' is null then 0 else c.credits end order by c.seq)
  into seqs, usage_ids, calls, facts, account_ids, bureau_ids, token_ids, allotment_ids, prices
  from jsonb_to_recordset(charges) as c (seq bigint, usage_id text, allotment_id text, credits bigint, call jsonb, facts jsonb);

  perform gateway.credits_lock_all(account_ids, bureau_ids);
  perform 1 from gateway.credits_allotments a where a.allotment_id = any (named_ids) order by a.allotment_id for update;
  if seqs is null then
    perform gateway.credits_lower_charged('{}', '{}', reports);
    outcome := 'applied'; applied_seq := upto; charged := '{}'; overruns := '{}'; lates := '{}';
    allotments := gateway.credits_allotment_rows(named_ids);
    return next;
    return;
  end if;

  -- A line whose usage id is recorded already, or comes twice, costs nothing.
  select array_agg(case when n.is_new then p.price else 0 end order by n.place) into prices
  from (
    select w.place, row_number() over (partition by w.id order by w.place) = 1 and u.usage_id is null as is_new
    from unnest(usage_ids) with ordinality as w (id, place) left join gateway.usage_records u on u.usage_id = w.id) n
    join unnest(prices) with ordinality as p (price, place) using (place);

  -- Each allotment covers its lines in their order, until it is empty.
  select array_agg(l.account_id is not null and l.allotment_id is not null and l.amount is null order by l.place),
    array_agg(least(l.total, coalesce(l.amount, 0)) - least(l.total - l.price, coalesce(l.amount, 0)) order by l.place)
  into lates, covers
  from (
    select w.place, w.price, w.account_id, w.allotment_id, a.amount,
      (sum(w.price) over (partition by w.allotment_id, w.account_id order by w.place))::bigint as total
    from unnest(prices, allotment_ids, account_ids) with ordinality as w (price, allotment_id, account_id, place)
      left join gateway.credits_allotments a
        on a.allotment_id = w.allotment_id and a.account_id = w.account_id and a.ended_at is null) l;
  rests := array(select w.price - w.cover from unnest(prices, covers) with ordinality as w (price, cover, place) order by w.place);
  extras := gateway.credits_extras(account_ids, token_ids, rests);
  charged := array(select w.cover + w.extra from unnest(covers, extras) with ordinality as w (cover, extra, place) order by w.place);
  overruns := array(select w.rest - w.extra from unnest(rests, extras) with ordinality as w (rest, extra, place) order by w.place);

  update gateway.credits_accounts a set posted = a.posted - s.charged, held = a.held - s.cover
  from (select w.id, sum(w.charged)::bigint as charged, sum(w.cover)::bigint as cover from unnest(account_ids, charged, covers) as w (id, charged, cover)
    where w.charged > 0 group by w.id) s
  where a.account_id = s.id;
  update gateway.credits_keys k set spent = k.spent + s.charged, held = k.held - s.cover
  from (select w.id, sum(w.charged)::bigint as charged, sum(w.cover)::bigint as cover from unnest(token_ids, charged, covers) as w (id, charged, cover)
    where w.charged > 0 group by w.id) s
  where k.token_id = s.id;
  perform gateway.credits_lower_charged(allotment_ids, covers, reports);
  tx_ids := gateway.credits_write_charges(of_journal, seqs, account_ids, calls, facts, prices, charged);
  perform gateway.usage_add_charges(usage_ids, calls, facts, charged, tx_ids);
  outcome := 'applied'; applied_seq := upto;
  allotments := gateway.credits_allotment_rows(named_ids);
  return next;
end
$$;
