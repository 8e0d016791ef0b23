-- Usage: one record a call, written in the transaction that settles it.
create table gateway.usage_records (
  -- `use_` and the second half of the hold's id, so that a hold cannot have two.
  usage_id text primary key,
  request_id text not null,
  -- Null for an administrator's call.
  user_id text,
  bureau_id text,
  token_id text not null,
  action text not null,
  model text,
  provider text,
  -- Tokens by disjoint kinds.
  input_tokens bigint not null check (input_tokens >= 0),
  cached_input_tokens bigint not null check (cached_input_tokens >= 0),
  cache_write_tokens bigint not null check (cache_write_tokens >= 0),
  output_tokens bigint not null check (output_tokens >= 0),
  reasoning_tokens bigint not null check (reasoning_tokens >= 0),
  -- What is not counted in tokens: image, videoSecond, speechCharacter, audioSecond.
  units jsonb not null,
  credits bigint not null check (credits >= 0),
  outcome text not null check (outcome in ('completed', 'client_closed', 'upstream_failed', 'rejected')),
  estimated boolean not null,
  ttft_ms bigint check (ttft_ms >= 0),
  duration_ms bigint not null check (duration_ms >= 0),
  created_at timestamptz not null default gateway.townhall_now()
);

-- A user's own list and its groups, a Bureau's, everybody's, and one call's.
create index usage_records_user on gateway.usage_records (user_id, created_at, usage_id) where user_id is not null;
create index usage_records_bureau on gateway.usage_records (bureau_id, created_at, usage_id) where bureau_id is not null;
create index usage_records_time on gateway.usage_records (created_at, usage_id);
create index usage_records_request on gateway.usage_records (request_id);

-- A count as a provider or a program may have given it; what is no count is none.
create function gateway.usage_count(given jsonb) returns bigint language sql immutable as $$
  select case when jsonb_typeof(given) = 'number' then least(greatest(round(given::numeric), 0), 9007199254740991)::bigint else 0 end
$$;

-- The port of the ledger, which writes records with their settlements and in one round trip. A call has request_id,
-- user_id, bureau_id, token_id, action, model and provider; facts are UsageFacts, of which any may be missing.
create function gateway.usage_add_all(usage_ids text[], calls jsonb[], facts jsonb[], credits bigint[]) returns void language plpgsql as $$
begin
  insert into gateway.usage_records (usage_id, request_id, user_id, bureau_id, token_id, action, model, provider,
    input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens, units, credits, outcome,
    estimated, ttft_ms, duration_ms)
  select g.id, c.request_id, c.user_id, c.bureau_id, c.token_id, coalesce(f.action, c.action), coalesce(f.model, c.model), coalesce(f.provider, c.provider),
    gateway.usage_count(f.tokens -> 'input'), gateway.usage_count(f.tokens -> 'cachedInput'), gateway.usage_count(f.tokens -> 'cacheWrite'),
    gateway.usage_count(f.tokens -> 'output'), gateway.usage_count(f.tokens -> 'reasoning'), coalesce(nullif(f.units, 'null'), '{}'),
    g.charged, coalesce(f.outcome, 'upstream_failed'), coalesce(f.estimated, true),
    case when jsonb_typeof(f."ttftMs") = 'number' then gateway.usage_count(f."ttftMs") end, gateway.usage_count(f."durationMs")
  from unnest($1, $2, $3, $4) as g (id, call, facts, charged),
    lateral jsonb_to_record(g.call) as c (request_id text, user_id text, bureau_id text, token_id text, action text, model text, provider text),
    lateral jsonb_to_record(g.facts) as f (action text, model text, provider text, tokens jsonb, units jsonb, outcome text,
      estimated boolean, "ttftMs" jsonb, "durationMs" jsonb)
  on conflict do nothing;
end
$$;

create function gateway.usage_add(usage_id text, call jsonb, facts jsonb, credits bigint) returns void language sql as $$
  select gateway.usage_add_all(array[$1], array[$2], array[$3], array[$4])
$$;
