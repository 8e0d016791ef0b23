-- The reconciliation of the ledger, chunk by chunk so that no statement is long. Each chunk is one statement and so
-- sees one moment, in which everything must agree however busy the server is. A chunk gives what it found, each naming
-- its row, and a last row `next` with the key to go on from (null at the end) and how many rows it has seen.

create function gateway.credits_verify_txs(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select t.tx_id, t.kind, t.ref, t.account_id, t.created_at from gateway.credits_txs t
    where t.tx_id > coalesce(after, '0')::bigint order by t.tx_id limit size),
  summed as (
    select c.*, e.total, e.own, e.strangers, h.hold_id, h.charged
    from chunk c
      left join lateral (
        select sum(e.amount) as total, sum(e.amount) filter (where e.account_id = c.account_id) as own,
          count(*) filter (where e.account_id not in (c.account_id, 'receivable:' || c.account_id) and e.account_id not like 'house:%') as strangers
        from gateway.credits_entries e where e.tx_id = c.tx_id) e on true
      left join gateway.credits_holds h on c.kind = 'charge' and h.hold_id = c.ref),
  stray as (
    select e.tx_id from gateway.credits_entries e
    where e.tx_id > coalesce(after, '0')::bigint
      and (e.tx_id <= (select max(c.tx_id) from chunk c) or (select count(*) from chunk) < size)
      and not exists (select 1 from gateway.credits_txs t where t.tx_id = e.tx_id))
  select 'tx_not_balanced', kind || ' ' || ref, '0', total::text from summed where total <> 0
  union all
  select 'entry_of_another_account', kind || ' ' || ref, account_id, null from summed where strangers > 0
  union all
  select 'hold_missing', ref, kind, null from summed
  where kind = 'charge' and hold_id is null and created_at > gateway.townhall_now() - make_interval(days => days)
  union all
  select 'charge_not_as_held', ref, charged::text, (-coalesce(own, 0))::text from summed
  where kind = 'charge' and hold_id is not null and charged is distinct from -coalesce(own, 0)
  union all
  select distinct 'tx_missing', tx_id::text, null, null from stray
  union all
  select 'next', (select max(tx_id)::text from chunk having count(*) = size), (select count(*)::text from chunk), null
$$;

create function gateway.credits_verify_accounts(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select a.* from gateway.credits_accounts a where a.account_id > coalesce(after, '') order by a.account_id limit size),
  open as materialized (
    select h.account_id, sum(h.amount) as held from gateway.credits_holds h where h.state = 'held' group by h.account_id),
  summed as (
    select c.*, coalesce(own.total, 0) as own, -coalesce(debt.total, 0) as debt, coalesce(open.held, 0) as open_held
    from chunk c
      left join lateral (select sum(e.amount) as total from gateway.credits_entries e where e.account_id = c.account_id) own on true
      left join lateral (select sum(e.amount) as total from gateway.credits_entries e where e.account_id = 'receivable:' || c.account_id) debt on true
      left join open on open.account_id = c.account_id)
  select 'posted_not_as_entries', account_id, own::text, posted::text from summed where posted <> own
  union all
  select 'owed_not_as_entries', account_id, debt::text, owed::text from summed where owed <> debt
  union all
  select 'held_not_as_holds', account_id, open_held::text, held::text from summed where held <> open_held
  union all
  select 'account_below_zero', account_id, '0', (posted - held)::text from summed where posted < held
  union all
  select 'next', (select max(account_id) from chunk having count(*) = size), (select count(*)::text from chunk), null
$$;

create function gateway.credits_verify_keys(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select k.* from gateway.credits_keys k where k.token_id > coalesce(after, '') order by k.token_id limit size),
  open as materialized (
    select h.token_id, sum(h.amount) as held from gateway.credits_holds h where h.state = 'held' group by h.token_id)
  select 'key_held_not_as_holds', c.token_id, coalesce(o.held, 0)::text, c.held::text
  from chunk c left join open o using (token_id) where c.held <> coalesce(o.held, 0)
  union all
  select 'next', (select max(token_id) from chunk having count(*) = size), (select count(*)::text from chunk), null
$$;

-- A resolved hold, its charge and its usage record say the same.
create function gateway.credits_verify_holds(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select h.hold_id, h.account_id, h.state, h.charged, h.resolved_at from gateway.credits_holds h
    where h.hold_id > coalesce(after, '') order by h.hold_id limit size),
  joined as (
    select c.*, -coalesce(e.amount, 0) as own, u.usage_id, u.credits
    from chunk c
      left join gateway.credits_txs t on t.kind = 'charge' and t.ref = c.hold_id
      left join gateway.credits_entries e on e.tx_id = t.tx_id and e.account_id = c.account_id
      left join gateway.usage_records u on u.usage_id = 'use_' || substr(c.hold_id, 5))
  select 'hold_not_as_charge', hold_id, own::text, coalesce(charged, 0)::text from joined where coalesce(charged, 0) <> own
  union all
  select 'usage_not_as_charge', 'use_' || substr(hold_id, 5), charged::text, credits::text from joined where usage_id is not null and credits is distinct from charged
  union all
  select 'usage_missing', 'use_' || substr(hold_id, 5), charged::text, null from joined
  where state <> 'held' and usage_id is null and resolved_at > gateway.townhall_now() - make_interval(days => days)
  union all
  select 'next', (select max(hold_id) from chunk having count(*) = size), (select count(*)::text from chunk), null
$$;

-- Usage that says it cost something and was never charged.
create function gateway.credits_verify_usage(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select u.usage_id, u.credits from gateway.usage_records u where u.usage_id > coalesce(after, '') order by u.usage_id limit size)
  select 'charge_missing', c.usage_id, c.credits::text, null from chunk c
  where c.credits > 0 and not exists (
    select 1 from gateway.credits_txs t where t.kind = 'charge' and t.ref = 'hld_' || substr(c.usage_id, 5))
  union all
  select 'next', (select max(usage_id) from chunk having count(*) = size), (select count(*)::text from chunk), null
$$;
