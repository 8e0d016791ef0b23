-- In a session of mode plan the model may only call tools that declare themselves read-only.
alter table agent.sessions_sessions add column mode text not null default 'work' check (mode in ('work', 'plan'));
