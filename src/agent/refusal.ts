// The refusal of an action. Its reason is for the caller and the model, which may correct the call.
import { Problem } from '../kernel/problem.ts';

export function refusal(reason: string, cause?: unknown): Problem {
  return new Problem('impossible', 'action_refused', reason, { cause });
}

/** The `refuse` of actions and service operations. Plugin code passes the reason, so it may be no string. */
export function refuse(reason: string): never {
  throw refusal(String(reason).toWellFormed().slice(0, 2_000));
}
