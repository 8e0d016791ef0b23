// Models that run in this process.
import type { ProviderAdapter } from '../adapter/provider-adapter.ts';

export const local: ProviderAdapter = {
  defaults: { formats: [], unpriced_members: [] },
  isLocal: true,
};
