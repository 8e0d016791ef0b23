// OpenAI's own models, by its chat-completions format: the one that knows stop sequences and seeds, and that ends a
// stream with a word. A call with tools of OpenAI's own, or with options that only its responses format has, such as
// the one that asks for a summary of what the model thought, goes by that format.
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { LanguageModel, ModelCall } from '../../hub/language-model.ts';
import { type ModelAccess, sdkModel, type ProviderAdapter } from '../sdk-model.ts';

// The package knows by its name whether a model reasons; the catalog knows better of those that it has not met.
const effort: ProviderAdapter['effort'] = (reasoningEffort) => ({
  own: { openai: { reasoningEffort, forceReasoning: true } },
});

export function openAiModel(model: CatalogModel, access: ModelAccess): LanguageModel {
  const chat: ProviderAdapter = {
    keyHeader: 'authorization',
    endRule: 'done',
    hasTextResults: true,
    load: async (settings) =>
      (await import('@ai-sdk/openai')).createOpenAI(settings).chat(model.upstream_model),
    effort,
  };
  const responses: ProviderAdapter = {
    keyHeader: 'authorization',
    endRule: 'responses',
    load: async (settings) =>
      (await import('@ai-sdk/openai')).createOpenAI(settings).responses(model.upstream_model),
    effort,
  };
  const runs = (call: ModelCall): [LanguageModel, ModelCall] =>
    needsResponses(call)
      ? [sdkModel(model, responses, access), withoutStorage(call)]
      : [sdkModel(model, chat, access), call];

  return {
    generate(call) {
      const [chosen, made] = runs(call);
      return chosen.generate(made);
    },
    stream(call) {
      const [chosen, made] = runs(call);
      return chosen.stream(made);
    },
  };
}

// The package drops without a word what its chat completions do not know.
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
      ([name, value]) => responsesOnlyOptions.has(name) && value !== undefined && value !== null,
    )
  );
}

// This format keeps answers at the provider unless it is told not to; the other does not, and callers know of one.
function withoutStorage(call: ModelCall): ModelCall {
  return {
    ...call,
    providerOptions: {
      ...call.providerOptions,
      openai: { store: false, ...call.providerOptions?.['openai'] },
    },
  };
}
