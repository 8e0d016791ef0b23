-- Bureaus: the tenants. A Bureau is never deleted, so that what refers to it keeps its meaning.
create table gateway.bureaus_records (
  bureau_id text primary key check (bureau_id ~ '^[A-Za-z0-9_-]{1,128}$'),
  name text not null,
  state text not null default 'active' check (state in ('active', 'paused', 'archived')),
  server_url text not null,
  redirect_origins text[] not null default '{}',
  -- Null means all models, no limits of its own, and the server's starting credits.
  models text[],
  limits jsonb,
  starting_credits bigint check (starting_credits >= 0),
  metadata jsonb not null default '{}',
  created_at timestamptz not null default gateway.townhall_now(),
  updated_at timestamptz not null default gateway.townhall_now(),
  archived_at timestamptz,
  -- Archived is final and dated; nothing else has the date.
  constraint bureaus_archived_dated check ((state = 'archived') = (archived_at is not null))
);
