// Any server that speaks the chat-completions format, as a model of the hub.
import type { CatalogModel } from '../catalog.ts';
import type { LanguageModel } from '../model.ts';
import { type ModelAccess, sdkModel } from './sdk-model.ts';

export function openAiCompatibleModel(model: CatalogModel, access: ModelAccess): LanguageModel {
  const { by: provider } = model;
  return sdkModel(
    model,
    {
      keyHeader: 'authorization',
      endRule: 'done',
      async load({ baseURL, fetch }) {
        const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
        return createOpenAICompatible({
          name: provider.id,
          baseURL,
          includeUsage: provider.usage === 'ask',
          // A schema goes to the provider as it is; one that cannot follow it says so itself.
          supportsStructuredOutputs: true,
          fetch,
          transformRequestBody: (body) => withLimit(body, model),
        }).chatModel(model.upstream_model);
      },
      effort: (reasoningEffort) => ({ own: { openaiCompatible: { reasoningEffort } } }),
    },
    access,
  );
}

// The package always says `max_tokens`; the provider may know the limit by another name, and may need one at all.
function withLimit(body: Record<string, unknown>, model: CatalogModel): Record<string, unknown> {
  const name = model.by.output_limit_member;
  if (name === undefined) return body;
  const { max_tokens: asked, ...rest } = body;
  return asked === undefined ? rest : { ...rest, [name]: asked };
}
