// The error fields in the log line of a failed request.
import type { Problem } from '../problem.ts';
import type { CallNote } from './operation.ts';

/**
 * The error code, the attempts, and the provider's response. The response is the problem's
 * cause, a plain object `{status, words}` whose text contains no address and no key.
 */
export function failureNote({ code, headers, cause }: Problem): CallNote {
  const isProviderResponse = typeof cause === 'object' && cause !== null && !(cause instanceof Error);
  const { status, words } = (isProviderResponse ? cause : {}) as { status?: unknown; words?: unknown };
  return {
    code,
    attempts: headers['x-townhall-attempts'],
    providerStatus: typeof status === 'number' ? status : undefined,
    providerWords: typeof words === 'string' ? words : undefined,
  };
}
