-- Models: a job that its owner has deleted. The row stays until its age ends it, since charges and limits refer to it.
alter table gateway.ai_jobs add column removed_at timestamptz;
