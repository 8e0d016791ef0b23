// The amount that a call reserves, and the output limit that the gateway adds to a
// call without one, within the reservation.
import type { CatalogModel } from '../catalog/catalog.ts';
import {
  affordableOutput,
  type Bound,
  boundOf,
  type Demand,
  longestOutput,
  minimumOutput,
} from '../metering/bound.ts';
import { adapterOf } from '../providers/adapters.ts';

/** Whether the call is priced by its output tokens, and the request sets no limit for them. */
export function isUnlimited(demand: Demand): boolean {
  return demand.limit === undefined && demand.hasOutput !== false && demand.size !== undefined;
}

/** Whether the provider accepts an output limit that the gateway adds. */
export function acceptsLimit(model: CatalogModel): boolean {
  return adapterOf(model).isLocal === true || model.providerEntry.output_limit_member !== undefined;
}

/**
 * The output limit to add to the request, in tokens, and the resulting bound: the
 * model's longest answer, or as much as the granted credits cover. No limit is added
 * when none is needed. `granted` is undefined for a free call.
 */
export function termsWithin(
  model: CatalogModel,
  demand: Demand,
  granted?: bigint,
): { limit: number | undefined; bound: Bound } {
  if (!isUnlimited(demand) || model.rates === null || !acceptsLimit(model))
    return { limit: undefined, bound: boundOf(model, demand) };
  const maxOutput = longestOutput(model);
  const fullBound = boundOf(model, demand, maxOutput);
  if (granted === undefined || fullBound.credits <= granted) return { limit: maxOutput, bound: fullBound };
  const limit = Math.min(maxOutput, affordableOutput([model], demand, granted));
  return { limit, bound: boundOf(model, demand, limit) };
}

/** The highest bound of the models, each at its longest answer. */
export function highestBound(models: readonly CatalogModel[], demand: Demand): bigint {
  return highestPrice(models, (model) => termsWithin(model, demand).bound.credits);
}

/**
 * The amount to reserve for the models out of the available credits: their highest bound,
 * or less for a shorter answer. Undefined when the credits do not cover an answer of 16
 * tokens, or of the caller's output limit.
 */
export function amountWithin(
  models: readonly CatalogModel[],
  demand: Demand,
  available: bigint,
): bigint | undefined {
  const fullBound = highestBound(models, demand);
  if (fullBound <= available) return fullBound;
  if (!mayShorten(models, demand)) return undefined;
  const tokens = affordableOutput(models, demand, available);
  return tokens < minimumOutput ? undefined : highestBoundAt(models, demand, tokens);
}

/**
 * The amount for an answer of 16 tokens, the shortest useful one; undefined when the
 * credits do not cover it.
 */
export function shortestAmount(
  models: readonly CatalogModel[],
  demand: Demand,
  available: bigint,
): bigint | undefined {
  if (!mayShorten(models, demand)) return undefined;
  const amount = highestBoundAt(models, demand, minimumOutput);
  return amount <= available ? amount : undefined;
}

/** Whether the gateway may add an output limit that shortens the answers of all these models. */
export function mayShorten(models: readonly CatalogModel[], demand: Demand): boolean {
  return isUnlimited(demand) && models.every((model) => model.rates === null || acceptsLimit(model));
}

function highestBoundAt(models: readonly CatalogModel[], demand: Demand, tokens: number): bigint {
  return highestPrice(models, (model) => {
    const { limit } = termsWithin(model, demand);
    return boundOf(model, demand, limit && Math.min(limit, tokens)).credits;
  });
}

/**
 * Whether the granted credits cover a useful answer of the model at some output
 * limit that the gateway may add.
 */
export function coversShorterAnswer(model: CatalogModel, demand: Demand, granted: bigint): boolean {
  return (
    isUnlimited(demand) && acceptsLimit(model) && affordableOutput([model], demand, granted) >= minimumOutput
  );
}

function highestPrice(models: readonly CatalogModel[], price: (model: CatalogModel) => bigint): bigint {
  let highestCredits = 0n;
  for (const model of models) {
    const credits = price(model);
    if (credits > highestCredits) highestCredits = credits;
  }
  return highestCredits;
}
