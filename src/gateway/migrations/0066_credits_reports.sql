-- History and verification with allotments and batches of charges.

-- A user's changes, newest first, below (before_tx, before_line): a line per call, from the usage records of its transaction, or one for
-- the transaction when it has none or they are past their retention.
create function gateway.credits_history(of_account text, before_tx bigint, before_line text, size integer)
returns table (tx_id bigint, line text, kind text, ref text, credits bigint, reason text, created_at timestamptz) language sql stable as $$
  select e.tx_id, coalesce(u.usage_id, ''), t.kind, coalesce(u.usage_id, t.ref), coalesce(-u.credits, e.amount),
    coalesce(u.reason, t.reason), t.created_at
  from (
    select e.tx_id, e.amount from gateway.credits_entries e
    where e.account_id = of_account and (before_tx is null or e.tx_id <= before_tx)
    -- Each but the first has a line below the cursor.
    order by e.tx_id desc limit size + 1) e
    join gateway.credits_txs t on t.tx_id = e.tx_id
    left join lateral (
      select r.usage_id, r.credits, concat_ws(' · ', r.action, r.model) as reason from gateway.usage_records r
      where t.kind = 'charge' and r.tx_id = e.tx_id and r.user_id = of_account and r.credits > 0) u on true
  where before_tx is null or (e.tx_id, coalesce(u.usage_id, '')) < (before_tx, before_line)
  order by 1 desc, 2 desc limit size
$$;

create or replace function gateway.credits_verify_txs(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select t.tx_id, t.kind, t.ref, t.account_id, t.created_at, t.kind = 'charge' and t.ref like '%:%' as is_batch
    from gateway.credits_txs t
    where t.tx_id > coalesce(after, '0')::bigint order by t.tx_id limit size),
  summed as (
    select c.*, e.total, e.own, e.strangers, h.hold_id, h.charged
    from chunk c
      left join lateral (
        select sum(e.amount) as total, sum(e.amount) filter (where e.account_id = c.account_id) as own,
          count(*) filter (where e.account_id not in (c.account_id, 'receivable:' || c.account_id) and e.account_id not like 'house:%') as strangers
        from gateway.credits_entries e where e.tx_id = c.tx_id) e on true
      left join gateway.credits_holds h on c.kind = 'charge' and not c.is_batch and h.hold_id = split_part(c.ref, '/', 1)),
  batch as (
    select s.*, split_part(s.ref, ':', 1) as journal_id, split_part(split_part(s.ref, ':', 2), '-', 2)::bigint as last_seq, u.credits
    from summed s cross join lateral (
      select coalesce(sum(r.credits), 0) as credits from gateway.usage_records r where r.tx_id = s.tx_id and r.user_id = s.account_id) u
    where s.is_batch),
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
  where kind = 'charge' and not is_batch and hold_id is null and created_at > gateway.townhall_now() - make_interval(days => days)
  union all
  select 'charge_not_as_held', ref, charged::text, (-coalesce(own, 0))::text from summed
  where kind = 'charge' and hold_id is not null and charged is distinct from -coalesce(own, 0)
    -- A hold that was recovered and settled late has two transactions.
    and charged is distinct from -(
      select coalesce(sum(e.amount), 0) from gateway.credits_txs t join gateway.credits_entries e using (tx_id)
      where t.kind = 'charge' and t.ref in (summed.hold_id, summed.hold_id || '/late') and e.account_id = summed.account_id)
  union all
  select 'batch_not_as_usage', ref, credits::text, (-coalesce(own, 0))::text from batch
  where credits <> -coalesce(own, 0) and created_at > gateway.townhall_now() - make_interval(days => days)
  union all
  select 'journal_behind_batch', b.ref, b.last_seq::text, j.applied_seq::text
  from batch b left join gateway.credits_journals j using (journal_id) where coalesce(j.applied_seq, 0) < b.last_seq
  union all
  select distinct 'tx_missing', tx_id::text, null, null from stray
  union all
  select 'next', (select max(tx_id)::text from chunk having count(*) = size), (select count(*)::text from chunk), null
$$;

-- What is open of each account and key: holds and allotments.
create function gateway.credits_open() returns table (account_id text, token_id text, amount bigint) language sql stable as $$
  select h.account_id, h.token_id, h.amount from gateway.credits_holds h where h.state = 'held'
  union all
  select a.account_id, a.token_id, a.amount from gateway.credits_allotments a where a.ended_at is null
$$;

create or replace function gateway.credits_verify_accounts(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select a.* from gateway.credits_accounts a where a.account_id > coalesce(after, '') order by a.account_id limit size),
  open as materialized (select o.account_id, sum(o.amount) as held from gateway.credits_open() o group by o.account_id),
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

create or replace function gateway.credits_verify_keys(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select k.* from gateway.credits_keys k where k.token_id > coalesce(after, '') order by k.token_id limit size),
  open as materialized (select o.token_id, sum(o.amount) as held from gateway.credits_open() o group by o.token_id)
  select 'key_held_not_as_holds', c.token_id, coalesce(o.held, 0)::text, c.held::text
  from chunk c left join open o using (token_id) where c.held <> coalesce(o.held, 0)
  union all
  select 'next', (select max(token_id) from chunk having count(*) = size), (select count(*)::text from chunk), null
$$;

create or replace function gateway.credits_verify_usage(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select u.usage_id, u.credits, u.tx_id, u.user_id from gateway.usage_records u
    where u.usage_id > coalesce(after, '') order by u.usage_id limit size)
  select 'charge_missing', c.usage_id, c.credits::text, null from chunk c
  where c.credits > 0 and case
    when c.tx_id is null then not exists (
      select 1 from gateway.credits_txs t where t.kind = 'charge' and t.ref in ('hld_' || substr(c.usage_id, 5), 'hld_' || substr(c.usage_id, 5) || '/late'))
    else not exists (
      select 1 from gateway.credits_txs t where t.tx_id = c.tx_id and t.kind = 'charge' and t.account_id = c.user_id) end
  union all
  select 'next', (select max(usage_id) from chunk having count(*) = size), (select count(*)::text from chunk), null
$$;

-- Allotments, ended ones included, and the tickets of their accounts.
create function gateway.credits_verify_allotments(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select a.* from gateway.credits_allotments a where a.allotment_id > coalesce(after, '') order by a.allotment_id limit size)
  select 'allotment_not_covering', allotment_id, (reserved + unapplied)::text, amount::text from chunk where reserved + unapplied > amount
  union all
  select 'ended_allotment_not_empty', allotment_id, '0', amount::text from chunk where ended_at is not null and amount <> 0
  union all
  select 'allotment_without_account', c.allotment_id, c.account_id, null from chunk c
  where not exists (select 1 from gateway.credits_accounts a where a.account_id = c.account_id)
  union all
  select 'allotment_of_another_account', c.allotment_id, k.account_id, c.account_id
  from chunk c join gateway.credits_keys k using (token_id) where k.account_id <> c.account_id
  union all
  select 'recall_without_account', r.ticket, r.account_id, null from gateway.credits_recalls r
  where after is null and not exists (select 1 from gateway.credits_accounts a where a.account_id = r.account_id)
  union all
  select 'next', (select max(allotment_id) from chunk having count(*) = size), (select count(*)::text from chunk), null
$$;

create function gateway.credits_verify_journals(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select j.* from gateway.credits_journals j where j.journal_id > coalesce(after, '') order by j.journal_id limit size)
  select 'journal_below_zero', journal_id, '0', applied_seq::text from chunk where applied_seq < 0
  union all
  select 'journal_never_applied', journal_id, applied_seq::text, null from chunk where applied_seq > 0 and applied_at is null
  union all
  select 'generation_missing', 'credits_ledger', '1', (select count(*)::text from gateway.credits_ledger)
  where after is null and (select count(*) from gateway.credits_ledger) <> 1
  union all
  select 'next', (select max(journal_id) from chunk having count(*) = size), (select count(*)::text from chunk), null
$$;
