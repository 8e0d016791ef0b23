// The room of sessions: the log, the runs that write it, and the routes that start them.
export { createRuns, type Runs } from './runs.ts';
export { sessions } from './sessions.ts';
export { sessionStore, type SessionStore } from './store.ts';
