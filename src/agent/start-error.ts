import { TimeoutError } from '../kernel/async.ts';
import { Problem } from '../kernel/problem.ts';

/**
 * Why a plugin or a service did not start, for its status. Error messages of other code may contain
 * secrets, so only the message of a Problem is shown.
 */
export function describeStartError(error: unknown, startMs: number): string {
  if (error instanceof TimeoutError) return `It did not start within ${startMs / 1000} seconds.`;
  return error instanceof Problem ? error.message : 'It failed to start; the log has the details.';
}
