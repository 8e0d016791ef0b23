-- Admin: machine credentials of products' backends, each good for a few operations and for one Bureau.
create table gateway.admin_machines (
  credential_id text primary key,
  bureau_id text not null references gateway.bureaus_records,
  scopes text[] not null check (cardinality(scopes) > 0),
  digest bytea not null unique check (octet_length(digest) = 32),
  last4 text not null,
  created_at timestamptz not null default gateway.townhall_now(),
  -- Null for one that lives until it is revoked.
  expires_at timestamptz,
  revoked_at timestamptz,
  -- Written at most once a minute.
  last_used_at timestamptz
);
create index admin_machines_bureau on gateway.admin_machines (bureau_id);
