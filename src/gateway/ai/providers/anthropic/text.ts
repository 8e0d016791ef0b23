// Anthropic's language models in the Messages format. The package turns an effort into what the model supports: a level,
// or a budget of thinking tokens on top of max_tokens.
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { LanguageModel } from '../../hub/language-model.ts';
import type { EffortOptions, ModelAccess } from '../adapter.ts';
import { sdkModel } from '../sdk-model.ts';

export function anthropicModel(model: CatalogModel, access: ModelAccess): LanguageModel {
  return sdkModel(
    model,
    {
      keyHeader: 'x-api-key',
      endRule: 'messages',
      raisedLimit: 'max_tokens',
      formatHeaders: ['anthropic-version', 'anthropic-beta'],
      load: async (settings) =>
        (await import('@ai-sdk/anthropic')).createAnthropic(settings)(model.upstream_model),
      effort: (effort) => ({ reasoning: effort as EffortOptions['reasoning'] }),
    },
    access,
  );
}
