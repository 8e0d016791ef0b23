// Reasoning efforts of models. A model without the effort rejects the call; only the
// messages format substitutes the nearest effort (formats/messages/effort.ts).
import { Problem } from '../../../kernel/problem.ts';

export interface Reasoning {
  /** From the least reasoning to the most; `isAboveDefaultEffort` depends on this order. */
  efforts: { id: string; name: string }[];
  default_effort: string;
}

interface ReasoningModel {
  id: string;
  reasoning?: Reasoning | undefined;
}

/**
 * The requested effort, or undefined if none was requested. Throws a 422 with the allowed ids if the model
 * lacks the effort; `param` is the caller's name for the member.
 */
export function checkEffort(
  model: ReasoningModel,
  requestedEffort: string | null | undefined,
  param = 'reasoning_effort',
): string | undefined {
  if (requestedEffort === undefined || requestedEffort === null) return undefined;
  const ids = model.reasoning?.efforts.map((effort) => effort.id) ?? [];
  if (ids.includes(requestedEffort)) return requestedEffort;
  const allowedText = ids.length === 0 ? 'it has no reasoning efforts' : `allowed are ${ids.join(', ')}`;
  throw new Problem(
    'impossible',
    'unsupported_reasoning_effort',
    `The model ${model.id} does not support this reasoning effort; ${allowedText}.`,
    {
      param,
      ...(ids.length > 0 ? { details: [{ path: param, message: `must be one of ${ids.join(', ')}` }] } : {}),
    },
  );
}

/** The requested effort, or the model's default. Throws like `checkEffort`. */
export function effortOrDefault(
  model: ReasoningModel,
  requestedEffort: string | undefined,
  param?: string,
): string | undefined {
  return checkEffort(model, requestedEffort, param) ?? model.reasoning?.default_effort;
}

/**
 * Whether the effort is above the model's default. Such a call may be silent for
 * minutes before its first output.
 */
export function isAboveDefaultEffort(model: ReasoningModel, effort: string | undefined): boolean {
  if (effort === undefined || model.reasoning === undefined) return false;
  const rank = (id: string) => model.reasoning?.efforts.findIndex((candidate) => candidate.id === id) ?? -1;
  return rank(effort) > rank(model.reasoning.default_effort);
}
