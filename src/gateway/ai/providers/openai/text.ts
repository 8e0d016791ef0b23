// OpenAI's language models. Chat completions is the default format: it has stop sequences and seeds, and its streams
// end with an explicit marker. Calls with OpenAI's own tools, or with options that only the Responses format has (such
// as a reasoning summary), use that format.
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { LanguageModel, ModelCall } from '../../hub/language-model.ts';
import type { ModelAccess, ProviderAdapter } from '../adapter.ts';
import { sdkModel } from '../sdk-model.ts';

export function openAiModel(model: CatalogModel, access: ModelAccess): LanguageModel {
  const chat = sdkModel(model, chatAdapter(model), access);
  const responses = sdkModel(model, responsesAdapter(model), access);
  return {
    generate: (call) =>
      needsResponses(call) ? responses.generate(withoutStorage(call)) : chat.generate(call),
    stream: (call) => (needsResponses(call) ? responses.stream(withoutStorage(call)) : chat.stream(call)),
  };
}

function chatAdapter({ upstream_model: name }: CatalogModel): ProviderAdapter {
  return {
    keyHeader: 'authorization',
    endRule: 'done',
    asksForUsage: true,
    hasTextResults: true,
    load: async (settings) => (await import('@ai-sdk/openai')).createOpenAI(settings).chat(name),
    effort: effortOptions,
  };
}

function responsesAdapter({ upstream_model: name }: CatalogModel): ProviderAdapter {
  return {
    keyHeader: 'authorization',
    endRule: 'responses',
    load: async (settings) => (await import('@ai-sdk/openai')).createOpenAI(settings).responses(name),
    effort: effortOptions,
  };
}

// The package recognizes reasoning models by their names; the catalog also has models that the package does not know.
const effortOptions: ProviderAdapter['effort'] = (reasoningEffort) => ({
  providerOptions: { openai: { reasoningEffort, forceReasoning: true } },
});

/** Options that the package drops silently in chat completions. */
const responsesOnlyOptions = new Set([
  'reasoningSummary',
  'reasoningMode',
  'reasoningContext',
  'reasoningEffortUpdate',
  'previousResponseId',
  'conversation',
  'instructions',
  'include',
  'includeWebSearchSources',
  'maxToolCalls',
  'truncation',
  'contextManagement',
  'compactionTrigger',
  'allowedTools',
  'passThroughUnsupportedFiles',
  'textFormat',
]);

function needsResponses({ tools = [], providerOptions }: ModelCall): boolean {
  return (
    tools.some(({ type }) => type === 'provider') ||
    Object.entries(providerOptions?.['openai'] ?? {}).some(
      ([name, setting]) => responsesOnlyOptions.has(name) && setting !== undefined && setting !== null,
    )
  );
}

/** Responses are stored at the provider by default, chat completions are not; callers see one API, so neither is. */
function withoutStorage(call: ModelCall): ModelCall {
  const openai = { store: false, ...call.providerOptions?.['openai'] };
  return { ...call, providerOptions: { ...call.providerOptions, openai } };
}
