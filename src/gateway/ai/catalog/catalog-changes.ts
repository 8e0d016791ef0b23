// Compares two catalogs, and finds the changes that an update refuses unless the operator allows them:
// large changes of a price, and providers whose address or keys change.
import type { ModelsFileEntry, ModelsFile } from './models-file.ts';
import { type Rates, videoResolutions } from './rates.ts';

export interface MemberChange {
  member: string;
  before: unknown;
  after: unknown;
}

export interface EntryChange {
  entry: 'provider' | 'model';
  id: string;
  change: 'added' | 'removed' | 'changed';
  /**
   * The changed members. For an added model only its rates, provider and upstream model; for a removed
   * entry none.
   */
  members: MemberChange[];
}

/**
 * Credits per million tokens or per unit; null for a model without prices, undefined for a model without
 * a rate of this kind.
 */
type Rate = number | null | undefined;

export interface PriceJump {
  id: string;
  /** The kind of the rate, such as `output`. */
  rate: string;
  aboveInputTokens: number;
  before: Rate;
  after: Rate;
}

// Members of a provider that may change without the operator's consent. All other members decide where keys
// and prompts go, or what is charged.
const harmlessMembers: readonly string[] = ['name'];

export function compareCatalogs(before: ModelsFile, after: ModelsFile): EntryChange[] {
  return [
    ...compareEntries('provider', before.providers, after.providers),
    ...compareEntries('model', before.models, after.models),
  ];
}

function compareEntries(
  entry: EntryChange['entry'],
  before: readonly { id: string }[],
  after: readonly { id: string }[],
): EntryChange[] {
  const formerEntries = new Map(before.map((value) => [value.id, value]));
  const nextEntries = new Map(after.map((value) => [value.id, value]));
  const changes: EntryChange[] = [];
  for (const [id, formerEntry] of formerEntries) {
    const nextEntry = nextEntries.get(id);
    const members = nextEntry === undefined ? [] : compareMembers(formerEntry, nextEntry);
    if (nextEntry === undefined) changes.push({ entry, id, change: 'removed', members });
    else if (members.length > 0) changes.push({ entry, id, change: 'changed', members });
  }
  for (const [id, nextEntry] of nextEntries)
    if (!formerEntries.has(id))
      changes.push({ entry, id, change: 'added', members: membersOfNew(entry, nextEntry) });
  return changes;
}

/**
 * The members of a new entry that decide where prompts and keys go and what a call costs: an
 * operator must see them before the update.
 */
function membersOfNew(entry: EntryChange['entry'], newEntry: object): MemberChange[] {
  return compareMembers({}, newEntry).filter(({ member }) =>
    entry === 'provider'
      ? member !== 'id'
      : ['provider', 'upstream_model'].includes(member) || member.startsWith('rates'),
  );
}

function compareMembers(before: object, after: object): MemberChange[] {
  const [formerMembers, nextMembers] = [flatten(before), flatten(after)];
  const members = [...new Set([...formerMembers.keys(), ...nextMembers.keys()])];
  return members
    .map((member) => ({ member, before: formerMembers.get(member), after: nextMembers.get(member) }))
    .filter((change) => JSON.stringify(change.before) !== JSON.stringify(change.after));
}

// Rates are compared one by one, all other members as a whole.
function flatten(entry: object): Map<string, unknown> {
  const { rates, tiers = [], ...others } = entry as Partial<ModelsFileEntry>;
  const members = new Map<string, unknown>(Object.entries(others));
  if (rates === null) members.set('rates', null);
  for (const [kind, rate] of Object.entries(rates ?? {})) members.set(`rates.${kind}`, rate);
  for (const tier of tiers)
    for (const [kind, rate] of Object.entries(tier.rates))
      members.set(`rates.${kind} above ${tier.above_input_tokens} input tokens`, rate);
  return members;
}

/** The providers that are new, or that differ in more than their name. */
export function guardedProviders(changes: readonly EntryChange[]): string[] {
  return changes
    .filter(({ entry, change }) => entry === 'provider' && change !== 'removed')
    .filter(
      ({ change, members }) =>
        change === 'added' || members.some(({ member }) => !harmlessMembers.includes(member)),
    )
    .map(({ id }) => id);
}

/**
 * The rates that rise or fall by more than the factor. A model is compared with its former entry and with
 * other entries for the same upstream model: a second name must not make it cheaper. A model with neither
 * must have a price.
 */
export function findPriceJumps(before: ModelsFile, after: ModelsFile, factor: number): PriceJump[] {
  return after.models.flatMap((model) => {
    const sameEntries = before.models.filter(({ id }) => id === model.id);
    const sameModels = before.models.filter(
      (candidate) => candidate.id !== model.id && isSameModel(candidate, model),
    );
    // The price of an unchanged entry may always have differed from other entries for its upstream model.
    if (sameEntries.some((entry) => compareMembers(entry, model).length === 0)) return [];
    if (sameEntries.length + sameModels.length === 0) return isFree(model) ? [jumpOfNewModel(model)] : [];
    return uniqueJumps(
      [...sameEntries, ...sameModels].flatMap((reference) => jumpsOf(reference, model, factor)),
    );
  });
}

function isSameModel(a: ModelsFileEntry, b: ModelsFileEntry): boolean {
  return a.provider === b.provider && a.upstream_model === b.upstream_model;
}

function isFree({ rates }: ModelsFileEntry): boolean {
  return Object.values(rates ?? {}).every((rate) => rate === 0);
}

function jumpOfNewModel({ id, rates }: ModelsFileEntry): PriceJump {
  return {
    id,
    rate: 'rates',
    aboveInputTokens: 0,
    before: undefined,
    after: rates === null ? null : 0,
  };
}

function uniqueJumps(jumps: readonly PriceJump[]): PriceJump[] {
  return [
    ...new Map(
      jumps.map((jump) => [`${jump.rate} ${jump.aboveInputTokens} ${jump.before ?? ''}`, jump]),
    ).values(),
  ];
}

function jumpsOf(before: ModelsFileEntry, after: ModelsFileEntry, factor: number): PriceJump[] {
  const { id } = after;
  if (before.rates === null || after.rates === null) {
    const isSame = before.rates === after.rates;
    const [formerRate, nextRate] = [before.rates, after.rates].map(firstRate);
    return isSame
      ? []
      : [{ id, rate: 'rates', aboveInputTokens: 0, before: formerRate ?? null, after: nextRate ?? null }];
  }
  const kinds = [...new Set([...kindsOf(before), ...kindsOf(after)])];
  const thresholds = [
    ...new Set([0, ...[...before.tiers, ...after.tiers].map((tier) => tier.above_input_tokens)]),
  ];
  return thresholds
    .toSorted((a, b) => a - b)
    .flatMap((aboveInputTokens) =>
      kinds
        .map((rate) => ({
          id,
          rate,
          aboveInputTokens,
          before: rateAt(before, rate, aboveInputTokens),
          after: rateAt(after, rate, aboveInputTokens),
        }))
        .filter((jump) => isJump(jump, factor)),
    );
}

/** A rate that shows that the model has prices: of its input, or of its first unit. */
function firstRate(rates: Rates | null): Rate {
  if (rates === null) return undefined;
  const [rate] = Object.values<number | undefined>({ ...rates });
  return rates.input ?? rate;
}

function kindsOf({ rates, tiers }: ModelsFileEntry): (keyof Rates)[] {
  return [rates ?? {}, ...tiers.map((tier) => tier.rates)].flatMap(
    (table) => Object.keys(table) as (keyof Rates)[],
  );
}

// Tokens and videos without a rate of their own are charged at another rate: the first of these that the
// model has (metering/price.ts).
const tokenSubstitutes: Partial<Record<keyof Rates, readonly (keyof Rates)[]>> = {
  cached_input: ['input'],
  cache_write: ['input'],
  reasoning: ['output'],
};
const videoKinds: readonly (keyof Rates)[] = [
  'video_second',
  ...videoResolutions.map((lines) => `video_second_${lines}` as const),
];

function substitutesOf(kind: keyof Rates): readonly (keyof Rates)[] {
  const position = videoKinds.indexOf(kind);
  if (position < 0) return tokenSubstitutes[kind] ?? [];
  // The rate of the next lower resolution; below all resolutions with a rate the lowest of them.
  return [...videoKinds.slice(0, position).toReversed(), ...videoKinds.slice(position + 1)];
}

/** The rate that is charged in a call with more than this many input tokens. */
function rateAt({ rates, tiers }: ModelsFileEntry, kind: keyof Rates, inputTokens: number): Rate {
  const [tier] = tiers
    .filter((candidate) => candidate.above_input_tokens <= inputTokens)
    .toSorted((a, b) => b.above_input_tokens - a.above_input_tokens);
  const chargedRates: Rates = { ...rates, ...tier?.rates };
  const { input, cache_write: cacheWrite = input } = chargedRates;
  if (kind === 'cache_write_1h' && input !== undefined)
    return chargedRates[kind] ?? Math.max(2 * input, cacheWrite ?? 0);
  return [kind, ...substitutesOf(kind)].map((name) => chargedRates[name]).find((rate) => rate !== undefined);
}

function isJump({ before, after }: PriceJump, factor: number): boolean {
  // A kind that had no rate and no substitute was not sold before, so its rate replaces no price.
  if (before === undefined || before === null || before === after) return false;
  if (after === undefined || after === null) return true;
  const [lower, higher] = before < after ? [before, after] : [after, before];
  return lower === 0 || higher / lower > factor;
}
