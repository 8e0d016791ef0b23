// Google's models, by its generateContent format, whose streams end with the connection once a reason has been given.
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { LanguageModel } from '../../hub/language-model.ts';
import { type EffortOptions, type ModelAccess, sdkModel } from '../sdk-model.ts';

export function googleModel(model: CatalogModel, access: ModelAccess): LanguageModel {
  return sdkModel(
    model,
    {
      keyHeader: 'x-goog-api-key',
      endRule: 'gemini',
      load: async (settings) => (await import('@ai-sdk/google')).createGoogle(settings)(model.upstream_model),
      effort: (id) => ({ reasoning: id as EffortOptions['reasoning'] }),
    },
    access,
  );
}
