-- Payments: what a person was asked to pay, what is known of it since, and every event that providers told us of.
create table gateway.payments_orders (
  payment_id text primary key,
  -- No references: what was paid stays on record, whatever becomes of the user.
  user_id text not null,
  bureau_id text not null,
  provider text not null check (provider in ('stripe', 'creem')),
  currency text not null check (currency ~ '^[a-z]{3}$'),
  -- In the smallest unit of the currency. Fixed, as are the credits that it buys and the product: what an event
  -- says of them is held against these.
  amount bigint not null check (amount > 0),
  credits bigint not null check (credits > 0),
  product text,
  return_to text,
  -- SHA-256 of the secret in the addresses of the result pages.
  ticket_digest bytea not null unique check (octet_length(ticket_digest) = 32),
  -- Known once the provider has made its page.
  checkout_id text,
  checkout_url text,
  is_live boolean,
  -- The provider's own name for the payment, known once it was made.
  reference text,
  created_at timestamptz not null default gateway.townhall_now(),
  -- Facts: they come and grow, and never go.
  paid_at timestamptz,
  expired_at timestamptz,
  failed_at timestamptz,
  canceled_at timestamptz,
  refunded_amount bigint not null default 0 check (refunded_amount >= 0),
  -- What the ledger was told so far, and in how many steps. Changed under the lock of this row alone.
  posted_credits bigint not null default 0 check (posted_credits between 0 and credits),
  postings integer not null default 0,
  looked_at timestamptz
);
create unique index payments_orders_checkout on gateway.payments_orders (provider, checkout_id);
create unique index payments_orders_reference on gateway.payments_orders (provider, reference);
create index payments_orders_user on gateway.payments_orders (user_id, payment_id);
-- For the look at those that wait.
create index payments_orders_open on gateway.payments_orders (looked_at nulls first, created_at)
  where paid_at is null and expired_at is null and failed_at is null and canceled_at is null;

create table gateway.payments_disputes (
  provider text not null,
  dispute_id text not null,
  payment_id text not null references gateway.payments_orders,
  amount bigint not null check (amount >= 0),
  disputed_at timestamptz,
  won_at timestamptz,
  primary key (provider, dispute_id)
);
create index payments_disputes_payment on gateway.payments_disputes (payment_id);

-- Kept for ever: one of the providers signs without a time, so a delivery that was once captured stays good.
create table gateway.payments_events (
  provider text not null,
  event_id text not null,
  type text not null,
  -- applied: it said something new of the payment. repeated: another event had said it. parked: the payment that its
  -- reference belongs to is not known yet. quarantined: it does not fit, and somebody should look.
  outcome text not null check (outcome in ('applied', 'repeated', 'parked', 'quarantined')),
  reason text,
  payment_id text,
  -- What was said, so that two events with different ids cannot say it twice.
  fact_key text,
  reference text,
  -- The event as far as it concerns us; kept until it is applied.
  event jsonb not null,
  received_at timestamptz not null default gateway.townhall_now(),
  primary key (provider, event_id)
);
create unique index payments_events_fact on gateway.payments_events (provider, payment_id, fact_key) where outcome = 'applied';
create index payments_events_parked on gateway.payments_events (provider, reference) where outcome = 'parked';
