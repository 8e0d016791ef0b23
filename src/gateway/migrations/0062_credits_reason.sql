-- Credits: what a project's action charges for stands in the history beside the action. The function of 0052 as it is,
-- but for the one expression that makes the reason of a charge.
do $$
declare
  given text := pg_get_functiondef('gateway.credits_apply(jsonb, double precision)'::regprocedure);
  changed text := replace(given, $part$coalesce(told ->> 'model', known.model));$part$,
    $part$coalesce(nullif(told ->> 'reason', ''), told ->> 'model', known.model));$part$);
begin
  if changed = given then raise exception 'The expression to change is not in gateway.credits_apply.'; end if;
  execute changed;
end
$$;
