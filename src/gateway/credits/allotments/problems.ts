// The errors of reserving credits.
import { Problem } from '../../../kernel/problem.ts';

/** 402 that names the available credits in its message and its details. */
export function insufficientCredits(price: bigint, affordable: bigint): Problem {
  const availableCredits = affordable > 0n ? affordable : 0n;
  return new Problem(
    'insufficient_credits',
    'insufficient_credits',
    `This call may cost ${price} credits, and ${availableCredits} are available.`,
    {
      details: [
        { path: 'needed_credits', message: String(price) },
        { path: 'affordable_credits', message: String(availableCredits) },
      ],
    },
  );
}

/** 503: the credits exist, but other calls or gateways do not release them in time. */
export function creditsBusy(message: string, cause?: unknown): Problem {
  return new Problem('unavailable', 'credits_busy', message, { cause, headers: { 'retry-after': '2' } });
}

export function databaseUnavailable(message: string, cause?: unknown): Problem {
  return new Problem('unavailable', 'database_unavailable', message, {
    cause,
    headers: { 'retry-after': '2' },
  });
}

export function isDatabaseUnavailable(error: unknown): boolean {
  return error instanceof Problem && error.code === 'database_unavailable';
}

// SQLSTATE classes of transient failures: transaction rollback, such as a deadlock,
// and errors of the server itself.
const transientClasses = ['40', 'XX'];

/** Whether the failure of a statement is transient, rather than caused by its data. */
export function isTransient(error: unknown): boolean {
  if (isDatabaseUnavailable(error)) return true;
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return transientClasses.includes(code.slice(0, 2));
}

export function isInsufficient(error: unknown): boolean {
  return error instanceof Problem && error.kind === 'insufficient_credits';
}
