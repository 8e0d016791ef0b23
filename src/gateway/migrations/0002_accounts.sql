-- Accounts: users, who they are with login providers, their tokens, and login attempts.
create table gateway.accounts_users (
  user_id text primary key,
  bureau_id text not null references gateway.bureaus_records,
  state text not null default 'active' check (state in ('active', 'blocked')),
  email text,
  display_name text,
  avatar_url text,
  metadata jsonb not null default '{}',
  created_at timestamptz not null default gateway.townhall_now()
);

-- The key of a person is (issuer, subject) within a Bureau. An e-mail address is never a key: whoever can
-- get a provider to confirm an address would otherwise become the user that has it.
create table gateway.accounts_identities (
  bureau_id text not null references gateway.bureaus_records,
  issuer text not null,
  subject text not null,
  user_id text not null references gateway.accounts_users on delete cascade,
  created_at timestamptz not null default gateway.townhall_now(),
  primary key (bureau_id, issuer, subject)
);
create index accounts_identities_user on gateway.accounts_identities (user_id);

create table gateway.accounts_tokens (
  token_id text primary key,
  user_id text not null references gateway.accounts_users on delete cascade,
  kind text not null constraint accounts_tokens_kind check (kind in ('user')),
  -- SHA-256 of the token; the token itself is kept nowhere.
  digest bytea not null unique check (octet_length(digest) = 32),
  -- The last characters, so that a person can tell their tokens apart.
  last4 text not null,
  name text,
  created_at timestamptz not null default gateway.townhall_now(),
  expires_at timestamptz not null,
  revoked_at timestamptz,
  -- Written at most once a minute.
  last_used_at timestamptz
);
create index accounts_tokens_user on gateway.accounts_tokens (user_id);

create table gateway.accounts_login_attempts (
  -- SHA-256 of the login_id, which is a secret of whoever started the attempt.
  digest bytea primary key check (octet_length(digest) = 32),
  bureau_id text not null references gateway.bureaus_records,
  provider text not null,
  state text not null check (state in ('pending', 'done', 'failed')),
  -- Known once the attempt is done.
  user_id text references gateway.accounts_users on delete cascade,
  created_at timestamptz not null default gateway.townhall_now(),
  expires_at timestamptz not null,
  -- The first read mints the one token; a second read shortly after opens it again (see login-secret.ts).
  first_read_at timestamptz,
  token_id text references gateway.accounts_tokens on delete cascade,
  sealed_token bytea,
  constraint accounts_done_has_user check (state <> 'done' or user_id is not null)
);
-- For forgetting old attempts.
create index accounts_login_attempts_expiry on gateway.accounts_login_attempts (expires_at);
