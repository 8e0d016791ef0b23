// Generates src/gateway/ai/catalog/catalog.json, the models of every gateway. The selection in
// catalog/selection.ts is written by hand; prices come from @pydantic/genai-prices and reasoning levels from
// modelparams. Models that are newer than these packages have both in the selection, with a page
// and a date. The file is in git, so that a review shows each new price. Its format is that of
// MODELS_FILE, whose entries replace entries of the catalog.
//
//   node scripts/catalog.ts [--date 2026-11-23]

import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { type ConditionalPrice, findProvider, type ModelInfo, type ModelPrice } from '@pydantic/genai-prices';
import { CATALOG } from 'modelparams';
import { parseCommandLine } from './command-line.ts';
import {
  type Efforts,
  type PublishedPrice,
  type SelectedModel,
  type SelectedProvider,
  selection,
  type TokenPrices,
} from './catalog/selection.ts';

const tokenKinds = [
  ['input', 'input_mtok'],
  ['cached_input', 'cache_read_mtok'],
  ['cache_write', 'cache_write_mtok'],
  ['output', 'output_mtok'],
] as const;

type Rates = Record<string, number>;

// A dollar is a million credits, and both sides price a million tokens.
const credits = (dollars: number): number => Math.round(dollars * 1_000_000);

// A release is used for weeks after its date, so a price rise that is due within this time counts at once.
const riseHorizonDays = 60;

function addDays(day: string, days: number): string {
  return new Date(Date.parse(day) + days * 86_400_000).toISOString().slice(0, 10);
}

/**
 * All prices that count on the day. When the price depends on the hour, or changes within the horizon,
 * there are several: the caller takes the highest, so that no call is charged too little.
 */
function pricesOn(day: string, { id, prices }: ModelInfo): ModelPrice[] {
  if (!Array.isArray(prices)) return [prices];
  const horizon = addDays(day, riseHorizonDays);
  const announcedPrices = (prices as ConditionalPrice[]).filter(
    ({ constraint }) =>
      constraint?.type === 'start_date' && constraint.start_date > day && constraint.start_date <= horizon,
  );
  const activePrices = (prices as ConditionalPrice[]).filter(
    ({ constraint }) =>
      constraint === undefined || constraint.type !== 'start_date' || constraint.start_date <= day,
  );
  const lastingPrice = activePrices.findLast(({ constraint }) => constraint?.type !== 'time_of_date');
  const hourlyPrices = activePrices.filter(({ constraint }) => constraint?.type === 'time_of_date');
  const currentPrices = [
    ...(lastingPrice === undefined ? [] : [lastingPrice]),
    ...hourlyPrices,
    ...announcedPrices,
  ];
  if (currentPrices.length === 0) throw new Error(`${id} has no price on ${day}.`);
  return currentPrices.map((conditional) => conditional.prices);
}

function ratesOf(prices: ModelPrice[]): {
  rates: Rates;
  tiers: { above_input_tokens: number; rates: Rates }[];
} {
  const rates: Rates = {};
  const tiers = new Map<number, Rates>();
  for (const price of prices) {
    for (const [kind, member] of tokenKinds) {
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

function withHourRate(rates: Rates, { hourCacheWrite }: SelectedProvider): Rates {
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

function serializeEfforts({ ids, default: defaultEffort }: Efforts): object {
  return {
    efforts: ids.map((id) => ({
      id,
      name: id === 'xhigh' ? 'Extra high' : `${id.charAt(0).toUpperCase()}${id.slice(1)}`,
    })),
    default_effort: defaultEffort,
  };
}

function packagedEfforts(provider: string | null, model: string): Efforts | undefined {
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
  const canSkipThinking =
    effort.path === 'output_config.effort' && thinkingParam?.values?.includes('disabled') === true;
  return {
    ids: canSkipThinking ? ['none', ...values] : values,
    default: canSkipThinking && thinkingParam?.default === 'disabled' ? 'none' : fallback,
  };
}

interface PriceRecord {
  rates: Rates;
  tiers: { above_input_tokens: number; rates: Rates }[];
  description: string;
  contextWindow: number | null;
  meta: Record<string, string>;
}

const priceModule = '@pydantic/genai-prices';
const priceModuleFile = path.join(import.meta.dirname, 'node_modules', priceModule, 'package.json');
const { version: priceModuleVersion } = JSON.parse(readFileSync(priceModuleFile, 'utf8')) as {
  version: string;
};

function readPackagedPrice(
  provider: SelectedProvider,
  selectedModel: SelectedModel,
  day: string,
): PriceRecord {
  const name = selectedModel.upstream ?? selectedModel.name;
  const info = findProvider({ providerId: provider.prices })?.models.find(
    (candidate) => candidate.id === name,
  );
  if (info === undefined) throw new Error(`The price package does not know ${provider.prices} ${name}.`);
  return {
    ...ratesOf(pricesOn(day, info)),
    description: info.description ?? '',
    contextWindow: info.context_window ?? null,
    meta: {
      price_source: provider.source,
      price_date: day,
      price_package: `${priceModule}@${priceModuleVersion}`,
    },
  };
}

function creditRates(dollars: TokenPrices): Rates {
  return Object.fromEntries(
    Object.entries(dollars).map(([kind, amount]) => [kind, credits(amount as number)]),
  );
}

function publishedPrice({ source, day, description, dollars, above, note }: PublishedPrice): PriceRecord {
  return {
    rates: creditRates(dollars),
    tiers:
      above === undefined
        ? []
        : [{ above_input_tokens: above.input_tokens, rates: creditRates(above.dollars) }],
    description,
    contextWindow: null,
    meta: {
      price_source: source,
      price_date: day,
      ...(note === undefined ? {} : { price_note: note }),
    },
  };
}

function modelOf(provider: SelectedProvider, selectedModel: SelectedModel, day: string): object {
  const upstream = selectedModel.upstream ?? selectedModel.name;
  if (selectedModel.media !== undefined) return mediaModelOf(provider, selectedModel, selectedModel.media);
  const price =
    selectedModel.published === undefined
      ? readPackagedPrice(provider, selectedModel, day)
      : publishedPrice(selectedModel.published);
  const { rates, tiers } = price;
  const isEmbedding = selectedModel.modalities?.includes('embedding') === true;
  if (rates['input'] === undefined || (!isEmbedding && rates['output'] === undefined))
    throw new Error(`${upstream} has no price for its tokens.`);
  const efforts = packagedEfforts(provider.parameters, upstream) ?? selectedModel.efforts;
  return {
    id: `${provider.entry.id}/${selectedModel.name}`,
    name: selectedModel.title,
    description: price.description,
    provider: provider.entry.id,
    upstream_model: upstream,
    modalities: selectedModel.modalities ?? ['text', 'stream', 'openai'],
    tags: selectedModel.tags,
    meta: price.meta,
    context_window: price.contextWindow ?? selectedModel.contextWindow ?? null,
    max_output_tokens: selectedModel.maxOutputTokens,
    inputs: selectedModel.inputs,
    rates: withHourRate(rates, provider),
    ...(tiers.length === 0
      ? {}
      : { tiers: tiers.map((tier) => ({ ...tier, rates: withHourRate(tier.rates, provider) })) }),
    ...(efforts === undefined ? {} : { reasoning: serializeEfforts(efforts) }),
  };
}

function mediaModelOf(
  provider: SelectedProvider,
  selectedModel: SelectedModel,
  { dollars, day, description }: NonNullable<SelectedModel['media']>,
): object {
  return {
    id: `${provider.entry.id}/${selectedModel.name}`,
    name: selectedModel.title,
    description,
    provider: provider.entry.id,
    upstream_model: selectedModel.upstream ?? selectedModel.name,
    modalities: selectedModel.modalities,
    tags: selectedModel.tags,
    meta: { price_source: provider.source, price_date: day },
    context_window: null,
    max_output_tokens: null,
    inputs: selectedModel.inputs,
    rates: Object.fromEntries(Object.entries(dollars).map(([unit, price]) => [unit, credits(price)])),
  };
}

/** The catalog's content for the day. Throws when the price package lacks a model that has no other price. */
export function curatedCatalog(day: string): { providers: object[]; models: object[] } {
  return {
    providers: selection.map(({ entry }) => entry),
    models: selection.flatMap((provider) =>
      provider.models.map((selectedModel) => modelOf(provider, selectedModel, day)),
    ),
  };
}

const catalogFile = path.join(import.meta.dirname, '..', 'src', 'gateway', 'ai', 'catalog', 'catalog.json');

if (import.meta.main) {
  const { values } = parseCommandLine(import.meta.filename, { options: { date: { type: 'string' } } });
  const previousCatalog = JSON.parse(readFileSync(catalogFile, 'utf8')) as { models: unknown[] };
  const catalog = curatedCatalog(values.date ?? new Date().toISOString().slice(0, 10));
  writeFileSync(catalogFile, `${JSON.stringify(catalog, null, 2)}\n`);
  console.log(`catalog: ${catalog.models.length} models (${previousCatalog.models.length} before)`);
}
