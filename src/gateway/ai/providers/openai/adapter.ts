// OpenAI. Chat completions is the default format: it has stop sequences and seeds, and
// its streams end with an explicit marker. Calls with OpenAI's own tools, or with options
// that only the Responses format has (such as a reasoning summary), use that format.
import type { ModelCall } from '../../hub/language-model.ts';
import type { ProviderAdapter, SdkFormat } from '../adapter/provider-adapter.ts';
import { isRunByCaller, type RequestTool } from '../adapter/unpriced-tools.ts';

// The package recognizes reasoning models by their names; the catalog also has models with other names.
const effort: SdkFormat['effort'] = (reasoningEffort) => ({
  providerOptions: { openai: { reasoningEffort, forceReasoning: true } },
});

const chat: SdkFormat = {
  keyHeader: 'authorization',
  endRule: 'done',
  requestsUsage: () => true,
  hasTextResults: true,
  load: async ({ upstream_model: name }, settings) =>
    (await import('@ai-sdk/openai')).createOpenAI(settings).chat(name),
  effort,
};

const responses: SdkFormat = {
  keyHeader: 'authorization',
  endRule: 'responses',
  load: async ({ upstream_model: name }, settings) =>
    (await import('@ai-sdk/openai')).createOpenAI(settings).responses(name),
  effort,
  prepare: withoutStorage,
};

export const openAi: ProviderAdapter = {
  defaults: {
    base_url: 'https://api.openai.com/v1',
    formats: ['chat', 'embeddings', 'responses'],
    video_format: 'openai',
    // Audio tokens of an answer cost several times as much as text tokens.
    unpriced_members: ['service_tier', 'web_search_options', 'audio'],
    output_limit_member: 'max_completion_tokens',
  },
  sdkFormat: (call) => (needsResponses(call) ? responses : chat),
  ownTools: {
    prefix: 'openai.',
    isPriced: (type, args) =>
      isRunByCaller({ type, environment: args?.['environment'] as RequestTool['environment'] }),
  },
  hasOnlyPlainChatTools: true,
  hasOpenAiMedia: true,
  encryptsReasoning: true,
  // A token for 100 ms of audio.
  audioTokensPerSecond: 10,
  // Chat completions have no member for earlier reasoning.
  dropsReasoning: (call) => !needsResponses(call),
  limitsParallelTools: true,
  callOptions: ({ parallelToolCalls, strictSchema, showsReasoning }) => ({
    openai: {
      // Only the responses format returns reasoning and accepts it in the next turn.
      ...(showsReasoning === true ? { reasoningSummary: 'auto' } : {}),
      ...(strictSchema === undefined ? {} : { strictJsonSchema: strictSchema }),
      ...(parallelToolCalls === undefined ? {} : { parallelToolCalls }),
    },
  }),
};

/** Options that the package silently ignores in chat completions. */
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

/**
 * By default the provider stores responses but not chat completions; callers see one
 * API, so neither is stored.
 */
function withoutStorage(call: ModelCall): ModelCall {
  const openai = { store: false, ...call.providerOptions?.['openai'] };
  return { ...call, providerOptions: { ...call.providerOptions, openai } };
}
