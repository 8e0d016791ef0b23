-- What the plugin `schedule` is to have done later. The job of an occurrence carries its `due_at`, and only the one
-- that is still due here is run: a job that comes a second time finds another time or none.
create table agent.plugins_schedules (
  schedule_id text primary key,
  agent_id text not null references agent.tokens_agents,
  instructions text not null check (char_length(instructions) <= 16384),
  -- Five members of cron; null for what happens once.
  cron text,
  time_zone text not null default 'UTC',
  -- Null once it is over.
  due_at timestamptz,
  last_run_id text,
  last_due_at timestamptz,
  created_at timestamptz not null default agent.townhall_now()
);

create index plugins_schedules_due on agent.plugins_schedules (agent_id, due_at) where due_at is not null;
