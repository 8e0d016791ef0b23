// Reasoning levels: the one place that says whether a model knows an effort. An effort is never dropped or
// replaced silently; a model that lacks it refuses the call.
import { Problem } from '../../../kernel/problem.ts';

export interface Reasoning {
  efforts: { id: string; name: string }[];
  default_effort: string;
}

interface Reasoner {
  id: string;
  reasoning?: Reasoning | undefined;
}

/** The asked effort when the model has it, undefined when none was asked. Throws a 422 that names the allowed ids. */
export function checkEffort(model: Reasoner, asked: string | null | undefined): string | undefined {
  if (asked === undefined || asked === null) return undefined;
  const ids = model.reasoning?.efforts.map((effort) => effort.id) ?? [];
  if (ids.includes(asked)) return asked;
  const allowed = ids.length === 0 ? 'it has no reasoning efforts' : `allowed are ${ids.join(', ')}`;
  throw new Problem(
    'impossible',
    'unsupported_reasoning_effort',
    `The model ${model.id} does not know this reasoning effort; ${allowed}.`,
    {
      param: 'reasoning_effort',
      ...(ids.length > 0
        ? { details: [{ path: 'reasoning_effort', message: `must be one of ${ids.join(', ')}` }] }
        : {}),
    },
  );
}

/** The asked effort, or the model's default where none was asked. */
export function effortOrDefault(model: Reasoner, asked: string | undefined): string | undefined {
  return checkEffort(model, asked) ?? model.reasoning?.default_effort;
}

/** Whether the effort is above the model's default: such a model may think for minutes before it speaks. */
export function isAboveDefaultEffort(model: Reasoner, effort: string | undefined): boolean {
  if (effort === undefined || model.reasoning === undefined) return false;
  const rank = (id: string) => model.reasoning?.efforts.findIndex((candidate) => candidate.id === id) ?? -1;
  return rank(effort) > rank(model.reasoning.default_effort);
}
