-- Audit: what administrators and the server itself did. Entries are written with the change that they tell
-- of and are bound into a chain of hashes shortly after, so that nobody can take one back unseen.
create table gateway.audit_entries (
  entry_id text primary key,
  at timestamptz not null default gateway.townhall_now(),
  actor_kind text not null check (actor_kind in ('guest', 'user', 'admin', 'system')),
  actor_id text,
  token_id text,
  address text,
  request_id text,
  action text not null,
  target_kind text,
  target_id text,
  outcome text not null check (outcome in ('ok', 'failed')),
  diff jsonb
);

-- Entries that the chain does not hold yet. A table of its own, so that finding them costs nothing however long the log is.
create table gateway.audit_pending (
  entry_id text primary key references gateway.audit_entries
);

-- The chain: hash = SHA-256(previous || the digests of the batch's entries in their order). A batch belongs to
-- the UTC day in which it was made; days are what retention drops, and only whole ones.
create table gateway.audit_batches (
  batch bigint primary key check (batch > 0),
  day date not null,
  entries integer not null check (entries > 0),
  previous bytea not null check (octet_length(previous) = 32),
  hash bytea not null unique check (octet_length(hash) = 32),
  made_at timestamptz not null default gateway.townhall_now()
);
create index audit_batches_day on gateway.audit_batches (day);

-- No reference to the entry: one that was removed by force must be missed by its link.
create table gateway.audit_links (
  batch bigint not null references gateway.audit_batches,
  position integer not null,
  entry_id text not null unique,
  -- SHA-256 of the entry, so that an altered one can be named.
  digest bytea not null check (octet_length(digest) = 32),
  primary key (batch, position)
);

create function gateway.audit_refuse_change() returns trigger language plpgsql as $$
begin
  -- Retention drops days that are over and says so in its own transaction.
  if tg_op = 'DELETE' and current_setting('townhall.audit_retention', true) = 'on' then
    return old;
  end if;
  raise exception 'The audit log is append-only; % is refused.', tg_op using errcode = 'insufficient_privilege';
end
$$;
create trigger audit_entries_append_only before update or delete on gateway.audit_entries
  for each row execute function gateway.audit_refuse_change();
create trigger audit_entries_no_truncate before truncate on gateway.audit_entries
  for each statement execute function gateway.audit_refuse_change();
create trigger audit_batches_append_only before update or delete on gateway.audit_batches
  for each row execute function gateway.audit_refuse_change();
create trigger audit_batches_no_truncate before truncate on gateway.audit_batches
  for each statement execute function gateway.audit_refuse_change();
create trigger audit_links_append_only before update or delete on gateway.audit_links
  for each row execute function gateway.audit_refuse_change();
create trigger audit_links_no_truncate before truncate on gateway.audit_links
  for each statement execute function gateway.audit_refuse_change();
