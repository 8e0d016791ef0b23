// Azure OpenAI through its v1 API, which has OpenAI's formats and paths. Its model names are names of
// deployments. API keys are sent in a header of their own; Entra ID applications send a token.
import { openAi } from '../openai/adapter.ts';
import type { ProviderAdapter } from '../adapter/provider-adapter.ts';

const { video_format: _video, base_url: _address, ...defaults } = openAi.defaults;

export const azure: ProviderAdapter = {
  ...openAi,
  // The format of videos differs between Azure's regions, so there is no default; an entry may set
  // `video_format`.
  defaults,
  keyHeader: 'api-key',
  credentialTypes: ['entra_id'],
  address: {
    members: ['resource'],
    isReplaceable: true,
    baseUrl: ({ resource }) => `https://${resource}.openai.azure.com/openai/v1`,
  },
};
