// Why a run ended early, in one line for a person.
import type { RunError } from '@townhall/agent';

/**
 * The message with the code, which a person can look up in the guide to errors and in the log; null
 * without an error.
 */
export function runReason(error: RunError | null | undefined): string | null {
  if (error === null || error === undefined) return null;
  return `${error.message} (${error.code})`;
}
