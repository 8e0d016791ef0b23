// The room of sessions: the log, the runs that write it, and the routes that start them.
import type { RunTurn } from './turn.ts';

export { createRuns, type Runs } from './runs.ts';
export { sessions } from './sessions.ts';
export { sessionStore, type SessionStore } from './store.ts';

/** Loads the tool loop. The package behind it takes a while to load, and the start has other things to wait for meanwhile. */
export async function loadTurn(): Promise<RunTurn> {
  const { runTurn } = await import('./turn.ts');
  return runTurn;
}
