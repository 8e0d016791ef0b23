// Errors of sessions, runs and messages that several files throw.
import { Problem } from '../../../kernel/problem.ts';

export function sessionNotFound(): Problem {
  return new Problem('not_found', 'session_not_found', 'There is no session with this id.', {
    param: 'sessionId',
  });
}

export function runNotFound(): Problem {
  return new Problem('not_found', 'run_not_found', 'There is no run with this id in the session.', {
    param: 'runId',
  });
}

export function messageNotFound(): Problem {
  return new Problem('not_found', 'message_not_found', 'There is no message with this id in the session.', {
    param: 'messageId',
  });
}

export function capacityProblem(maxQueuedRuns: number): Problem {
  return new Problem(
    'rate_limited',
    'rate_limited',
    `The agent executes its maximum number of runs, and ${maxQueuedRuns} inputs wait for a free place already; try again later.`,
    { headers: { 'retry-after': '5' } },
  );
}

/** Whether the database did not answer, so that work on other sessions would fail as well. */
export function isUnavailable(error: unknown): boolean {
  return error instanceof Problem && error.kind === 'unavailable';
}
