// Google's language models in the generateContent format. Its streams have no end marker: they are complete when the
// connection ends after a finish reason.
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { LanguageModel } from '../../hub/language-model.ts';
import type { EffortOptions, ModelAccess } from '../adapter.ts';
import { sdkModel } from '../sdk-model.ts';

export function googleModel(model: CatalogModel, access: ModelAccess): LanguageModel {
  return sdkModel(
    model,
    {
      keyHeader: 'x-goog-api-key',
      endRule: 'gemini',
      load: async (settings) => (await import('@ai-sdk/google')).createGoogle(settings)(model.upstream_model),
      effort: (effort) => ({ reasoning: effort as EffortOptions['reasoning'] }),
    },
    access,
  );
}
