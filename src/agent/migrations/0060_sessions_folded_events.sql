-- A finished text, input or output is in the log twice: in the event of its part and in the completed message. In
-- sessions at rest the event of the part refers to the message instead: `seq` of the message's event, the index `part`,
-- the `member` that both have, and `bytes`, the size of the event as a whole.
alter table agent.sessions_events add column folded jsonb;
-- Up to this seq the events of a session are folded.
alter table agent.sessions_sessions add column folded_seq integer not null default 0;

-- The data of a folded event as it was written.
create function agent.sessions_unfolded(event_session text, event_data jsonb, reference jsonb) returns jsonb language sql stable as $$
  select event_data || jsonb_build_object(
    reference ->> 'member',
    message.data #> array['message', 'parts', reference ->> 'part', reference ->> 'member']
  )
  from agent.sessions_events message
  where message.session_id = event_session and message.seq = (reference ->> 'seq')::integer
$$;
