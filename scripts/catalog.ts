// Makes src/gateway/ai/catalog/catalog.json, the models that a gateway knows without
// being told: a selection kept here by hand, its prices from @pydantic/genai-prices and
// its reasoning levels from modelparams. The file is in git, so that a new price is seen
// in review; it has the form of MODELS_FILE, which may say otherwise of any of them.
//
//   node scripts/catalog.ts [--date 2026-11-21]

import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { type ConditionalPrice, findProvider, type ModelInfo, type ModelPrice } from '@pydantic/genai-prices';
import { CATALOG } from 'modelparams';

interface Selected {
  /** The model's id is the provider's id, a slash and this name. */
  name: string;
  /** The provider's own name of the model, where it differs. */
  upstream?: string;
  /** The name in the price package, where it differs from the provider's. */
  priced?: string;
  title: string;
  /** From the provider's documentation, for models that neither package knows. */
  maxOutputTokens: number | null;
  contextWindow?: number;
  inputs: string[];
  tags: string[];
  modalities?: string[];
  /**
   * For models without a price in the package: dollars a unit from the provider's price list, and
   * its date.
   */
  media?: { dollars: Record<string, number>; day: string; description: string };
  fallbacks?: string[];
}

interface SelectedProvider {
  entry: Record<string, unknown> & { id: string; name: string };
  /** The provider's ids in the two packages. */
  prices: string;
  parameters: string | null;
  source: string;
  /** Price of input cached for an hour as a multiple of plain input; the price package lacks it. */
  hourCacheWrite?: number;
  models: Selected[];
}

const seeing = ['text', 'image', 'file'];
const text = ['text'];

const selection: SelectedProvider[] = [
  {
    entry: {
      id: 'openai',
      name: 'OpenAI',
      kind: 'openai',
      api_key_env: 'OPENAI_API_KEY',
      usage: 'ask',
      output_limit_member: 'max_completion_tokens',
    },
    prices: 'openai',
    parameters: 'openai',
    source: 'https://platform.openai.com/docs/pricing',
    models: [
      {
        name: 'gpt-5.6-sol',
        title: 'GPT-5.6 Sol',
        maxOutputTokens: 128_000,
        inputs: seeing,
        tags: ['flagship', 'reasoning'],
      },
      {
        name: 'gpt-5.6-terra',
        title: 'GPT-5.6 Terra',
        maxOutputTokens: 128_000,
        inputs: seeing,
        tags: ['balanced', 'reasoning'],
      },
      {
        name: 'gpt-5.6-luna',
        title: 'GPT-5.6 Luna',
        maxOutputTokens: 128_000,
        inputs: seeing,
        tags: ['fast', 'reasoning'],
      },
      { name: 'gpt-5.1', title: 'GPT-5.1', maxOutputTokens: 128_000, inputs: seeing, tags: ['reasoning'] },
      {
        name: 'gpt-5-mini',
        title: 'GPT-5 mini',
        maxOutputTokens: 128_000,
        inputs: seeing,
        tags: ['fast', 'reasoning'],
      },
      { name: 'gpt-4.1', title: 'GPT-4.1', maxOutputTokens: 32_768, inputs: seeing, tags: [] },
      {
        name: 'text-embedding-3-large',
        title: 'Text Embedding 3 Large',
        maxOutputTokens: null,
        inputs: text,
        tags: ['embedding'],
        modalities: ['embedding'],
      },
      {
        name: 'text-embedding-3-small',
        title: 'Text Embedding 3 Small',
        maxOutputTokens: null,
        inputs: text,
        tags: ['embedding', 'fast'],
        modalities: ['embedding'],
      },
    ],
  },
  {
    entry: {
      id: 'anthropic',
      name: 'Anthropic',
      kind: 'anthropic',
      api_key_env: 'ANTHROPIC_API_KEY',
      usage: 'none',
      output_limit_member: 'max_tokens',
    },
    prices: 'anthropic',
    parameters: 'anthropic',
    hourCacheWrite: 2,
    source: 'https://www.anthropic.com/pricing#api',
    models: [
      {
        name: 'claude-opus-5',
        title: 'Claude Opus 5',
        maxOutputTokens: 128_000,
        inputs: seeing,
        tags: ['flagship', 'reasoning'],
      },
      {
        name: 'claude-sonnet-5',
        title: 'Claude Sonnet 5',
        maxOutputTokens: 128_000,
        inputs: seeing,
        tags: ['balanced', 'reasoning'],
      },
      {
        name: 'claude-opus-4-8',
        title: 'Claude Opus 4.8',
        maxOutputTokens: 128_000,
        inputs: seeing,
        tags: ['reasoning'],
      },
      {
        name: 'claude-haiku-4-5',
        title: 'Claude Haiku 4.5',
        maxOutputTokens: 64_000,
        inputs: seeing,
        tags: ['fast'],
      },
    ],
  },
  {
    entry: {
      id: 'google',
      name: 'Google',
      kind: 'google',
      api_key_env: 'GOOGLE_API_KEY',
      usage: 'none',
      output_limit_member: 'maxOutputTokens',
    },
    prices: 'google',
    parameters: 'google',
    source: 'https://ai.google.dev/gemini-api/docs/pricing',
    models: [
      {
        name: 'gemini-3.1-pro-preview',
        title: 'Gemini 3.1 Pro Preview',
        maxOutputTokens: 65_536,
        contextWindow: 1_048_576,
        inputs: [...seeing, 'audio', 'video'],
        tags: ['flagship', 'reasoning'],
      },
      {
        name: 'gemini-3.5-flash',
        title: 'Gemini 3.5 Flash',
        maxOutputTokens: 65_536,
        inputs: [...seeing, 'audio', 'video'],
        tags: ['balanced', 'reasoning'],
      },
      // Audio input costs these three more than text, and the catalog has one price for input.
      {
        name: 'gemini-3.1-flash-lite',
        title: 'Gemini 3.1 Flash Lite',
        maxOutputTokens: 65_536,
        inputs: [...seeing, 'video'],
        tags: ['fast', 'reasoning'],
      },
      {
        name: 'gemini-2.5-pro',
        title: 'Gemini 2.5 Pro',
        maxOutputTokens: 65_536,
        contextWindow: 1_048_576,
        inputs: [...seeing, 'audio', 'video'],
        tags: [],
      },
      {
        name: 'gemini-2.5-flash',
        title: 'Gemini 2.5 Flash',
        maxOutputTokens: 65_536,
        inputs: [...seeing, 'video'],
        tags: ['fast'],
      },
    ],
  },
  {
    entry: {
      id: 'deepseek',
      name: 'DeepSeek',
      kind: 'openai-compatible',
      base_url: 'https://api.deepseek.com/v1',
      api_key_env: 'DEEPSEEK_API_KEY',
      usage: 'ask',
      output_limit_member: 'max_tokens',
      formats: ['chat'],
    },
    prices: 'deepseek',
    parameters: 'deepseek',
    source: 'https://api-docs.deepseek.com/quick_start/pricing',
    models: [
      {
        name: 'deepseek-v4-pro',
        title: 'DeepSeek V4 Pro',
        maxOutputTokens: null,
        inputs: text,
        tags: ['flagship', 'reasoning', 'open-weights'],
      },
      {
        name: 'deepseek-v4-flash',
        title: 'DeepSeek V4 Flash',
        maxOutputTokens: null,
        inputs: text,
        tags: ['fast', 'reasoning', 'open-weights'],
      },
    ],
  },
  {
    entry: {
      id: 'mistral',
      name: 'Mistral',
      kind: 'openai-compatible',
      base_url: 'https://api.mistral.ai/v1',
      api_key_env: 'MISTRAL_API_KEY',
      usage: 'none',
      output_limit_member: 'max_tokens',
    },
    prices: 'mistral',
    parameters: 'mistral',
    source: 'https://mistral.ai/pricing/api',
    models: [
      {
        name: 'mistral-large-2512',
        title: 'Mistral Large 3',
        maxOutputTokens: null,
        inputs: ['text', 'image'],
        tags: ['flagship', 'open-weights'],
      },
      {
        name: 'mistral-medium-3-5',
        title: 'Mistral Medium 3.5',
        maxOutputTokens: null,
        inputs: ['text', 'image'],
        tags: ['balanced'],
      },
      {
        name: 'mistral-small-2603',
        title: 'Mistral Small 4',
        maxOutputTokens: null,
        inputs: ['text', 'image'],
        tags: ['fast', 'open-weights'],
      },
      {
        name: 'codestral-2508',
        title: 'Codestral 2508',
        maxOutputTokens: null,
        inputs: text,
        tags: ['code'],
      },
    ],
  },
  {
    entry: {
      id: 'xai',
      name: 'xAI',
      kind: 'openai-compatible',
      base_url: 'https://api.x.ai/v1',
      api_key_env: 'XAI_API_KEY',
      usage: 'ask',
      output_limit_member: 'max_completion_tokens',
      unpriced_members: [
        'search_parameters',
        'web_search_options',
        'reference_images',
        'reference_audios',
        'video',
      ],
      formats: ['chat', 'responses'],
      video_format: 'xai',
    },
    prices: 'x-ai',
    parameters: 'xai',
    source: 'https://docs.x.ai/docs/models',
    models: [
      {
        name: 'grok-4.5',
        title: 'Grok 4.5',
        maxOutputTokens: null,
        inputs: ['text', 'image'],
        tags: ['flagship', 'reasoning'],
      },
      {
        name: 'grok-4.3',
        title: 'Grok 4.3',
        maxOutputTokens: null,
        inputs: ['text', 'image'],
        tags: ['balanced', 'reasoning'],
      },
      // 0.05 dollars at 480 lines and 0.07 at 720: the higher counts. An input image has a price of
      // its own, so it accepts none.
      {
        name: 'grok-imagine-video',
        title: 'Grok Imagine Video',
        maxOutputTokens: null,
        inputs: text,
        tags: ['fast'],
        modalities: ['video'],
        media: {
          dollars: { video_second: 0.05, video_second_720: 0.07 },
          day: '2026-11-21',
          description: 'Makes short videos with sound from a text.',
        },
      },
    ],
  },
  {
    entry: {
      id: 'groq',
      name: 'Groq',
      kind: 'openai-compatible',
      base_url: 'https://api.groq.com/openai/v1',
      api_key_env: 'GROQ_API_KEY',
      usage: 'ask',
      output_limit_member: 'max_completion_tokens',
      unpriced_members: ['service_tier', 'compound_custom', 'search_settings'],
      formats: ['chat', 'responses'],
    },
    prices: 'groq',
    parameters: null,
    source: 'https://console.groq.com/docs/models',
    models: [
      {
        name: 'gpt-oss-120b',
        upstream: 'openai/gpt-oss-120b',
        title: 'GPT-OSS 120B on Groq',
        maxOutputTokens: 65_536,
        inputs: text,
        tags: ['fast', 'open-weights'],
      },
      {
        name: 'llama-3.3-70b-versatile',
        title: 'Llama 3.3 70B on Groq',
        contextWindow: 131_072,
        maxOutputTokens: 32_768,
        inputs: text,
        tags: ['fast', 'open-weights'],
      },
    ],
  },
];

const kinds = [
  ['input', 'input_mtok'],
  ['cached_input', 'cache_read_mtok'],
  ['cache_write', 'cache_write_mtok'],
  ['output', 'output_mtok'],
] as const;

type Rates = Record<string, number>;

// A dollar is a million credits, and both sides price a million tokens.
const credits = (dollars: number): number => Math.round(dollars * 1_000_000);

/**
 * The prices on the day. Where the price depends on the hour, the highest counts, so that no call
 * is charged too little.
 */
function pricesOn(day: string, { id, prices }: ModelInfo): ModelPrice[] {
  if (!Array.isArray(prices)) return [prices];
  const active = (prices as ConditionalPrice[]).filter(
    ({ constraint }) =>
      constraint === undefined || constraint.type !== 'start_date' || constraint.start_date <= day,
  );
  const lastingPrice = active.findLast(({ constraint }) => constraint?.type !== 'time_of_date');
  const hourly = active.filter(({ constraint }) => constraint?.type === 'time_of_date');
  const current = [...(lastingPrice === undefined ? [] : [lastingPrice]), ...hourly];
  if (current.length === 0) throw new Error(`${id} has no price on ${day}.`);
  return current.map((conditional) => conditional.prices);
}

function ratesOf(prices: ModelPrice[]): {
  rates: Rates;
  tiers: { above_input_tokens: number; rates: Rates }[];
} {
  const rates: Rates = {};
  const tiers = new Map<number, Rates>();
  for (const price of prices) {
    for (const [kind, member] of kinds) {
      const amount = price[member];
      if (amount === undefined) continue;
      const { base, tiers: steps } = typeof amount === 'number' ? { base: amount, tiers: [] } : amount;
      rates[kind] = Math.max(rates[kind] ?? 0, credits(base));
      for (const { start, price: stepPrice } of steps) {
        const tier = tiers.get(start) ?? {};
        tier[kind] = Math.max(tier[kind] ?? 0, credits(stepPrice));
        tiers.set(start, tier);
      }
    }
  }
  return {
    rates,
    tiers: [...tiers]
      .sort(([a], [b]) => a - b)
      .map(([start, tier]) => ({ above_input_tokens: start, rates: tier })),
  };
}

function withHour(rates: Rates, { hourCacheWrite }: SelectedProvider): Rates {
  const { input } = rates;
  return hourCacheWrite === undefined || input === undefined
    ? rates
    : { ...rates, cache_write_1h: input * hourCacheWrite };
}

/**
 * A parameter of the package, whose own types list each of its thousands of values as a literal.
 */
interface EnumParameter {
  path: string;
  type: string;
  values?: readonly (string | number | boolean)[];
  default?: string | number | boolean;
}

const effortMembers = [
  'reasoning_effort',
  'output_config.effort',
  'generationConfig.thinkingConfig.thinkingLevel',
];

function reasoningOf(provider: string | null, model: string): object | undefined {
  const entries = CATALOG.filter((candidate) => candidate.provider === provider && candidate.model === model);
  // Other entries are for subscriptions, whose clients have levels of their own.
  const entry = entries.find((candidate) => candidate.authType === 'api_key');
  const params: readonly EnumParameter[] = entry?.params ?? [];
  const effort = params.find((candidate) => effortMembers.includes(candidate.path));
  if (effort?.values === undefined) return undefined;
  const thinkingParam = params.find((candidate) => candidate.path === 'thinking.type');
  const values = effort.values.map(String);
  const fallback = String(effort.default ?? values[0]);
  // Anthropic's models with optional thinking have the additional level `none`.
  const canRest =
    effort.path === 'output_config.effort' && thinkingParam?.values?.includes('disabled') === true;
  const ids = canRest ? ['none', ...values] : values;
  return {
    efforts: ids.map((id) => ({
      id,
      name: id === 'xhigh' ? 'Extra high' : `${id.charAt(0).toUpperCase()}${id.slice(1)}`,
    })),
    default_effort: canRest && thinkingParam?.default === 'disabled' ? 'none' : fallback,
  };
}

function modelOf(provider: SelectedProvider, selected: Selected, day: string): object {
  const upstream = selected.upstream ?? selected.name;
  if (selected.media !== undefined) return mediaModelOf(provider, selected, selected.media);
  const info = findProvider({ providerId: provider.prices })?.models.find(
    (candidate) => candidate.id === (selected.priced ?? upstream),
  );
  if (info === undefined) throw new Error(`The price package does not know ${provider.prices} ${upstream}.`);
  const { rates, tiers } = ratesOf(pricesOn(day, info));
  const isEmbedding = selected.modalities?.includes('embedding') === true;
  if (rates['input'] === undefined || (!isEmbedding && rates['output'] === undefined))
    throw new Error(`${upstream} has no price for its tokens.`);
  const reasoning = reasoningOf(provider.parameters, upstream);
  return {
    id: `${provider.entry.id}/${selected.name}`,
    name: selected.title,
    description: info.description ?? '',
    provider: provider.entry.id,
    upstream_model: upstream,
    modalities: selected.modalities ?? ['text', 'stream', 'openai'],
    tags: selected.tags,
    meta: { price_source: provider.source, price_date: day },
    context_window: info.context_window ?? selected.contextWindow ?? null,
    max_output_tokens: selected.maxOutputTokens,
    inputs: selected.inputs,
    rates: withHour(rates, provider),
    ...(tiers.length === 0
      ? {}
      : { tiers: tiers.map((tier) => ({ ...tier, rates: withHour(tier.rates, provider) })) }),
    ...(reasoning === undefined ? {} : { reasoning }),
    ...(selected.fallbacks === undefined ? {} : { fallbacks: selected.fallbacks }),
  };
}

function mediaModelOf(
  provider: SelectedProvider,
  selected: Selected,
  { dollars, day, description }: NonNullable<Selected['media']>,
): object {
  return {
    id: `${provider.entry.id}/${selected.name}`,
    name: selected.title,
    description,
    provider: provider.entry.id,
    upstream_model: selected.upstream ?? selected.name,
    modalities: selected.modalities,
    tags: selected.tags,
    meta: { price_source: provider.source, price_date: day },
    context_window: null,
    max_output_tokens: null,
    inputs: selected.inputs,
    rates: Object.fromEntries(Object.entries(dollars).map(([unit, price]) => [unit, credits(price)])),
  };
}

/** The catalog's content for the day. Throws when a package lacks a selected model. */
export function curatedCatalog(day: string): object {
  return {
    providers: selection.map(({ entry }) => entry),
    models: selection.flatMap((provider) =>
      provider.models.map((selected) => modelOf(provider, selected, day)),
    ),
  };
}

const catalogFile = path.join(import.meta.dirname, '..', 'src', 'gateway', 'ai', 'catalog', 'catalog.json');

if (import.meta.main) {
  const { values } = parseArgs({ options: { date: { type: 'string' } } });
  const previousCatalog = JSON.parse(
    readFileSync(catalogFile, { encoding: 'utf8', flag: 'a+' }) || '{"models":[]}',
  ) as { models: unknown[] };
  const catalog = curatedCatalog(values.date ?? new Date().toISOString().slice(0, 10)) as {
    models: unknown[];
  };
  writeFileSync(catalogFile, `${JSON.stringify(catalog, null, 2)}\n`);
  console.log(`catalog: ${catalog.models.length} models (${previousCatalog.models.length} before)`);
}
