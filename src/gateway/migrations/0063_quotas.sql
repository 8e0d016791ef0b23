-- What one user may have kept: answers of Idempotency-Keys, and media.

-- SHA-256 of the caller. Null for rows of older releases, which a day removes.
alter table gateway.idempotency add column caller bytea;
create index idempotency_caller on gateway.idempotency (caller, expires_at) where state = 'done';

-- Of the stored file. 0 for media of older releases, which a week removes.
alter table gateway.ai_media add column bytes bigint not null default 0 check (bytes >= 0);
create index ai_jobs_owner on gateway.ai_jobs (owner_kind, owner_id);
