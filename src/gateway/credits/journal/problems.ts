// The 503 of a call whose charge cannot be made durable. The journal retries every 5 s.
import { Problem } from '../../../kernel/problem.ts';

export function journalUnavailable(cause: unknown): Problem {
  return new Problem('unavailable', 'journal_unavailable', 'Charges cannot be recorded at the moment.', {
    cause,
    headers: { 'retry-after': '5' },
  });
}
