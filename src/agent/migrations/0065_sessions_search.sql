-- Search of sessions by words and by metadata. The texts are indexed where they are, without a copy.

-- The text of a message from the data of its `message.completed`. Only its first 50,000 characters: a tsvector may have
-- 1 MiB, and a longer one would refuse the write of the message.
create function agent.sessions_message_words(data jsonb) returns tsvector
  language sql immutable parallel safe as $$
  select to_tsvector('pg_catalog.simple', left(coalesce(string_agg(part.value ->> 'text', ' '), ''), 50000))
  from jsonb_array_elements(data -> 'message' -> 'parts') as part (value)
  where part.value ->> 'type' = 'text'
$$;

create index sessions_events_by_words on agent.sessions_events using gin (agent.sessions_message_words(data))
  where type = 'message.completed';
create index sessions_sessions_by_title on agent.sessions_sessions using gin (to_tsvector('pg_catalog.simple', title))
  where title is not null;
create index sessions_sessions_by_metadata on agent.sessions_sessions using gin (metadata jsonb_path_ops)
  where metadata <> '{}';
