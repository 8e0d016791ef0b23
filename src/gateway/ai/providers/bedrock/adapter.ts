// Amazon Bedrock: the Converse format, with frames of AWS's event stream encoding. The SDK package gets a
// placeholder for an API key, so that it does not sign requests itself; the transport signs them.
import { Problem } from '../../../../kernel/problem.ts';
import type { ModelCall, ProviderOptions } from '../../hub/language-model.ts';
import {
  type ProviderAdapter,
  type SdkFormat,
  type SdkModelEntry,
  translatedEffort,
} from '../adapter/provider-adapter.ts';
import { unsupportedMember } from '../../hub/problems.ts';

const converse: SdkFormat = {
  keyHeader: 'authorization',
  endRule: 'converse',
  streamType: 'application/vnd.amazon.eventstream',
  raisedLimit: 'inferenceConfig.maxTokens',
  load: async ({ upstream_model: name, providerEntry: { region } }, { baseURL, apiKey, fetch }) => {
    const { createAmazonBedrock } = await import('@ai-sdk/amazon-bedrock');
    return createAmazonBedrock({ baseURL, apiKey, fetch, ...(region === undefined ? {} : { region }) })(name);
  },
  effort: translatedEffort,
  prepare: checkCall,
};

export const bedrock: ProviderAdapter = {
  defaults: { formats: [], unpriced_members: [], output_limit_member: 'maxTokens' },
  sdkFormat: () => converse,
  credentialTypes: ['aws'],
  address: {
    members: ['region'],
    baseUrl: ({ region }) => `https://bedrock-runtime.${region}.${domainOf(region)}`,
  },
  efforts: ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'],
  // Its SDK package ignores a JSON format without a schema and answers in text.
  needsAnswerSchema: true,
  cacheMark: ({ ttl }): ProviderOptions => ({
    amazonBedrock: { cachePoint: { type: 'default', ...(ttl === '5m' || ttl === '1h' ? { ttl } : {}) } },
  }),
  limitsParallelTools: true,
  // The package reads this option of Anthropic's models under the name of Anthropic, not its own.
  callOptions: ({ parallelToolCalls }): ProviderOptions =>
    parallelToolCalls === false ? { anthropic: { disableParallelToolUse: true } } : {},
};

function domainOf(region: string): string {
  return region.startsWith('cn-') ? 'amazonaws.com.cn' : 'amazonaws.com';
}

// The package copies all other options into the request, where they could replace its output limit, or
// choose a service with another price.
const harmlessOptions = new Set(['structuredOutputMode', 'requestMetadata']);
// The package removes the output limit of Amazon Nova 2 Lite at these efforts.
const effortsWithoutLimit = ['high', 'xhigh'];

/** Throws a 422 for a call that the package would change, or that could cost more than was reserved. */
function checkCall(call: ModelCall, { upstream_model: name }: SdkModelEntry): ModelCall {
  const { providerOptions = {}, reasoningEffort = '' } = call;
  for (const owner of ['amazonBedrock', 'bedrock']) {
    const option = Object.keys(providerOptions[owner] ?? {}).find((member) => !harmlessOptions.has(member));
    if (option === undefined) continue;
    const param = `providerOptions.${owner}.${option}`;
    const message = `The member ${param} is refused: it can change the output limit or the price of the call.`;
    throw new Problem('impossible', 'unpriced_member', message, { param });
  }
  if (providerOptions['anthropic']?.['disableParallelToolUse'] === true && !name.includes('anthropic'))
    throw unsupportedMember(
      'parallel_tool_calls',
      'parallel_tool_calls cannot be false for this model: on Amazon Bedrock only models of Anthropic ' +
        'support that.',
    );
  if (name.includes('amazon.nova-2-lite') && effortsWithoutLimit.includes(reasoningEffort))
    throw unsupportedMember(
      'reasoning_effort',
      `The effort ${reasoningEffort} of this model has no output limit; send low or medium.`,
    );
  return call;
}
