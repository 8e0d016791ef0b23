// Any server that speaks the chat-completions format, as a model of the hub.
import type { CatalogModel } from '../../catalog/catalog.ts';
import { chatClaim } from '../../metering/token-count.ts';
import { type LanguageModel, unknownUsage, type Usage } from '../../hub/language-model.ts';
import { type ModelAccess, sdkModel } from '../sdk-model.ts';

export function openAiCompatibleModel(model: CatalogModel, access: ModelAccess): LanguageModel {
  const { providerEntry: provider } = model;
  return sdkModel(
    model,
    {
      keyHeader: 'authorization',
      endRule: 'done',
      hasTextResults: true,
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
          convertUsage: hubUsage,
        }).chatModel(model.upstream_model);
      },
      effort: (reasoningEffort) => ({ own: { openaiCompatible: { reasoningEffort } } }),
    },
    access,
  );
}

// The package always says `max_tokens`; the provider may know the limit by another name, and may need one at all.
function withLimit(body: Record<string, unknown>, model: CatalogModel): Record<string, unknown> {
  const name = model.providerEntry.output_limit_member;
  if (name === undefined) return body;
  const { max_tokens: asked, ...rest } = body;
  return asked === undefined ? rest : { ...rest, [name]: asked };
}

// Read as where this format passes through, so that the two ways of one model cost the same: the package knows one
// name of what was cached, and takes all reasoning to be a part of the output.
function hubUsage(told: object | null | undefined): Usage {
  const usage = (told ?? {}) as Usage['raw'] & { prompt_tokens?: number; completion_tokens?: number };
  const claim = chatClaim(usage);
  if (claim === undefined) return unknownUsage();
  // As it was told, for the meter to doubt.
  if (claim === 'faulty')
    return {
      inputTokens: { ...unknownUsage().inputTokens, total: usage.prompt_tokens },
      outputTokens: { ...unknownUsage().outputTokens, total: usage.completion_tokens },
      raw: usage,
    };
  const { input, cachedInput, cacheWrite, output, reasoning } = claim.tokens;
  return {
    inputTokens: {
      total: input + cachedInput + cacheWrite,
      noCache: input,
      cacheRead: cachedInput,
      cacheWrite,
    },
    outputTokens: { total: output + reasoning, text: output, reasoning },
    raw: usage,
  };
}
