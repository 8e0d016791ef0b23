// From a catalog entry to something that can be called: where its provider is now, with which key, how patient to be,
// and which spoke of the hub speaks its language.
import type { CatalogModel } from '../catalog/catalog.ts';
import type { LanguageModel } from '../hub/language-model.ts';
import { anthropicModel } from './anthropic/text.ts';
import { googleModel } from './google/text.ts';
import { withDeadlines } from './local/deadlines.ts';
import { openAiCompatibleModel } from './openai-compatible/text.ts';
import { openAiModel } from './openai/text.ts';
import type { SdkModelCache, ModelAccess } from './sdk-model.ts';
import { isAboveDefaultEffort } from '../catalog/reasoning.ts';
import type { Upstream } from '../upstream/client.ts';
import type { Timeouts } from '../upstream/deadlines.ts';

/** What is known of one call before it is made. */
export interface CallOptions {
  effort: string | undefined;
  firstMs?: number | undefined;
  /** Told what output limit really goes out, where a package may raise it; resolves to the one that may. */
  limitSent?: ((tokens: number) => Promise<number>) | undefined;
  /** Called when the answer, or a part of it, is complete and its usage may follow. */
  completed?: (() => void) | undefined;
}

export interface ProviderModels {
  access(model: CatalogModel, terms: CallOptions): ModelAccess;
  languageModel(model: CatalogModel, terms: CallOptions): LanguageModel;
}

export interface ProviderModelsNeeds {
  env: { get(key: string): string | undefined };
  upstream: Upstream;
  timeouts: Timeouts;
  /** The models that run in this process, by `upstream_model`. */
  local: ReadonlyMap<string, LanguageModel>;
}

/** The environment variable that moves a provider to another address, such as `OPENAI_BASE_URL`. */
export function baseUrlKey(providerId: string): string {
  return `${providerId.toUpperCase().replace(/[^A-Z0-9]+/g, '_')}_BASE_URL`;
}

export function createProviderModels({
  env,
  upstream,
  timeouts,
  local,
}: ProviderModelsNeeds): ProviderModels {
  const made: SdkModelCache = new WeakMap();

  function access(model: CatalogModel, { effort, firstMs, limitSent, completed }: CallOptions): ModelAccess {
    const { id, api_key_env: key, base_url: declared = '' } = model.providerEntry;
    const moved = env.get(baseUrlKey(id));
    const idleMs = model.idle_timeout_s === undefined ? timeouts.idleMs : model.idle_timeout_s * 1000;
    return {
      upstream,
      baseUrl: moved === undefined || moved === '' ? declared : moved.replace(/\/+$/, ''),
      apiKey: key === undefined ? undefined : env.get(key),
      // A model that was asked to think harder is silent for as long as a whole answer may take.
      idleMs: isAboveDefaultEffort(model, effort) ? Math.max(idleMs, timeouts.answerMs) : idleMs,
      firstMs,
      limitSent,
      completed,
      made,
    };
  }

  return {
    access,
    languageModel(model, terms) {
      switch (model.providerEntry.kind) {
        case 'openai-compatible':
          return openAiCompatibleModel(model, access(model, terms));
        case 'openai':
          return openAiModel(model, access(model, terms));
        case 'anthropic':
          return anthropicModel(model, access(model, terms));
        case 'google':
          return googleModel(model, access(model, terms));
        case 'local': {
          const found = local.get(model.upstream_model);
          if (found === undefined) throw new Error(`The model ${model.id} has nothing that runs it.`);
          return withDeadlines(found, timeouts);
        }
      }
    },
  };
}
