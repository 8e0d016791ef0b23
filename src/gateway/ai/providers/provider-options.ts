// Options for the provider packages: builds options for call members that have no counterpart in the hub, and
// checks options that a caller sends.
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { ProviderEntry } from '../catalog/models-file.ts';
import type { ModelCall, ProviderOptions } from '../hub/language-model.ts';
import { findForm } from '../upstream/member-names.ts';
import { refuseUnsafeMembers } from '../upstream/request-guard.ts';
import { adapterOfKind } from './adapters.ts';
import type { CallerChoices } from './adapter/provider-adapter.ts';
import { unsupportedMember } from '../hub/problems.ts';

/**
 * The choices as options of the provider's package. Throws a 422 for a model that cannot
 * be limited to one tool call per turn; `param` is the caller's name of that member.
 */
export function providerOptionsFor(
  provider: Pick<ProviderEntry, 'id' | 'kind' | 'name'>,
  choices: CallerChoices,
  param = 'parallel_tool_calls',
): ProviderOptions {
  const { callOptions, limitsParallelTools } = adapterOfKind(provider.kind);
  if (choices.parallelToolCalls === false && limitsParallelTools !== true)
    throw unsupportedMember(
      param,
      `${param} cannot be ${param === 'parallel_tool_calls' ? 'false' : 'true'} for this model: the ` +
        `format of ${provider.name} cannot limit a model to one tool call per turn.`,
    );
  return callOptions?.(choices, provider.id) ?? {};
}

/**
 * Throws a 400 for options that may not be in a request, or that another member of the call determines: the
 * packages copy a caller's options into the request unchanged.
 */
export function refuseProviderOptions(
  { providerEntry }: CatalogModel,
  { providerOptions = {} }: Pick<ModelCall, 'providerOptions'>,
): void {
  for (const [provider, members] of Object.entries(providerOptions)) {
    const path = `providerOptions.${provider}`;
    refuseUnsafeMembers(members, providerEntry, { path });
    const name = findForm(Object.keys(members), callMembers);
    if (name === undefined) continue;
    const remedy = /effort|thinking/i.test(name)
      ? 'reasoning_effort at the top level'
      : 'the corresponding member of the call';
    const param = `${path}.${name}`;
    throw new Problem(
      'bad_request',
      'invalid_request',
      `The member ${param} is refused; send ${remedy} instead.`,
      { param },
    );
  }
}

/** Members of the request that the call itself determines. */
const callMembers = [
  'model',
  'messages',
  'stream',
  'stream_options',
  'n',
  'max_tokens',
  'max_completion_tokens',
  'maxCompletionTokens',
  'max_output_tokens',
  'tools',
  'reasoning_effort',
  'reasoningEffort',
  'effort',
  'thinking',
  'thinkingConfig',
  'forceReasoning',
  'mcpServers',
  'fallbacks',
];
