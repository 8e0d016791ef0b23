-- Cities: the deployments that are on record.
create table gateway.cities_records (
  city_id text primary key check (city_id ~ '^[A-Za-z0-9_-]{1,128}$'),
  name text not null,
  base_url text not null,
  target text not null,
  version text not null,
  status text not null default 'live' check (status in ('live', 'retired')),
  deployed_at timestamptz not null default gateway.townhall_now(),
  created_at timestamptz not null default gateway.townhall_now()
);
