// What a call can say that the hub has no member for, in the options by which each provider's package takes it: one
// tool a turn, and how strictly a schema binds. A provider without a word for it refuses the call.
import type { ProviderEntry } from '../catalog/models-file.ts';
import type { ProviderOptions } from '../hub/language-model.ts';
import { Problem } from '../../../kernel/problem.ts';

/** Undefined members say nothing. */
export interface CallerChoices {
  /** Whether the model may call several tools in one turn; absent where the caller leaves it to the model. */
  parallelToolCalls?: boolean | undefined;
  /** Whether answers must follow the schema to the letter. A schema that does not say so only guides. */
  strictSchema?: boolean | undefined;
}

/** The options. Throws a 422 for a model that cannot be held to one tool a turn. */
export function providerOptionsFor(
  { id, kind, name }: Pick<ProviderEntry, 'id' | 'kind' | 'name'>,
  { parallelToolCalls, strictSchema }: CallerChoices,
): ProviderOptions {
  const strict = strictSchema === undefined ? {} : { strictJsonSchema: strictSchema };
  switch (kind) {
    case 'openai':
      return { openai: { ...strict, ...(parallelToolCalls === undefined ? {} : { parallelToolCalls }) } };
    case 'openai-compatible':
      // What the package has no name for goes into the request as it is, from under the provider's own name.
      return {
        openaiCompatible: strict,
        ...(parallelToolCalls === undefined
          ? {}
          : { [packageName(id)]: { parallel_tool_calls: parallelToolCalls } }),
      };
    case 'anthropic':
      // Its schemas always bind.
      return parallelToolCalls === false ? { anthropic: { disableParallelToolUse: true } } : {};
    default:
      if (parallelToolCalls !== false) return {};
      throw new Problem(
        'impossible',
        'unsupported_by_model',
        `parallel_tool_calls cannot be false here: the format of ${name} has no switch for it, so its models cannot be held to one tool call a turn.`,
        {
          param: 'parallel_tool_calls',
        },
      );
  }
}

// The package's name for its options: the first part of the provider's, its hyphens and underscores gone.
function packageName(id: string): string {
  return (id.split('.')[0] ?? id).replace(/[_-]([a-z])/g, (_match, letter: string) => letter.toUpperCase());
}
