-- What every turn writes is looked at no more often than it has to be. Events and runs are only ever inserted by the
-- statement that has just written the row of their session, so looking at that row again for each of them finds nothing
-- new; what removes a session removes them. The indexes that go served single looks, which the primary key and the index
-- of the talk answer as well.
alter table agent.sessions_events drop constraint sessions_events_session_id_fkey;
alter table agent.sessions_runs drop constraint sessions_runs_session_id_fkey, drop constraint sessions_runs_agent_id_fkey;

drop index agent.sessions_events_of_messages;
drop index agent.sessions_events_of_message_starts;
drop index agent.sessions_events_of_run_edges;
