-- Credits: balances, holds, and the double entries behind them. Amounts are whole credits, never fractions.

-- A user's balance. What is posted and not held is available. The house's accounts have no row here, since every
-- charge would queue for it; their balance is the sum of their entries.
create table gateway.credits_accounts (
  -- The user's id.
  account_id text primary key,
  bureau_id text not null,
  posted bigint not null default 0,
  held bigint not null default 0 check (held >= 0),
  -- What was to be taken back and was spent already: the account receivable:<user>, which is negative by it.
  owed bigint not null default 0 check (owed >= 0),
  created_at timestamptz not null default gateway.townhall_now(),
  -- The backstop of every rule: nobody spends what is not there, and whoever owes has nothing to spend.
  constraint credits_never_below_zero check (posted - held >= 0),
  constraint credits_debt_blocks check (owed = 0 or posted = held)
) with (fillfactor = 70);
create index credits_accounts_bureau on gateway.credits_accounts (bureau_id, account_id);

-- What an API key has spent, and may. Changed only by who holds the lock of its user's balance.
create table gateway.credits_keys (
  token_id text primary key,
  account_id text not null,
  -- Null is no limit beside the balance.
  cap bigint check (cap >= 0),
  spent bigint not null default 0 check (spent >= 0),
  held bigint not null default 0 check (held >= 0),
  constraint credits_key_within_cap check (cap is null or spent + held <= cap)
) with (fillfactor = 70);

-- Credits set aside for a call. Its state changes once, and only by who holds the lock of its account.
create table gateway.credits_holds (
  hold_id text primary key,
  request_id text not null,
  account_id text not null,
  bureau_id text not null,
  token_id text not null,
  action text not null,
  model text,
  provider text,
  amount bigint not null check (amount >= 0),
  state text not null default 'held' check (state in ('held', 'settled', 'voided', 'recovered')),
  -- Written before anything goes upstream: what was not sent costs nothing, whatever became of it.
  phase text not null check (phase in ('not_sent', 'sent')),
  -- The price and the facts of what was known to be produced.
  checkpoint bigint not null default 0 check (checkpoint >= 0),
  facts jsonb not null default '{}',
  lease_until timestamptz not null,
  charged bigint check (charged >= 0),
  created_at timestamptz not null default gateway.townhall_now(),
  resolved_at timestamptz,
  constraint credits_resolved_once check ((state = 'held') = (resolved_at is null) and (state = 'held') = (charged is null))
) with (fillfactor = 70);
-- The open ones alone, for the sweeper; and what is old enough to be dropped.
create index credits_holds_open on gateway.credits_holds (lease_until) where state = 'held';
create index credits_holds_resolved on gateway.credits_holds (resolved_at) where state <> 'held';

-- What a settlement told of a call that had been resolved without it. Nothing is charged for it.
create table gateway.credits_late_settlements (
  hold_id text primary key,
  credits bigint not null,
  facts jsonb not null,
  at timestamptz not null default gateway.townhall_now()
);

create table gateway.credits_txs (
  tx_id bigint generated always as identity primary key,
  kind text not null check (kind in ('starting', 'grant', 'payment', 'deduct', 'refund', 'dispute', 'charge', 'collection')),
  -- The hold, the payment, the request: what may cause a change of its kind once.
  ref text not null,
  account_id text not null,
  reason text not null,
  created_at timestamptz not null default gateway.townhall_now(),
  unique (kind, ref)
);

create table gateway.credits_entries (
  -- Of credits_txs. No foreign key, which would look it up once more for each entry: only functions write here, and the
  -- reconciliation finds an entry without its transaction.
  tx_id bigint not null,
  -- A user's id, receivable:<user>, or house:<name>.
  account_id text not null,
  amount bigint not null check (amount <> 0),
  primary key (tx_id, account_id)
);
-- A user's history, and the sum of an account from the index alone.
create index credits_entries_account on gateway.credits_entries (account_id, tx_id) include (amount);

create function gateway.credits_refuse_change() returns trigger language plpgsql as $$
begin
  raise exception 'The ledger is append-only; % is refused.', tg_op using errcode = 'insufficient_privilege';
end
$$;
create trigger credits_txs_append_only before update or delete on gateway.credits_txs
  for each row execute function gateway.credits_refuse_change();
create trigger credits_txs_no_truncate before truncate on gateway.credits_txs
  for each statement execute function gateway.credits_refuse_change();
create trigger credits_entries_append_only before update or delete on gateway.credits_entries
  for each row execute function gateway.credits_refuse_change();
create trigger credits_entries_no_truncate before truncate on gateway.credits_entries
  for each statement execute function gateway.credits_refuse_change();

-- At the commit, when all entries of the transaction are there.
create function gateway.credits_require_zero_sum() returns trigger language plpgsql as $$
begin
  if (select sum(amount) from gateway.credits_entries where tx_id = new.tx_id) <> 0 then
    raise exception 'The entries of transaction % do not add up to nothing.', new.tx_id using errcode = 'check_violation';
  end if;
  return null;
end
$$;
create constraint trigger credits_entries_zero_sum after insert on gateway.credits_entries
  deferrable initially deferred for each row execute function gateway.credits_require_zero_sum();

-- Users who were there before the ledger.
insert into gateway.credits_accounts (account_id, bureau_id) select user_id, bureau_id from gateway.accounts_users;
