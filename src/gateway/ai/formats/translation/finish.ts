// Checks how an answer ended, for the translated formats.
import { Problem } from '../../../../kernel/problem.ts';
import type { FinishReason } from '../../hub/language-model.ts';
import { upstreamFailed } from '../../hub/problems.ts';

/** Throws for a failed answer: all finish reasons of the formats describe a usable answer. */
export function requireSuccess({ unified, raw = 'error' }: FinishReason): void {
  if (unified === 'error') throw upstreamFailed(`The model aborted its answer (${raw.slice(0, 64)}).`);
}

/** The failure of a stream without a `finish`. */
export function truncatedAnswer(): Problem {
  return new Problem(
    'upstream_failed',
    'upstream_truncated',
    'The model stopped before its answer was complete.',
  );
}
