-- Admin: administrators, their sessions, and the counters that slow guessing down.
create table gateway.admin_administrators (
  admin_id text primary key check (admin_id ~ '^[A-Za-z0-9._@-]{1,64}$'),
  password_digest text not null,
  created_at timestamptz not null default gateway.townhall_now(),
  updated_at timestamptz not null default gateway.townhall_now()
);

create table gateway.admin_sessions (
  session_id text primary key,
  -- No reference: a reset replaces the administrator and keeps the revoked sessions as they were.
  admin_id text not null,
  digest bytea not null unique check (octet_length(digest) = 32),
  last4 text not null,
  created_at timestamptz not null default gateway.townhall_now(),
  expires_at timestamptz not null,
  revoked_at timestamptz,
  -- Written at most once a minute; a session without use for long enough ends by it.
  last_used_at timestamptz not null default gateway.townhall_now()
);
create index admin_sessions_admin on gateway.admin_sessions (admin_id, created_at) where revoked_at is null;

create table gateway.admin_guesses (
  scope text not null check (scope in ('address', 'id', 'pair')),
  -- SHA-256 of what is counted. People type passwords into the wrong field, so what they typed is not kept.
  key bytea not null check (octet_length(key) = 32),
  tries integer not null default 0 check (tries >= 0),
  opened_at timestamptz not null default gateway.townhall_now(),
  last_try_at timestamptz not null default gateway.townhall_now(),
  -- Of a pair: this administrator once logged in from this network.
  succeeded_at timestamptz,
  primary key (scope, key)
);
-- For forgetting old counters.
create index admin_guesses_old on gateway.admin_guesses (last_try_at) where succeeded_at is null;
