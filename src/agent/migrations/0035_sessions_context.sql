-- Pruning of old tool outputs is part of what a conversation is rebuilt from.
drop index agent.sessions_events_of_talk;
create index sessions_events_of_conversation on agent.sessions_events (session_id, seq)
  where type in ('run.started', 'message.completed', 'compaction.ended', 'context.pruned', 'queue.removed');

-- Usage of a session beside its tokens: those that the provider read from its cache, those of the reasoning, and credits.
alter table agent.sessions_sessions
  add column cached_input_tokens bigint not null default 0,
  add column reasoning_tokens bigint not null default 0,
  add column credits bigint not null default 0;
