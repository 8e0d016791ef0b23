-- Accounts: login attempts that wait for an input or for a browser, the secrets of their steps, and passwords.
alter table gateway.accounts_login_attempts
  -- What a pending attempt waits for.
  add column awaits text check (awaits in ('input', 'redirect')),
  add column inputs_left smallint not null default 5 check (inputs_left >= 0),
  -- Why it failed, a code of the contract.
  add column error text,
  -- What its provider remembers between two inputs, sealed under the login_id (see sealed-secrets.ts).
  add column sealed_memory bytea,
  -- Bound to the browser that finishes it: where that one is sent, and the challenge whose verifier the result needs.
  add column redirect_to text,
  add column code_challenge text,
  add column login_code_digest bytea check (octet_length(login_code_digest) = 32),
  add constraint accounts_redirect_has_challenge check ((redirect_to is null) = (code_challenge is null));

-- Secrets that work once: the state of an OAuth redirect, the confirmation of a login, the id of an e-mail's code.
create table gateway.accounts_tickets (
  -- SHA-256 of the secret. What the ticket stands for is sealed under the secret itself.
  digest bytea primary key check (octet_length(digest) = 32),
  purpose text not null check (purpose in ('oauth_state', 'confirmation', 'registration', 'password_reset')),
  attempt_digest bytea references gateway.accounts_login_attempts on delete cascade,
  sealed bytea not null,
  tries_left smallint not null default 1 check (tries_left >= 0),
  expires_at timestamptz not null
);
-- For forgetting old tickets.
create index accounts_tickets_expiry on gateway.accounts_tickets (expires_at);
-- For the cascade.
create index accounts_tickets_attempt on gateway.accounts_tickets (attempt_digest);

create table gateway.accounts_passwords (
  user_id text primary key references gateway.accounts_users on delete cascade,
  password_digest text not null,
  updated_at timestamptz not null default gateway.townhall_now()
);

-- How often something was tried within a window that the first try opened.
create table gateway.accounts_throttles (
  -- SHA-256 of what is counted, so that no address and no e-mail address is kept here.
  key bytea primary key check (octet_length(key) = 32),
  used integer not null check (used >= 0),
  opened_at timestamptz not null,
  ends_at timestamptz not null
);
create index accounts_throttles_end on gateway.accounts_throttles (ends_at);

-- Networks from which somebody once proved an e-mail address theirs; they have a budget of guesses of their own.
create table gateway.accounts_known_networks (
  -- SHA-256 of Bureau and e-mail address, and of the network with them.
  person bytea not null check (octet_length(person) = 32),
  network bytea not null check (octet_length(network) = 32),
  seen_at timestamptz not null default gateway.townhall_now(),
  primary key (person, network)
);
create index accounts_known_networks_seen on gateway.accounts_known_networks (seen_at);
