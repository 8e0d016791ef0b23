-- The notes of the plugin `memory`. A note with a key is the one of that key; a later one takes its place.
create table agent.plugins_notes (
  note_id text primary key,
  agent_id text not null references agent.tokens_agents,
  key text,
  text text not null check (char_length(text) <= 16384),
  -- The configuration without stems, since a note may be in any language.
  search tsvector not null generated always as (to_tsvector('simple', coalesce(key, '') || ' ' || text)) stored,
  created_at timestamptz not null default agent.townhall_now(),
  updated_at timestamptz not null default agent.townhall_now(),
  unique (agent_id, key)
);

create index plugins_notes_by_words on agent.plugins_notes using gin (search);
create index plugins_notes_by_age on agent.plugins_notes (agent_id, updated_at desc);
