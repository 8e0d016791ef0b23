-- Charges of a gateway's journal: each line once, by the journal's number, in batches of up to 500.

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

-- A finished call as the gateway sends it: counts are whole and within bounds, `user_id` is null for a call without a price.
-- `covered` is what its holder took from the allotment for it, null for all: more would be another call's reservation.
create type gateway.credits_line as (
  seq bigint, usage_id text, allotment_id text, credits bigint, covered bigint,
  request_id text, user_id text, bureau_id text, token_id text, action text, model text, provider text, reason text,
  input_tokens bigint, cached_input_tokens bigint, cache_write_tokens bigint, output_tokens bigint, reasoning_tokens bigint,
  units jsonb, outcome text, estimated boolean, ttft_ms bigint, duration_ms bigint
);

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

-- Open allotments as an AllotmentRow has them.
create function gateway.credits_allotment_rows(allotment_ids text[]) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(jsonb_build_object('allotmentId', a.allotment_id, 'version', a.version, 'amount', a.amount::text,
    'isRecalled', a.is_recalled, 'isClosed', a.is_closed)), '[]')
  from gateway.credits_allotments a where a.allotment_id = any ($1) and a.ended_at is null
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
