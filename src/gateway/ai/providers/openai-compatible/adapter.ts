// Any server with OpenAI's chat-completions format.
import { type Usage, unknownUsage } from '../../hub/language-model.ts';
import { chatClaim } from '../../metering/token-count.ts';
import type {
  PackageSettings,
  ProviderAdapter,
  SdkFormat,
  SdkModelEntry,
} from '../adapter/provider-adapter.ts';

const chat: SdkFormat = {
  keyHeader: 'authorization',
  endRule: 'done',
  requestsUsage: ({ providerEntry }) => providerEntry.usage === 'ask',
  hasTextResults: true,
  load: loadModel,
  effort: (reasoningEffort) => ({ providerOptions: { openaiCompatible: { reasoningEffort } } }),
};

export const openAiCompatible: ProviderAdapter = {
  defaults: { formats: ['chat', 'embeddings'], video_format: 'openai', unpriced_members: [] },
  sdkFormat: () => chat,
  hasOpenAiMedia: true,
  limitsParallelTools: true,
  callOptions: ({ parallelToolCalls, strictSchema }, providerId) => ({
    openaiCompatible: strictSchema === undefined ? {} : { strictJsonSchema: strictSchema },
    // The package copies unknown options under the provider's own name into the request.
    ...(parallelToolCalls === undefined
      ? {}
      : { [packageName(providerId)]: { parallel_tool_calls: parallelToolCalls } }),
  }),
};

/** The package's name for its options: the first part of the provider's id in camel case. */
function packageName(id: string): string {
  return (id.split('.')[0] ?? id).replace(/[_-]([a-z])/g, (_match, letter: string) => letter.toUpperCase());
}

async function loadModel(model: SdkModelEntry, { baseURL, fetch, deferBody }: PackageSettings) {
  const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
  return createOpenAICompatible({
    name: model.providerEntry.id,
    baseURL,
    includeUsage: model.providerEntry.usage === 'ask',
    // Schemas are sent unchanged; a provider that does not support them rejects the request itself.
    supportsStructuredOutputs: true,
    fetch,
    // The package would serialize the request of a call without stream twice, in one turn of the event loop.
    transformRequestBody: (body) => deferBody(renameLimit(body, model)),
    convertUsage: hubUsage,
  }).chatModel(model.upstream_model);
}

/** The package always sends `max_tokens`; some providers have another name for the limit. */
function renameLimit(body: Record<string, unknown>, model: SdkModelEntry): Record<string, unknown> {
  const name = model.providerEntry.output_limit_member;
  if (name === undefined) return body;
  const { max_tokens: limit, ...bodyWithoutLimit } = body;
  return limit === undefined ? bodyWithoutLimit : { ...bodyWithoutLimit, [name]: limit };
}

/**
 * Counts the usage like a pass-through call of this format, so that both kinds of calls cost the same. The
 * package itself knows only one name for cached tokens, and counts all reasoning tokens as part of the
 * output.
 */
function hubUsage(reported: object | null | undefined): Usage {
  const raw = (reported ?? {}) as Usage['raw'] & { prompt_tokens?: number; completion_tokens?: number };
  const claim = chatClaim(raw);
  if (claim === undefined) return unknownUsage();
  // Pass the faulty numbers on unchanged; the bill rejects and logs them.
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
