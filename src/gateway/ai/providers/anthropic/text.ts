// Anthropic's models, by its messages format. The package turns an effort into what each model wants: a level, or a
// budget of tokens to think with.
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { LanguageModel } from '../../hub/language-model.ts';
import { type EffortOptions, type ModelAccess, sdkModel } from '../sdk-model.ts';

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
      effort: (id) => ({ reasoning: id as EffortOptions['reasoning'] }),
    },
    access,
  );
}
