// The model providers as an administrator sees them: their keys by environment variable, and the
// state of each.
import type { ModelProvider, ModelProviderKey } from '../../../contract/gateway/types.gen.ts';
import { adapterOfKind } from '../providers/adapters.ts';
import type { BackendReport, Backends } from '../upstream/backends.ts';
import type { CatalogModel } from './catalog.ts';
import type { ProviderEntry } from './models-file.ts';

/**
 * The providers of the models, each once and in the order of the models, without the local ones.
 */
export function remoteProviders(models: readonly CatalogModel[]): ProviderEntry[] {
  const entries = new Set(models.map(({ providerEntry }) => providerEntry));
  return [...entries].filter(({ kind }) => adapterOfKind(kind).isLocal !== true);
}

export function toModelProvider(entry: ProviderEntry, backends: Pick<Backends, 'poolOf'>): ModelProvider {
  const { id, name, kind } = entry;
  return { id, name, kind, keys: backends.poolOf(entry).reports().map(toProviderKey) };
}

function toProviderKey(report: BackendReport): ModelProviderKey {
  const { keyEnv, baseUrl, weight, outstanding, calls, failures, cooling } = report;
  return {
    env: keyEnv ?? null,
    base_url: baseUrl ?? null,
    weight,
    state: stateOf(report),
    ready_in_seconds: Math.ceil((cooling?.restMs ?? 0) / 1000),
    running: outstanding,
    calls,
    failures,
  };
}

function stateOf({ hasKey, cooling }: BackendReport): ModelProviderKey['state'] {
  return hasKey ? (cooling?.reason ?? 'ready') : 'missing';
}
