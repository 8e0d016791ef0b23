-- Env: keys and secrets that an administrator writes at run time. No value is here in the clear; what opens
-- them is the master key, which is never in the database.
create table gateway.env_variables (
  key text primary key check (key ~ '^[A-Z][A-Z0-9_]{0,127}$'),
  -- v1.kid.wrappedDEK.nonce.ct.tag, bound to this table, key and version.
  sealed text not null,
  version bigint not null unique,
  updated_at timestamptz not null default gateway.townhall_now()
);
-- Never used twice, so that an old value cannot be put back in the place of a newer one.
create sequence gateway.env_versions;

-- One sealed word that every server opens before it touches anything else. The key that it is under is the
-- key under which values are written, so a change of keys happens in one place and at one moment.
create table gateway.env_canary (
  only_row boolean primary key default true check (only_row),
  sealed text not null
);
