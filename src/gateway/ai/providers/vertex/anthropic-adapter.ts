// Anthropic's models on Vertex AI: the Messages format with the model in the path.
import { anthropic } from '../anthropic/adapter.ts';
import { type ProviderAdapter, type SdkFormat, translatedEffort } from '../adapter/provider-adapter.ts';
import { publisherUrl, vertexAddress } from './address.ts';

const rawPredict: SdkFormat = {
  keyHeader: 'authorization',
  endRule: 'messages',
  raisedLimit: 'max_tokens',
  formatHeaders: ['anthropic-beta'],
  async load(model, { baseURL, apiKey, fetch }) {
    const { createGoogleVertexAnthropic } = await import('@ai-sdk/google-vertex/anthropic/edge');
    const address = publisherUrl(model, { baseURL, version: 'v1', publisher: 'anthropic' });
    return createGoogleVertexAnthropic({
      baseURL: `${address}/models`,
      fetch,
      generateAuthToken: () => Promise.resolve(apiKey),
    })(model.upstream_model);
  },
  effort: translatedEffort,
};

const { base_url: _address, ...defaults } = anthropic.defaults;
const { keyHeaders: _keyHeaders, ...sharedAdapter } = anthropic;

export const vertexAnthropic: ProviderAdapter = {
  ...sharedAdapter,
  // The path has the model, so requests in the format cannot pass through unchanged.
  defaults: { ...defaults, formats: [] },
  sdkFormat: () => rawPredict,
  credentialTypes: ['service_account'],
  takesNoApiKey: true,
  address: vertexAddress,
};
