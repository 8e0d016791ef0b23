// Plans an update of the catalog file: what would change, and why the update is refused. It writes nothing.
import {
  compareCatalogs,
  findPriceJumps,
  guardedProviders,
  type EntryChange,
  type PriceJump,
} from './catalog-changes.ts';
import { overlay, type CatalogDocument, type Pin } from './catalog-document.ts';
import { withDefaults, type ModelsFileEntry, type ModelsFile } from './models-file.ts';

export interface UpdateInput {
  builtIn: ModelsFile;
  /** The document in the catalog file; undefined if there is no file. */
  current: CatalogDocument | undefined;
  next: CatalogDocument;
}

export interface UpdateLimits {
  /** Prices may rise or fall by this factor at most. */
  maximumFactor: number;
  /** The models whose prices may change by any factor. */
  modelsWithAnyPrice: readonly string[];
  allowProviders: boolean;
  allowOlder: boolean;
}

export interface UpdatePlan {
  /** The next content of the catalog file. */
  document: CatalogDocument;
  changes: EntryChange[];
  /** Pins that keep the document from changing an entry. */
  pins: Pin[];
  jumps: PriceJump[];
  /** Why the update is refused; each with the option that allows it. */
  refusals: string[];
}

export function planUpdate(input: UpdateInput, limits: UpdateLimits): UpdatePlan {
  const { builtIn, current, next } = input;
  const currentCatalog = overlay(builtIn, withDefaults(current ?? {}));
  const document = applyPins(next, current?.pins ?? [], currentCatalog, builtIn);
  const nextCatalog = overlay(builtIn, withDefaults(document));
  const changes = compareCatalogs(currentCatalog, nextCatalog);
  const jumps = findPriceJumps(currentCatalog, nextCatalog, limits.maximumFactor).filter(
    ({ id }) => !limits.modelsWithAnyPrice.includes(id),
  );
  return {
    document,
    changes,
    pins: document.pins ?? [],
    jumps,
    refusals: [
      ...ageRefusals(current, next, limits),
      ...jumps.map((jump) => jumpRefusal(jump, limits)),
      ...(limits.allowProviders ? [] : guardedProviders(changes).map(providerRefusal)),
    ],
  };
}

/** The document with the pinned entries as they are in `currentCatalog`. */
function applyPins(
  next: CatalogDocument,
  pins: readonly Pin[],
  currentCatalog: ModelsFile,
  builtIn: ModelsFile,
): CatalogDocument {
  const { pins: _none, ...published } = next;
  if (pins.length === 0) return published;
  const models = new Map((published.models ?? []).map((model) => [model.id, model]));
  for (const { id, member } of pins) {
    const pinnedModel = currentCatalog.models.find((model) => model.id === id);
    if (pinnedModel === undefined) continue;
    const proposedModel = models.get(id);
    models.set(
      id,
      member === 'model' || proposedModel === undefined
        ? pinnedModel
        : withPriceOf(proposedModel, pinnedModel),
    );
  }
  const providerIds = new Set([...(published.providers ?? []), ...builtIn.providers].map(({ id }) => id));
  const neededProviders = currentCatalog.providers.filter(
    ({ id }) => !providerIds.has(id) && [...models.values()].some((model) => model.provider === id),
  );
  return {
    ...published,
    pins: [...pins],
    providers: [...(published.providers ?? []), ...neededProviders],
    models: [...models.values()],
  };
}

function withPriceOf<Model extends Partial<ModelsFileEntry>>(
  model: Model,
  { rates, tiers }: ModelsFileEntry,
): Model {
  return { ...model, rates, tiers };
}

/**
 * The next content of the catalog file with the pin added. The pinned entry is copied into the file.
 */
export function pinEntry(
  { builtIn, current }: Pick<UpdateInput, 'builtIn' | 'current'>,
  pin: Pin,
): CatalogDocument {
  const currentCatalog = overlay(builtIn, withDefaults(current ?? {}));
  const pins = [...(current?.pins ?? []).filter(({ id }) => id !== pin.id), pin];
  return applyPins(current ?? {}, pins, currentCatalog, builtIn);
}

/** The whole catalog as a document, without pins. */
export function catalogDocument({
  builtIn,
  current,
  publishedAt,
}: Pick<UpdateInput, 'builtIn' | 'current'> & { publishedAt: string }): CatalogDocument {
  return { published_at: publishedAt, ...overlay(builtIn, withDefaults(current ?? {})) };
}

/** The content without the pin; the entry stays as it is until the next update. */
export function unpinEntry(current: CatalogDocument, modelId: string): CatalogDocument {
  const { pins = [], ...document } = current;
  const remainingPins = pins.filter(({ id }) => id !== modelId);
  return remainingPins.length === 0 ? document : { ...document, pins: remainingPins };
}

function ageRefusals(
  current: CatalogDocument | undefined,
  next: CatalogDocument,
  { allowOlder }: UpdateLimits,
): string[] {
  const appliedAt = current?.published_at;
  if (allowOlder || appliedAt === undefined) return [];
  if (next.published_at === undefined)
    return [
      `The document has no published_at, but the current document was published at ${appliedAt}; ` +
        '--allow-older applies it.',
    ];
  return Date.parse(next.published_at) < Date.parse(appliedAt)
    ? [
        `The document of ${next.published_at} is older than the current document of ${appliedAt}; ` +
          '--allow-older applies it.',
      ]
    : [];
}

function jumpRefusal(
  { id, rate, aboveInputTokens, before, after }: PriceJump,
  { maximumFactor }: UpdateLimits,
): string {
  if (before === undefined) return `${id} is new and free; --allow-jump ${id} applies it.`;
  const condition = aboveInputTokens === 0 ? '' : ` above ${aboveInputTokens} input tokens`;
  return (
    `${id}: ${rate}${condition} would change from ${before ?? 'no price'} to ${after ?? 'no price'} credits, ` +
    `by more than the factor ${maximumFactor}; --allow-jump ${id} applies it.`
  );
}

function providerRefusal(id: string): string {
  return (
    `The provider ${id} is new, or more than its name changes. Its keys and prompts could go elsewhere, or ` +
    'its prices could be wrong; --allow-providers applies it.'
  );
}
