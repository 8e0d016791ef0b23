-- Later changes of a message's metadata (cancelled, expired, replaced): by message for the list of messages, and among the
-- events of which a conversation is rebuilt, because a model does not get a message that was replaced. It is also told
-- of files that were set back.
create index sessions_events_of_updates on agent.sessions_events (session_id, (data ->> 'messageId'))
  where type = 'message.updated';

drop index if exists agent.sessions_events_of_conversation;
create index sessions_events_of_projection on agent.sessions_events (session_id, seq)
  where type in ('run.started', 'message.completed', 'message.updated', 'compaction.ended', 'context.pruned', 'queue.removed', 'workspace.undone', 'workspace.redone');

-- What waits at the point of a fork.
create index sessions_events_of_queue on agent.sessions_events (session_id, seq) where type = 'queue.added';
