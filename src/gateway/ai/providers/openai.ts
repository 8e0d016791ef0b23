// OpenAI's own models, by its chat-completions format: the one that knows stop sequences and seeds, and that ends a
// stream with a word. Its responses format is passed through (passthrough.ts), not translated to.
import type { CatalogModel } from '../catalog.ts';
import type { LanguageModel } from '../model.ts';
import { type ModelAccess, sdkModel } from './sdk-model.ts';

export function openAiModel(model: CatalogModel, access: ModelAccess): LanguageModel {
  return sdkModel(
    model,
    {
      keyHeader: 'authorization',
      endRule: 'done',
      load: async (settings) => (await import('@ai-sdk/openai')).createOpenAI(settings).chat(model.upstream_model),
      // The package knows by its name whether a model reasons; the catalog knows better of those that it has not met.
      effort: (reasoningEffort) => ({ own: { openai: { reasoningEffort, forceReasoning: true } } }),
    },
    access,
  );
}
