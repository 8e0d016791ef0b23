-- Models: alarms of a usage that cannot be, by user. Several within an hour stop the user's paid calls on every replica,
-- also after a restart. An administrator who unblocks the user deletes them.
create table gateway.ai_usage_alarms (
  alarm_id bigint generated always as identity primary key,
  user_id text not null,
  created_at timestamptz not null default gateway.townhall_now()
);
create index ai_usage_alarms_user on gateway.ai_usage_alarms (user_id, created_at);
create index ai_usage_alarms_age on gateway.ai_usage_alarms (created_at);
