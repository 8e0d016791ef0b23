-- Rules for tool calls that were granted over the API; those of the configuration are in its file.
create table agent.permissions_rules (
  rule_id text primary key,
  agent_id text not null references agent.tokens_agents,
  -- Null for a rule of the project, which holds in all sessions of the agent.
  session_id text references agent.sessions_sessions on delete cascade,
  -- The id of that session in the API.
  session_public_id text,
  tool text not null,
  pattern text,
  effect text not null check (effect in ('allow', 'ask', 'deny')),
  created_by text not null,
  created_at timestamptz not null default agent.townhall_now(),
  expires_at timestamptz,
  constraint permissions_rules_once unique nulls not distinct (agent_id, session_id, tool, pattern, effect)
);
