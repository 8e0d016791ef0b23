-- What is done to the ledger: each in one statement, so in one round trip, and exact at READ COMMITTED because whoever
-- changes a balance, a key, or the state of a hold has locked the account's row before it reads.

-- Writes one transaction. Entries of zero are left out; without any the transaction itself still says that it happened.
create function gateway.credits_write(kind text, ref text, account_id text, reason text, accounts text[], amounts bigint[])
returns bigint language plpgsql as $$
declare
  made bigint;
begin
  insert into gateway.credits_txs as t (kind, ref, account_id, reason) values ($1, $2, $3, $4)
  on conflict do nothing returning t.tx_id into made;
  if made is not null then
    insert into gateway.credits_entries (tx_id, account_id, amount)
    select made, e.account, e.amount from unnest($5, $6) as e (account, amount) where e.amount <> 0;
  end if;
  return made;
end
$$;

-- The house's account on the other side of a change.
create function gateway.credits_house(kind text) returns text language sql immutable as $$
  select case
    when kind in ('grant', 'deduct') then 'house:grants'
    when kind in ('payment', 'refund', 'dispute') then 'house:payments'
    else 'house:' || kind
  end
$$;

-- The account, locked; made when the user has none yet. Null when there is no such user.
create function gateway.credits_lock(wanted text) returns gateway.credits_accounts language plpgsql as $$
declare
  account gateway.credits_accounts;
begin
  select * into account from gateway.credits_accounts a where a.account_id = wanted for update;
  if not found then
    insert into gateway.credits_accounts (account_id, bureau_id)
    select u.user_id, u.bureau_id from gateway.accounts_users u where u.user_id = wanted
    on conflict do nothing;
    select * into account from gateway.credits_accounts a where a.account_id = wanted for update;
  end if;
  return account;
end
$$;

-- Adds credits once per (kind, ref), debts first. False when it was done before; null when there is no such user.
create function gateway.credits_post(of_user text, of_kind text, of_ref text, added bigint, because text) returns boolean
language plpgsql as $$
declare
  account gateway.credits_accounts := gateway.credits_lock(of_user);
  repaid bigint := least(account.owed, added);
begin
  if account.account_id is null then return null; end if;
  if gateway.credits_write(of_kind, of_ref, of_user, because,
    array[gateway.credits_house(of_kind), 'receivable:' || of_user, of_user], array[-added, repaid, added - repaid]) is null then
    return false;
  end if;
  update gateway.credits_accounts set posted = posted + added - repaid, owed = owed - repaid where account_id = of_user;
  return true;
end
$$;

-- Takes back what is available, the rest becoming a debt; once per (kind, ref), answering a second time as the first.
-- Without `partly` it takes all or nothing, and says in `lacking` what is missing.
create function gateway.credits_take_back(of_user text, of_kind text, of_ref text, wanted bigint, because text, partly boolean)
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
  return query select free, wanted - free, 0::bigint;
end
$$;

-- A batch of operations on holds, in one transaction: `hold`, `raise`, `settle`, `recover` and `record`. They are taken
-- account by account in the order of the ids, so that two batches cannot wait for one another, and within an
-- account settlements first, since they set credits free. Each gets one answer:
--   hold     held | short (amount: what is affordable)
--   raise    raised (amount: the hold's now) | short (amount: what the hold could be) | gone
--   settle   settled (amount: charged, overrun: what the house bears) | repeated (amount: charged before)
--            | late (it had been resolved without this call; nothing is charged now) | unknown
--   recover  recovered | voided | repeated | alive (somebody renewed the lease)
--   record   recorded
create function gateway.credits_apply(operations jsonb, lease_seconds double precision)
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
      facts jsonb, is_forced boolean, usage_id text)
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
        insert into gateway.credits_late_settlements (hold_id, credits, facts) values (item.hold_id, item.credits, item.facts) on conflict do nothing;
        verdict := 'late';
      end if;
    elsif item.kind = 'recover' and known.lease_until >= gateway.townhall_now() and not item.is_forced then
      verdict := 'alive'; amount := 0;
    else
      if item.kind = 'settle' then
        verdict := 'settled'; price := item.credits; told := item.facts;
      elsif known.phase = 'sent' then
        verdict := 'recovered'; price := known.checkpoint;
        told := known.facts || jsonb_build_object('outcome', 'upstream_failed', 'estimated', true);
      else
        verdict := 'voided'; price := 0;
        told := known.facts || jsonb_build_object('outcome', 'rejected', 'estimated', true);
      end if;
      select * into spender from gateway.credits_keys k where k.token_id = known.token_id;
      -- More than was held is taken only as far as it is there; the house bears the rest.
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
