// How long the console waits for the agent, and a page for the console.

// A stopped process (SIGSTOP) still accepts connections, so only a deadline detects it. Operations
// that run code of plugins have the long deadline of the agent's client.
const agentDeadlinesMs: Readonly<Record<string, number>> = {
  // The overview has a deadline of its own, after which it reports that the agent does not answer.
  'console.overview': Infinity,
  // git may take a minute for a worktree, and so may the copy of its files for a fork.
  'sessions.create': 75_000,
  'sessions.fork': 150_000,
  // Files are compared within 15 seconds and restored within 15 more.
  'sessions.getChanges': 35_000,
  'sessions.undoRun': 50_000,
  'sessions.redoRun': 50_000,
  'services.controlService': 60_000,
  'services.callCommand': Infinity,
  'services.callAction': Infinity,
  'console.callPlugin': Infinity,
};
const defaultAgentDeadlineMs = 15_000;
// Above the deadline of the agent's client, which is ten minutes.
const longestPageDeadlineMs = 700_000;

/** How long the console waits for the agent's answer; Infinity leaves it to the agent's client. */
export function agentDeadlineMs(operation: string): number {
  return agentDeadlinesMs[operation] ?? defaultAgentDeadlineMs;
}

/**
 * How long a page waits for the console: longer than the console for the agent, so that it gets the
 * console's error.
 */
export function pageDeadlineMs(operation: string): number {
  if (operation === 'console.overview') return 10_000;
  return Math.min(agentDeadlineMs(operation) + 5_000, longestPageDeadlineMs);
}
