-- The agents of one database, each known by its name, and the digests of their tokens. A token itself is
-- stored nowhere but in the file of its owner.
create table agent.tokens_agents (
  agent_id text primary key,
  name text not null unique,
  created_at timestamptz not null default agent.townhall_now()
);

create table agent.tokens_tokens (
  token_id text primary key,
  agent_id text not null references agent.tokens_agents,
  name text not null,
  -- SHA-256; unique over all agents, so that no token can open two of them.
  digest bytea not null unique check (octet_length(digest) = 32),
  last4 text not null,
  created_at timestamptz not null default agent.townhall_now(),
  expires_at timestamptz,
  revoked_at timestamptz
);

create index tokens_tokens_by_agent on agent.tokens_tokens (agent_id) where revoked_at is null;
