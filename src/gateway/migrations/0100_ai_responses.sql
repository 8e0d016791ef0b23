-- Models: responses that their callers asked to store. Input and response are sealed by the master key.
create table gateway.ai_responses (
  response_id text primary key,
  -- The only caller that may read it. No reference: a response ends by its age.
  owner_kind text not null check (owner_kind in ('user', 'admin')),
  owner_id text not null,
  -- The response that this one continues. No reference: a continued response may be deleted.
  previous_id text,
  -- The call's own input items, without those of the continued responses.
  input text not null,
  response text not null,
  -- The sealed bytes, for the quota of the owner and the size of a conversation.
  bytes bigint not null check (bytes >= 0),
  created_at timestamptz not null default gateway.townhall_now(),
  keep_until timestamptz not null
);
create index ai_responses_owner on gateway.ai_responses (owner_kind, owner_id, keep_until);
create index ai_responses_age on gateway.ai_responses (keep_until);
