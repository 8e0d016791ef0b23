// Why a run ended early, in one line for a person.
import type { RunError } from '@townhall/agent';

/**
 * The message with the code, by which the guide to errors and the log are searched; null without an
 * error.
 */
export function runReason(error: RunError | null | undefined): string | null {
  if (error === null || error === undefined) return null;
  return `${error.message} (${error.code})`;
}
