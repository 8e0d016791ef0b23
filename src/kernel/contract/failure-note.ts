// What the line of a failed request says of its error.
import type { Problem } from '../problem.ts';
import type { CallNote } from './operation.ts';

/**
 * The error code, the attempts, and what a provider answered. The last is a plain object as the cause, `{status, words}`,
 * whose words have no address and no key in them.
 */
export function failureNote({ code, headers, cause }: Problem): CallNote {
  const isAnswer = typeof cause === 'object' && cause !== null && !(cause instanceof Error);
  const { status, words } = (isAnswer ? cause : {}) as { status?: unknown; words?: unknown };
  return {
    code,
    attempts: headers['x-townhall-attempts'],
    providerStatus: typeof status === 'number' ? status : undefined,
    providerWords: typeof words === 'string' ? words : undefined,
  };
}
