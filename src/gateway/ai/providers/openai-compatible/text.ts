// Language models of any server with OpenAI's chat-completions format.
import type { CatalogModel } from '../../catalog/catalog.ts';
import { chatClaim } from '../../metering/token-count.ts';
import { type LanguageModel, unknownUsage, type Usage } from '../../hub/language-model.ts';
import type { ModelAccess, PackageSettings } from '../adapter.ts';
import { sdkModel } from '../sdk-model.ts';

export function openAiCompatibleModel(model: CatalogModel, access: ModelAccess): LanguageModel {
  return sdkModel(
    model,
    {
      keyHeader: 'authorization',
      endRule: 'done',
      asksForUsage: model.providerEntry.usage === 'ask',
      hasTextResults: true,
      load: (settings) => loadModel(model, settings),
      effort: (reasoningEffort) => ({ providerOptions: { openaiCompatible: { reasoningEffort } } }),
    },
    access,
  );
}

async function loadModel(model: CatalogModel, { baseURL, fetch }: PackageSettings) {
  const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
  return createOpenAICompatible({
    name: model.providerEntry.id,
    baseURL,
    includeUsage: model.providerEntry.usage === 'ask',
    // Schemas are sent unchanged; a provider that does not support them refuses the request itself.
    supportsStructuredOutputs: true,
    fetch,
    transformRequestBody: (body) => renameLimit(body, model),
    convertUsage: hubUsage,
  }).chatModel(model.upstream_model);
}

/** The package always sends `max_tokens`; some providers call the limit otherwise. */
function renameLimit(body: Record<string, unknown>, model: CatalogModel): Record<string, unknown> {
  const name = model.providerEntry.output_limit_member;
  if (name === undefined) return body;
  const { max_tokens: limit, ...rest } = body;
  return limit === undefined ? rest : { ...rest, [name]: limit };
}

/**
 * The usage as pass-through calls of this format count it, so that a model costs the same either way: the package knows
 * only one name for cached tokens and takes all reasoning tokens for a part of the output.
 */
function hubUsage(reported: object | null | undefined): Usage {
  const raw = (reported ?? {}) as Usage['raw'] & { prompt_tokens?: number; completion_tokens?: number };
  const claim = chatClaim(raw);
  if (claim === undefined) return unknownUsage();
  // Unchanged, for the meter to reject and log.
  if (claim === 'faulty')
    return {
      inputTokens: { ...unknownUsage().inputTokens, total: raw.prompt_tokens },
      outputTokens: { ...unknownUsage().outputTokens, total: raw.completion_tokens },
      raw,
    };
  const { input, cachedInput, cacheWrite, output, reasoning } = claim.tokens;
  const totalInput = input + cachedInput + cacheWrite;
  return {
    inputTokens: { total: totalInput, noCache: input, cacheRead: cachedInput, cacheWrite },
    outputTokens: { total: output + reasoning, text: output, reasoning },
    raw,
  };
}
