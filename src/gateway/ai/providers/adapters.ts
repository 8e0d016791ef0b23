// The kinds of providers, each with its adapter. The schema of the models file and all code
// that depends on a kind derive from this table: a new kind is a folder and a line here.
import { anthropic } from './anthropic/adapter.ts';
import { azure } from './azure/adapter.ts';
import { bedrock } from './bedrock/adapter.ts';
import { google } from './google/adapter.ts';
import { local } from './local/adapter.ts';
import { openAiCompatible } from './openai-compatible/adapter.ts';
import { openAi } from './openai/adapter.ts';
import { vertex } from './vertex/adapter.ts';
import { vertexAnthropic } from './vertex/anthropic-adapter.ts';
import type { ProviderAdapter } from './adapter/provider-adapter.ts';

const adapters = {
  'openai-compatible': openAiCompatible,
  openai: openAi,
  anthropic,
  google,
  azure,
  bedrock,
  vertex,
  'vertex-anthropic': vertexAnthropic,
  local,
} satisfies Record<string, ProviderAdapter>;

export type ProviderKind = keyof typeof adapters;

export const providerKinds = Object.keys(adapters) as ProviderKind[];

export function adapterOfKind(kind: ProviderKind): ProviderAdapter {
  return adapters[kind];
}

/** The adapter of the model's provider. */
export function adapterOf({ providerEntry }: { providerEntry: { kind: ProviderKind } }): ProviderAdapter {
  return adapters[providerEntry.kind];
}
