-- Search of sessions by words and by metadata. The texts are indexed where they are, without a copy.

-- The words of a message, from the data of its `message.completed`. Only its first 50,000 characters: a tsvector may have
-- 1 MiB, and a longer one would refuse the write of the message. The cost keeps the planner from computing it for many
-- rows: the embedded database has no statistics, and would prefer another index to the one below.
create function agent.sessions_message_words(data jsonb) returns tsvector
  language sql immutable parallel safe cost 100000 as $$
  select to_tsvector('pg_catalog.simple', left(coalesce(string_agg(part.value ->> 'text', ' '), ''), 50000))
  from jsonb_array_elements(data -> 'message' -> 'parts') as part (value)
  where part.value ->> 'type' = 'text'
$$;

create function agent.sessions_title_words(title text) returns tsvector
  language sql immutable parallel safe cost 100000 as $$ select to_tsvector('pg_catalog.simple', title) $$;

create index sessions_events_by_words on agent.sessions_events using gin (agent.sessions_message_words(data))
  where type = 'message.completed';
create index sessions_sessions_by_title on agent.sessions_sessions using gin (agent.sessions_title_words(title))
  where title is not null;
create index sessions_sessions_by_metadata on agent.sessions_sessions using gin (metadata jsonb_path_ops)
  where metadata <> '{}';
