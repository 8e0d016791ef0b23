// Anthropic: the Messages format. Its package converts an effort to a supported
// form: a level, or a budget of thinking tokens in addition to max_tokens.
import type { ProviderOptions } from '../../hub/language-model.ts';
import {
  type ProviderAdapter,
  type SdkFormat,
  translatedEffort,
  translatedEfforts,
} from '../adapter/provider-adapter.ts';
import { isOwnToolPriced } from '../adapter/unpriced-tools.ts';

const messages: SdkFormat = {
  keyHeader: 'x-api-key',
  endRule: 'messages',
  raisedLimit: 'max_tokens',
  formatHeaders: ['anthropic-version', 'anthropic-beta'],
  load: async ({ upstream_model: name }, settings) =>
    (await import('@ai-sdk/anthropic')).createAnthropic(settings)(name),
  effort: translatedEffort,
};

export const anthropic: ProviderAdapter = {
  defaults: {
    base_url: 'https://api.anthropic.com/v1',
    formats: ['messages'],
    unpriced_members: ['service_tier', 'speed', 'inference_geo', 'container', 'mcp_servers', 'fallbacks'],
    output_limit_member: 'max_tokens',
  },
  sdkFormat: () => messages,
  keyHeaders: { messages: 'x-api-key' },
  efforts: translatedEfforts,
  ownTools: { prefix: 'anthropic.', isPriced: isOwnToolPriced },
  // Its SDK package ignores a JSON format without a schema and answers in text.
  needsAnswerSchema: true,
  cacheMark: (mark): ProviderOptions => ({ anthropic: { cacheControl: mark as ProviderOptions[string] } }),
  limitsParallelTools: true,
  // Anthropic's schemas are always strict.
  callOptions: ({ parallelToolCalls }): ProviderOptions =>
    parallelToolCalls === false ? { anthropic: { disableParallelToolUse: true } } : {},
};
