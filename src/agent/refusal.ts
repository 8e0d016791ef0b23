// The refusal of an action. Its reason is for the caller and the model, which may correct the call.
import { Problem } from '../kernel/problem.ts';
import { startOfText } from '../kernel/start-of-text.ts';

export function refusal(reason: string, cause?: unknown): Problem {
  return new Problem('impossible', 'action_refused', reason, { cause });
}

/** The `refuse` of actions and service operations. Plugin code passes the reason, which may be any value. */
export function refuse(reason: string): never {
  throw refusal(startOfText(String(reason), 2_000));
}
