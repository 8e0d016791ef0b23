// Google: the generateContent format. Its streams have no end marker: they are
// complete when the connection ends after a finish reason.
import {
  type ProviderAdapter,
  type SdkFormat,
  translatedEffort,
  translatedEfforts,
} from '../adapter/provider-adapter.ts';
import { isOwnToolPriced } from '../adapter/unpriced-tools.ts';

const generateContent: SdkFormat = {
  keyHeader: 'x-goog-api-key',
  endRule: 'gemini',
  load: async ({ upstream_model: name }, settings) =>
    (await import('@ai-sdk/google')).createGoogle(settings)(name),
  effort: translatedEffort,
};

export const google: ProviderAdapter = {
  defaults: {
    base_url: 'https://generativelanguage.googleapis.com/v1beta',
    formats: [],
    video_format: 'google',
    unpriced_members: ['serviceTier', 'cachedContent'],
    output_limit_member: 'maxOutputTokens',
  },
  sdkFormat: () => generateContent,
  efforts: translatedEfforts,
  ownTools: { prefix: 'google.', isPriced: isOwnToolPriced },
};
