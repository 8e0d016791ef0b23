// A priced text model of the catalog, for tests of bounds, prices and meters.
import type { CatalogModel } from '../../../src/gateway/ai/catalog/catalog.ts';

export function catalogModel(overrides: Partial<CatalogModel> = {}): CatalogModel {
  return {
    id: 'acme/fast',
    name: 'Fast',
    description: '',
    provider: 'acme',
    upstream_model: 'fast',
    modalities: ['text'],
    tags: [],
    created: 0,
    meta: {},
    context_window: null,
    max_output_tokens: 1_000,
    rates: { input: 1_000_000, output: 2_000_000 },
    tiers: [],
    fallbacks: [],
    providerEntry: {
      id: 'acme',
      name: 'Acme',
      kind: 'openai-compatible',
      usage: 'ask',
      unpriced_members: [],
      formats: ['chat'],
      output_limit_member: 'max_tokens',
    },
    ...overrides,
  };
}
