// Azure OpenAI by its v1 API, which has OpenAI's formats and paths. The names of models are those of
// deployments. The key has a header of its own; applications of Entra ID send a token.
import { openAi } from '../openai/adapter.ts';
import type { ProviderAdapter } from '../adapter/provider-adapter.ts';

const { video_format: _video, base_url: _address, ...defaults } = openAi.defaults;

export const azure: ProviderAdapter = {
  ...openAi,
  // Azure's videos have another form in some of its regions; an entry may set `video_format`.
  defaults,
  keyHeader: 'api-key',
  credentialTypes: ['entra_id'],
  address: {
    members: ['resource'],
    isReplaceable: true,
    baseUrl: ({ resource }) => `https://${resource}.openai.azure.com/openai/v1`,
  },
};
