// Google's models on Vertex AI: the generateContent format. The package for Vertex gets a placeholder for an
// API key, so that it requests no token itself; the transport sends the token of the service account.
import { google } from '../google/adapter.ts';
import { type ProviderAdapter, type SdkFormat, translatedEffort } from '../adapter/provider-adapter.ts';
import { publisherUrl, vertexAddress } from './address.ts';

const generateContent: SdkFormat = {
  keyHeader: 'authorization',
  endRule: 'gemini',
  async load(model, { baseURL, apiKey, fetch }) {
    const { createGoogleVertex } = await import('@ai-sdk/google-vertex/edge');
    const address = publisherUrl(model, { baseURL, version: 'v1beta1', publisher: 'google' });
    return createGoogleVertex({ baseURL: address, apiKey, fetch })(model.upstream_model);
  },
  effort: translatedEffort,
};

const { base_url: _address, video_format: _video, ...defaults } = google.defaults;

export const vertex: ProviderAdapter = {
  ...google,
  defaults: {
    ...defaults,
    unpriced_members: [...defaults.unpriced_members, 'sharedRequestType', 'requestType'],
  },
  sdkFormat: () => generateContent,
  credentialTypes: ['service_account'],
  takesNoApiKey: true,
  address: vertexAddress,
};
