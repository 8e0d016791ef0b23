-- Usage records say with which error code a call failed, and how many attempts it took.
alter table gateway.usage_records
  -- Null for a call that was answered or whose client left.
  add column failure_code text,
  -- Null for calls without attempts, such as actions of a project, and for records of earlier versions.
  add column attempts integer check (attempts >= 0);

alter type gateway.credits_line add attribute failure_code text, add attribute attempts integer;

create or replace function gateway.usage_add_lines(lines gateway.credits_line[], charged bigint[], tx_ids bigint[]) returns void language sql as $$
  insert into gateway.usage_records (usage_id, request_id, user_id, bureau_id, token_id, action, model, provider,
    input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens, units, credits, outcome,
    estimated, ttft_ms, duration_ms, tx_id, failure_code, attempts)
  select l.usage_id, l.request_id, l.user_id, l.bureau_id, l.token_id, l.action, l.model, l.provider,
    l.input_tokens, l.cached_input_tokens, l.cache_write_tokens, l.output_tokens, l.reasoning_tokens, l.units, charged[l.ordinality], l.outcome,
    l.estimated, l.ttft_ms, l.duration_ms, tx_ids[l.ordinality], l.failure_code, l.attempts
  from unnest(lines) with ordinality l
  on conflict do nothing
$$;

create or replace function gateway.usage_add_all(usage_ids text[], calls jsonb[], facts jsonb[], credits bigint[]) returns void language plpgsql as $$
begin
  insert into gateway.usage_records (usage_id, request_id, user_id, bureau_id, token_id, action, model, provider,
    input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens, units, credits, outcome,
    estimated, ttft_ms, duration_ms, failure_code, attempts)
  select g.id, c.request_id, c.user_id, c.bureau_id, c.token_id, coalesce(f.action, c.action), coalesce(f.model, c.model), coalesce(f.provider, c.provider),
    gateway.usage_count(f.tokens -> 'input'), gateway.usage_count(f.tokens -> 'cachedInput'), gateway.usage_count(f.tokens -> 'cacheWrite'),
    gateway.usage_count(f.tokens -> 'output'), gateway.usage_count(f.tokens -> 'reasoning'), coalesce(nullif(f.units, 'null'), '{}'),
    g.charged, coalesce(f.outcome, 'upstream_failed'), coalesce(f.estimated, true),
    case when jsonb_typeof(f."ttftMs") = 'number' then gateway.usage_count(f."ttftMs") end, gateway.usage_count(f."durationMs"),
    f."failureCode", case when jsonb_typeof(f.attempts) = 'number' then least(gateway.usage_count(f.attempts), 2147483647)::integer end
  from unnest($1, $2, $3, $4) as g (id, call, facts, charged),
    lateral jsonb_to_record(g.call) as c (request_id text, user_id text, bureau_id text, token_id text, action text, model text, provider text),
    lateral jsonb_to_record(g.facts) as f (action text, model text, provider text, tokens jsonb, units jsonb, outcome text,
      estimated boolean, "ttftMs" jsonb, "durationMs" jsonb, "failureCode" text, attempts jsonb)
  on conflict do nothing;
end
$$;

create or replace function gateway.usage_correct(of_usage text, facts jsonb, charged bigint) returns void language sql as $$
  update gateway.usage_records u
  set action = coalesce(f.action, u.action), model = coalesce(f.model, u.model), provider = coalesce(f.provider, u.provider),
    input_tokens = gateway.usage_count(f.tokens -> 'input'), cached_input_tokens = gateway.usage_count(f.tokens -> 'cachedInput'),
    cache_write_tokens = gateway.usage_count(f.tokens -> 'cacheWrite'), output_tokens = gateway.usage_count(f.tokens -> 'output'),
    reasoning_tokens = gateway.usage_count(f.tokens -> 'reasoning'), units = coalesce(nullif(f.units, 'null'), '{}'),
    credits = charged, outcome = coalesce(f.outcome, u.outcome), estimated = coalesce(f.estimated, true),
    ttft_ms = case when jsonb_typeof(f."ttftMs") = 'number' then gateway.usage_count(f."ttftMs") end,
    duration_ms = gateway.usage_count(f."durationMs"), failure_code = f."failureCode",
    attempts = case when jsonb_typeof(f.attempts) = 'number' then least(gateway.usage_count(f.attempts), 2147483647)::integer end
  from jsonb_to_record(facts) as f (action text, model text, provider text, tokens jsonb, units jsonb, outcome text,
    estimated boolean, "ttftMs" jsonb, "durationMs" jsonb, "failureCode" text, attempts jsonb)
  where u.usage_id = of_usage
$$;
