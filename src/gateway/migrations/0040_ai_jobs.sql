-- Models: jobs that make images and videos, and what they made. The bytes are in the storage, under the media's id.
create table gateway.ai_jobs (
  job_id text primary key,
  kind text not null check (kind in ('image', 'video')),
  -- Who may ask for it. No reference: a job outlives nobody's removal, and ends by its age.
  owner_kind text not null check (owner_kind in ('user', 'admin')),
  owner_id text not null,
  model text not null,
  -- What was asked for; null once the job has come to an end, since input images may be large.
  request jsonb,
  status text not null default 'queued' check (status in ('queued', 'running', 'succeeded', 'failed', 'canceled')),
  progress real not null default 0 check (progress between 0 and 1),
  error jsonb,
  -- Counts up each time that a process takes the job. Only the last to take it may write its end.
  attempt integer not null default 0,
  -- Until when it is somebody's business. A process that runs the job renews it; one that died does not.
  lease_until timestamptz not null,
  created_at timestamptz not null default gateway.townhall_now(),
  finished_at timestamptz,
  constraint ai_jobs_end check ((status in ('succeeded', 'failed', 'canceled')) = (finished_at is not null)),
  constraint ai_jobs_error check ((status = 'failed') = (error is not null))
);
-- For the sweeper, which looks every few seconds, and for how many jobs of one owner are open.
create index ai_jobs_open on gateway.ai_jobs (owner_id, lease_until) where status in ('queued', 'running');
create index ai_jobs_age on gateway.ai_jobs (created_at);

create table gateway.ai_media (
  media_id text primary key,
  job_id text not null references gateway.ai_jobs on delete cascade,
  position integer not null,
  media_type text not null,
  width integer not null,
  height integer not null,
  duration_seconds double precision,
  -- The row is there before the bytes, so that bytes whose job never came to its end are found and removed.
  is_ready boolean not null default false,
  keep_until timestamptz not null
);
create index ai_media_job on gateway.ai_media (job_id, position);
create index ai_media_age on gateway.ai_media (keep_until);
