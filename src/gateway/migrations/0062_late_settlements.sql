-- Settlements that come after another process has resolved their hold are charged, and the answer of an Idempotency-Key
-- is part of its settlement, so that a key that was charged stays taken whatever becomes of the database meanwhile.

-- The call that has the key, by the request id that its hold has as well. Null for rows of older releases.
alter table gateway.idempotency add column request_id text;

-- Whether a call still has credits on hold: then its settlement is still to come, perhaps from the journal of a gateway
-- that lost the database, and no other call may take the key.
create function gateway.idempotency_is_pending(of_request text) returns boolean language sql stable as $$
  select exists (select 1 from gateway.credits_holds h where h.state = 'held' and h.request_id = of_request)
$$;

-- Keeps an answer, {scope (hex), run, status, body}, for the run that has the key; without a body it keeps that there was
-- one. False when another run has the key. True without an answer, or when the row is gone.
create function gateway.idempotency_settle(answer jsonb) returns boolean language plpgsql as $$
declare
  row_run uuid;
begin
  if answer ->> 'run' is null then return true; end if;
  select i.run into row_run from gateway.idempotency i where i.scope = decode(answer ->> 'scope', 'hex') for update;
  if row_run <> (answer ->> 'run')::uuid then return false; end if;
  update gateway.idempotency i
  set state = case when answer ->> 'body' is null then 'opaque' else 'done' end,
    status = (answer ->> 'status')::integer, body = answer ->> 'body'
  where i.scope = decode(answer ->> 'scope', 'hex') and i.state = 'running';
  return true;
end
$$;

-- Facts of a call that was recorded without them: by the recovery of its hold.
create function gateway.usage_correct(of_usage text, facts jsonb, charged bigint) returns void language sql as $$
  update gateway.usage_records u
  set action = coalesce(f.action, u.action), model = coalesce(f.model, u.model), provider = coalesce(f.provider, u.provider),
    input_tokens = gateway.usage_count(f.tokens -> 'input'), cached_input_tokens = gateway.usage_count(f.tokens -> 'cachedInput'),
    cache_write_tokens = gateway.usage_count(f.tokens -> 'cacheWrite'), output_tokens = gateway.usage_count(f.tokens -> 'output'),
    reasoning_tokens = gateway.usage_count(f.tokens -> 'reasoning'), units = coalesce(nullif(f.units, 'null'), '{}'),
    credits = charged, outcome = coalesce(f.outcome, u.outcome), estimated = coalesce(f.estimated, true),
    ttft_ms = case when jsonb_typeof(f."ttftMs") = 'number' then gateway.usage_count(f."ttftMs") end,
    duration_ms = gateway.usage_count(f."durationMs")
  from jsonb_to_record(facts) as f (action text, model text, provider text, tokens jsonb, units jsonb, outcome text,
    estimated boolean, "ttftMs" jsonb, "durationMs" jsonb)
  where u.usage_id = of_usage
$$;

-- A batch of operations on holds, in one transaction: `hold`, `raise`, `settle`, `recover` and `record`. The loop goes
-- account by account in the order of the ids, so that two batches cannot wait for one another, and within an
-- account settlements first, since they set credits free. Each operation gets one row:
--   hold     held | short (amount: what is affordable)
--   raise    raised (amount: the hold's now) | short (amount: what the hold could be) | gone
--   settle   settled (amount: charged, overrun: what the operator absorbs) | repeated (amount: charged before)
--            | late (another process had resolved the hold; amount: charged in all, overrun: what the operator absorbs
--            of the difference) | unknown
-- A late settlement is charged once, up to what account and key have left. Two are not charged: one whose key belongs to
-- another call by now, which is charged for itself, and one with `is_held_only`, whose work another process may do again.
--   recover  recovered | voided | repeated | alive (somebody renewed the lease)
--   record   recorded
create or replace function gateway.credits_apply(operations jsonb, lease_seconds double precision)
returns table (op integer, verdict text, amount bigint, overrun bigint, available bigint) language plpgsql as $$
#variable_conflict use_column
declare
  item record;
  account gateway.credits_accounts;
  known gateway.credits_holds;
  spender gateway.credits_keys;
  free bigint;
  price bigint;
  charge bigint;
  told jsonb;
  -- What is written at the end, in one statement for all.
  held integer[] := '{}';
  refs text[] := '{}';
  payers text[] := '{}';
  reasons text[] := '{}';
  prices bigint[] := '{}';
  charges bigint[] := '{}';
  usage_ids text[] := '{}';
  calls jsonb[] := '{}';
  facts jsonb[] := '{}';
  charged bigint[] := '{}';
begin
  for item in
    select g.* from jsonb_to_recordset(operations) as g (op integer, kind text, hold_id text, account_id text, bureau_id text,
      token_id text, request_id text, action text, model text, provider text, amount bigint, is_sent boolean, credits bigint,
      facts jsonb, is_forced boolean, usage_id text, answer jsonb, is_held_only boolean)
    order by g.account_id nulls first,
      case g.kind when 'hold' then 3 when 'raise' then 2 else 1 end, g.op
  loop
    if item.kind = 'record' then
      usage_ids := usage_ids || item.usage_id;
      calls := calls || (to_jsonb(item) - 'facts');
      facts := facts || item.facts;
      charged := charged || 0::bigint;
      op := item.op; verdict := 'recorded'; amount := 0; overrun := 0; available := null; return next;
      continue;
    end if;

    if account.account_id is distinct from item.account_id then
      if account.account_id is not null then
        update gateway.credits_accounts a set posted = account.posted, held = account.held, owed = account.owed
        where a.account_id = account.account_id and (a.posted, a.held, a.owed) <> (account.posted, account.held, account.owed);
      end if;
      select * into account from gateway.credits_accounts a where a.account_id = item.account_id for update;
      if not found then
        insert into gateway.credits_accounts (account_id, bureau_id) values (item.account_id, coalesce(item.bureau_id, '')) on conflict do nothing;
        select * into account from gateway.credits_accounts a where a.account_id = item.account_id for update;
      end if;
    end if;

    op := item.op; overrun := 0; available := null;
    if item.kind = 'hold' then
      select * into spender from gateway.credits_keys k where k.token_id = item.token_id;
      free := least(account.posted - account.held, spender.cap - spender.spent - spender.held);
      if item.amount > free and item.amount > 0 then
        verdict := 'short'; amount := free; available := free;
      else
        held := held || item.op;
        account.held := account.held + item.amount;
        if spender.token_id is not null then
          update gateway.credits_keys k set held = k.held + item.amount where k.token_id = item.token_id;
        end if;
        verdict := 'held'; amount := item.amount; available := free - item.amount;
      end if;
      return next;
      continue;
    end if;

    -- The state is ours to change by the account's lock; only a lease and a checkpoint may change meanwhile.
    if item.kind = 'recover' then
      select * into known from gateway.credits_holds h where h.hold_id = item.hold_id for update;
    else
      select * into known from gateway.credits_holds h where h.hold_id = item.hold_id;
    end if;
    if known.hold_id is null then
      verdict := 'unknown'; amount := 0;
    elsif item.kind = 'raise' then
      select * into spender from gateway.credits_keys k where k.token_id = known.token_id;
      free := known.amount + least(account.posted - account.held, spender.cap - spender.spent - spender.held);
      if known.state <> 'held' then
        verdict := 'gone'; amount := 0;
      elsif item.amount > free then
        verdict := 'short'; amount := free;
      else
        price := greatest(item.amount - known.amount, 0);
        update gateway.credits_holds h set amount = known.amount + price where h.hold_id = item.hold_id;
        account.held := account.held + price;
        if spender.token_id is not null then
          update gateway.credits_keys k set held = k.held + price where k.token_id = known.token_id;
        end if;
        verdict := 'raised'; amount := known.amount + price;
      end if;
    elsif known.state <> 'held' then
      amount := known.charged;
      verdict := 'repeated';
      if item.kind = 'settle' and known.state <> 'settled' then
        verdict := 'late';
        insert into gateway.credits_late_settlements (hold_id, credits, facts) values (item.hold_id, item.credits, item.facts) on conflict do nothing;
        if found and not coalesce(item.is_held_only, false) then
          price := item.credits - case when known.state = 'recovered' then known.checkpoint else 0 end;
          select * into spender from gateway.credits_keys k where k.token_id = known.token_id;
          if gateway.idempotency_settle(item.answer) then
            charge := least(item.credits - known.charged, account.posted - account.held, spender.cap - spender.spent - spender.held);
            perform gateway.credits_write('charge', item.hold_id || '/late', item.account_id,
              concat_ws(' · ', coalesce(item.facts ->> 'action', known.action), coalesce(nullif(item.facts ->> 'reason', ''), item.facts ->> 'model', known.model)),
              array[item.account_id, 'house:usage', 'house:overrun'], array[-charge, price, charge - price]);
            account.posted := account.posted - charge;
            update gateway.credits_holds h set state = 'settled', charged = known.charged + charge where h.hold_id = item.hold_id;
            if spender.token_id is not null then
              update gateway.credits_keys k set spent = k.spent + charge where k.token_id = known.token_id;
            end if;
            perform gateway.usage_correct('use_' || substr(item.hold_id, 5), item.facts, known.charged + charge);
            amount := known.charged + charge; overrun := greatest(price - charge, 0);
            -- What a recovery had charged too much pays a debt first.
            charge := least(account.owed, account.posted - account.held);
            if charge > 0 then
              perform gateway.credits_write('collection', item.hold_id || '/late', item.account_id, 'paid towards a debt',
                array[item.account_id, 'receivable:' || item.account_id], array[-charge, charge]);
              account.posted := account.posted - charge;
              account.owed := account.owed - charge;
            end if;
          else
            overrun := greatest(price, 0);
          end if;
        end if;
      end if;
    elsif item.kind = 'recover' and known.lease_until >= gateway.townhall_now() and not item.is_forced then
      verdict := 'alive'; amount := 0;
    else
      if item.kind = 'settle' then
        verdict := 'settled'; price := item.credits; told := item.facts;
        perform gateway.idempotency_settle(item.answer);
      elsif known.phase = 'sent' then
        verdict := 'recovered'; price := known.checkpoint;
        told := known.facts || jsonb_build_object('outcome', 'upstream_failed', 'estimated', true);
      else
        verdict := 'voided'; price := 0;
        told := known.facts || jsonb_build_object('outcome', 'rejected', 'estimated', true);
      end if;
      select * into spender from gateway.credits_keys k where k.token_id = known.token_id;
      -- More than was held is charged as far as credits are available; the operator absorbs the rest.
      charge := least(price, known.amount + least(account.posted - account.held, spender.cap - spender.spent - spender.held));
      account.posted := account.posted - charge;
      account.held := account.held - known.amount;
      update gateway.credits_holds h set state = verdict, charged = charge, resolved_at = gateway.townhall_now() where h.hold_id = item.hold_id;
      if spender.token_id is not null then
        update gateway.credits_keys k set held = k.held - known.amount, spent = k.spent + charge where k.token_id = known.token_id;
      end if;
      if price > 0 then
        refs := refs || item.hold_id;
        payers := payers || item.account_id;
        reasons := reasons || concat_ws(' · ', coalesce(told ->> 'action', known.action), coalesce(nullif(told ->> 'reason', ''), told ->> 'model', known.model));
        prices := prices || price;
        charges := charges || charge;
      end if;
      usage_ids := usage_ids || ('use_' || substr(item.hold_id, 5));
      calls := calls || jsonb_build_object('request_id', known.request_id, 'user_id', known.account_id, 'bureau_id', known.bureau_id,
        'token_id', known.token_id, 'action', known.action, 'model', known.model, 'provider', known.provider);
      facts := facts || told;
      charged := charged || charge;
      amount := charge; overrun := price - charge; available := spender.cap - spender.spent - charge - spender.held + known.amount;
      -- What the hold has kept from a debt goes to it now.
      charge := least(account.owed, account.posted - account.held);
      if charge > 0 then
        perform gateway.credits_write('collection', item.hold_id, item.account_id, 'paid towards a debt',
          array[item.account_id, 'receivable:' || item.account_id], array[-charge, charge]);
        account.posted := account.posted - charge;
        account.owed := account.owed - charge;
      end if;
      available := least(account.posted - account.held, available);
    end if;
    return next;
  end loop;
  if account.account_id is not null then
    update gateway.credits_accounts a set posted = account.posted, held = account.held, owed = account.owed
    where a.account_id = account.account_id and (a.posted, a.held, a.owed) <> (account.posted, account.held, account.owed);
  end if;

  if held <> '{}' then
    insert into gateway.credits_holds (hold_id, request_id, account_id, bureau_id, token_id, action, model, provider, amount, phase, lease_until)
    select g.hold_id, g.request_id, g.account_id, g.bureau_id, g.token_id, g.action, g.model, g.provider, g.amount,
      case when g.is_sent then 'sent' else 'not_sent' end, gateway.townhall_now() + make_interval(secs => lease_seconds)
    from jsonb_to_recordset(operations) as g (op integer, hold_id text, request_id text, account_id text, bureau_id text, token_id text,
      action text, model text, provider text, amount bigint, is_sent boolean)
    where g.op = any(held);
  end if;
  if refs <> '{}' then
    with made as (
      insert into gateway.credits_txs (kind, ref, account_id, reason)
      select 'charge', c.ref, c.payer, c.reason from unnest(refs, payers, reasons) as c (ref, payer, reason)
      returning tx_id, ref)
    insert into gateway.credits_entries (tx_id, account_id, amount)
    select made.tx_id, e.account, e.amount
    from unnest(refs, payers, prices, charges) as c (ref, payer, price, charge) join made using (ref),
      lateral (values (c.payer, -c.charge), ('house:usage', c.price), ('house:overrun', c.charge - c.price)) as e (account, amount)
    where e.amount <> 0;
  end if;
  if usage_ids <> '{}' then perform gateway.usage_add_all(usage_ids, calls, facts, charged); end if;
end
$$;

-- The reconciliation knows of the second transaction of a hold.
create or replace function gateway.credits_verify_txs(after text, size integer, days integer)
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
      left join gateway.credits_holds h on c.kind = 'charge' and h.hold_id = split_part(c.ref, '/', 1)),
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
    -- A hold that was recovered and settled late has two transactions.
    and charged is distinct from -(
      select coalesce(sum(e.amount), 0) from gateway.credits_txs t join gateway.credits_entries e using (tx_id)
      where t.kind = 'charge' and t.ref in (summed.hold_id, summed.hold_id || '/late') and e.account_id = summed.account_id)
  union all
  select distinct 'tx_missing', tx_id::text, null, null from stray
  union all
  select 'next', (select max(tx_id)::text from chunk having count(*) = size), (select count(*)::text from chunk), null
$$;

create or replace function gateway.credits_verify_holds(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select h.hold_id, h.account_id, h.state, h.charged, h.resolved_at from gateway.credits_holds h
    where h.hold_id > coalesce(after, '') order by h.hold_id limit size),
  joined as (
    select c.*, -e.amount as own, u.usage_id, u.credits
    from chunk c
      cross join lateral (
        select coalesce(sum(e.amount), 0) as amount from gateway.credits_txs t join gateway.credits_entries e using (tx_id)
        where t.kind = 'charge' and t.ref in (c.hold_id, c.hold_id || '/late') and e.account_id = c.account_id) e
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

create or replace function gateway.credits_verify_usage(after text, size integer, days integer)
returns table (finding text, subject text, expected text, found text) language sql stable as $$
  with chunk as materialized (
    select u.usage_id, u.credits from gateway.usage_records u where u.usage_id > coalesce(after, '') order by u.usage_id limit size)
  select 'charge_missing', c.usage_id, c.credits::text, null from chunk c
  where c.credits > 0 and not exists (
    select 1 from gateway.credits_txs t where t.kind = 'charge' and t.ref in ('hld_' || substr(c.usage_id, 5), 'hld_' || substr(c.usage_id, 5) || '/late'))
  union all
  select 'next', (select max(usage_id) from chunk having count(*) = size), (select count(*)::text from chunk), null
$$;
