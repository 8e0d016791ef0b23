-- Accounts: device logins (RFC 8628). A program waits while a person confirms its code elsewhere.
create table gateway.accounts_device_logins (
  -- SHA-256 of the device code, a secret of the program.
  digest bytea primary key check (octet_length(digest) = 32),
  -- SHA-256 of the code that the person confirms.
  user_code_digest bytea not null unique check (octet_length(user_code_digest) = 32),
  bureau_id text not null references gateway.bureaus_records,
  -- The program's own name and its address, for the person who decides.
  name text not null,
  address text not null,
  -- What the number of pending logins is bounded by: an IPv4 address, or a /64 of IPv6.
  network text not null,
  -- Limits of the API key that the program asks for; null where it asks for a user token.
  key_limits jsonb,
  state text not null default 'pending' check (state in ('pending', 'confirmed', 'denied', 'spent')),
  -- The token that confirmed; the credential ends with it.
  maker_id text references gateway.accounts_tokens on delete cascade,
  interval_seconds smallint not null check (interval_seconds > 0),
  last_polled_at timestamptz,
  created_at timestamptz not null default gateway.townhall_now(),
  expires_at timestamptz not null,
  constraint accounts_device_confirmed_has_maker check (state not in ('confirmed', 'spent') or maker_id is not null)
);
-- For counting the pending logins of a network, and for deleting old ones.
create index accounts_device_logins_network on gateway.accounts_device_logins (network, expires_at);
create index accounts_device_logins_expiry on gateway.accounts_device_logins (expires_at);
-- For the cascade.
create index accounts_device_logins_maker on gateway.accounts_device_logins (maker_id) where maker_id is not null;
