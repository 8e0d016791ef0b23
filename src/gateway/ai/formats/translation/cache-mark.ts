// Cache marks for the provider's prompt cache (`cache_control` of a block, a tool or a message).
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { ProviderEntry } from '../../catalog/models-file.ts';
import type { ProviderOptions } from '../../hub/language-model.ts';
import { adapterOfKind } from '../../providers/adapters.ts';
import { readObject } from './members.ts';
import type { DroppedHints } from './dropped-hints.ts';

/**
 * The mark as options of a message or a part; empty for providers without marks.
 * Throws a 400 for a mark of the wrong type.
 */
export function cacheMarkOf(
  block: Readonly<Record<string, unknown>>,
  { kind }: Pick<ProviderEntry, 'kind'>,
  path: string,
): { providerOptions?: ProviderOptions } {
  const value = block['cache_control'] ?? undefined;
  if (value === undefined) return {};
  const mark = readObject(value, `${path}.cache_control`);
  const { cacheMark: toOptions } = adapterOfKind(kind);
  return toOptions === undefined ? {} : { providerOptions: toOptions(mark) };
}

/** Returns the mark like `cacheMarkOf`, and adds a warning if the model's provider has no marks. */
export function cacheMark(
  block: Readonly<Record<string, unknown>>,
  { model, hints, path }: { model: CatalogModel; hints: DroppedHints; path: string },
): { providerOptions?: ProviderOptions } {
  const options = cacheMarkOf(block, model.providerEntry, path);
  const isDropped = (block['cache_control'] ?? undefined) !== undefined && !('providerOptions' in options);
  if (isDropped) hints.add('cache_control', 'this model caches by rules of its own');
  return options;
}
