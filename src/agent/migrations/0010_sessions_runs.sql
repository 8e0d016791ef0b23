-- Sessions that live on: named by their callers, with a queue, approvals, attachments, forks and text on its way.
alter table agent.sessions_sessions
  -- What callers call it; unique among the sessions of an agent that were not deleted.
  add column public_id text,
  add column title text,
  add column model text,
  add column reasoning_effort text,
  add column system text,
  add column metadata jsonb not null default '{}',
  add column attended boolean not null default false,
  add column chat_id text,
  -- A fork's past: where it left its parent, and every ancestor with the seq up to which it counts, the oldest first.
  add column parent_id text,
  add column fork_seq integer not null default 0,
  add column fork_message_id text,
  add column lineage jsonb not null default '[]',
  add column queue_length integer not null default 0 check (queue_length >= 0),
  add column pending_approvals integer not null default 0 check (pending_approvals >= 0),
  add column message_count integer not null default 0,
  add column input_tokens bigint not null default 0,
  add column output_tokens bigint not null default 0,
  add column archived_at timestamptz,
  -- Forks still read through a session that was deleted; nobody else does.
  add column deleted_at timestamptz;

update agent.sessions_sessions set public_id = session_id;
alter table agent.sessions_sessions alter column public_id set not null;

create unique index sessions_sessions_by_public_id on agent.sessions_sessions (agent_id, public_id) where deleted_at is null;
create unique index sessions_sessions_by_chat on agent.sessions_sessions (agent_id, chat_id) where chat_id is not null and deleted_at is null;
create index sessions_sessions_listed on agent.sessions_sessions (agent_id, created_at desc, session_id desc) where deleted_at is null;
create index sessions_sessions_by_parent on agent.sessions_sessions using gin (lineage jsonb_path_ops) where lineage <> '[]';

-- What a conversation is rebuilt from, without the events of how it went.
create index sessions_events_of_talk on agent.sessions_events (session_id, seq)
  where type in ('run.started', 'message.completed', 'compaction.ended', 'queue.removed');
create index sessions_events_by_message on agent.sessions_events (session_id, (data ->> 'messageId'))
  where type in ('message.created', 'message.completed');
create index sessions_events_of_messages on agent.sessions_events (session_id, seq) where type = 'message.completed';
create index sessions_events_of_message_starts on agent.sessions_events (session_id, seq) where type = 'message.created';
create index sessions_events_of_run_edges on agent.sessions_events (session_id, seq) where type in ('run.started', 'run.settled');

alter table agent.sessions_runs
  -- An input that waits has no message, no model and no process yet.
  alter column message_id drop not null,
  alter column model drop not null,
  alter column instance_id drop not null,
  alter column lease_until drop not null,
  -- The order of acceptance; given while the session's row is locked.
  add column place bigint generated always as identity,
  add column delivery text not null default 'queue' check (delivery in ('queue', 'steer', 'interrupt', 'reject', 'compact')),
  add column is_urgent boolean not null default false,
  add column origin text not null default 'execute',
  add column queue_item_id text,
  add column input_message_id text,
  add column preview text not null default '',
  add column reasoning_effort text,
  -- The caller's own id of the input, what it held, and what was answered.
  add column prompt_id text,
  add column prompt_hash text,
  add column receipt jsonb,
  -- The run that took this input at one of its steps.
  add column steered_into text,
  -- Asked of a run that another process has.
  add column cancel_requested boolean not null default false;

create unique index sessions_runs_by_prompt on agent.sessions_runs (session_id, prompt_id) where prompt_id is not null;
create unique index sessions_runs_by_queue_item on agent.sessions_runs (queue_item_id) where queue_item_id is not null;
create index sessions_runs_waiting on agent.sessions_runs (session_id, is_urgent desc, place) where status = 'accepted';

-- Text of parts that are still being written, in pieces; gone once the part is whole in the log.
create table agent.sessions_checkpoints (
  checkpoint_id bigint generated always as identity primary key,
  session_id text not null references agent.sessions_sessions on delete cascade,
  run_id text not null,
  message_id text not null,
  part_id text not null,
  part_type text not null,
  started_seq integer not null,
  start_offset integer not null,
  piece text not null
);

create index sessions_checkpoints_by_session on agent.sessions_checkpoints (session_id, checkpoint_id);

create table agent.sessions_approvals (
  approval_id text primary key,
  session_id text not null references agent.sessions_sessions on delete cascade,
  run_id text not null,
  tool_call_id text not null,
  tool_name text not null,
  input jsonb not null,
  status text not null default 'pending' check (status in ('pending', 'approved', 'denied')),
  reason text,
  -- The token that decided, or policy, expiry or run.
  decided_by text,
  requested_at timestamptz not null default agent.townhall_now(),
  expires_at timestamptz,
  decided_at timestamptz
);

create index sessions_approvals_by_session on agent.sessions_approvals (session_id, requested_at, approval_id);

create table agent.sessions_attachments (
  attachment_id text primary key,
  session_id text not null references agent.sessions_sessions on delete cascade,
  message_id text not null,
  place integer not null,
  file_name text not null,
  content_type text not null,
  encoding text not null,
  size_bytes integer not null,
  -- The file's own name within the folder of the session; nothing of it comes from the caller.
  stored_name text not null,
  created_at timestamptz not null default agent.townhall_now()
);

create index sessions_attachments_by_message on agent.sessions_attachments (session_id, message_id, place);
