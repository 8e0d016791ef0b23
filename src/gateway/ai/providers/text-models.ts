// Language models of the catalog, ready to be called: the current address and key of
// the provider, the deadlines of the call, and the format of the provider's package.
// media-models.ts does the same for images, videos and audio.
import type { Clock } from '../../../kernel/clock.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { ProviderEntry } from '../catalog/models-file.ts';
import { isAboveDefaultEffort } from '../catalog/reasoning.ts';
import type { LanguageModel } from '../hub/language-model.ts';
import type { Backend, Backends } from '../upstream/backends.ts';
import type { Upstream } from '../upstream/client.ts';
import type { Timeouts } from '../upstream/deadlines.ts';
import type { ModelAccess, SdkModelCache } from './adapter/model-access.ts';
import { adapterOf } from './adapters.ts';
import { createAuthorizers } from './authorizers.ts';
import { withDeadlines } from './local/deadlines.ts';
import { sdkModel } from './sdk-model.ts';

/** The options that differ between calls of one model. */
export interface CallOptions extends Pick<
  ModelAccess,
  'firstMs' | 'approveOutputLimit' | 'onAnswerComplete'
> {
  effort: string | undefined;
  /** The key and the endpoint of the call; when absent, the first usable ones. */
  backend?: Backend | undefined;
}

export interface ProviderModels {
  access(model: CatalogModel, call: CallOptions): ModelAccess;
  languageModel(model: CatalogModel, call: CallOptions): LanguageModel;
}

/** The environment variable that overrides a provider's address, such as `OPENAI_BASE_URL`. */
export function baseUrlKey(providerId: string): string {
  return `${providerId.toUpperCase().replace(/[^A-Z0-9]+/g, '_')}_BASE_URL`;
}

/** The address of a provider without `endpoints`. */
function ownBaseUrl(
  { id, base_url: defaultUrl = '' }: ProviderEntry,
  env: { get(key: string): string | undefined },
): string {
  const ownUrl = env.get(baseUrlKey(id)) ?? '';
  return ownUrl === '' ? defaultUrl : ownUrl.replace(/\/+$/, '');
}

export function createProviderModels({
  env,
  backends,
  upstream,
  timeouts,
  local,
  clock,
}: {
  env: { get(key: string): string | undefined };
  backends: Pick<Backends, 'find'>;
  upstream: Upstream;
  timeouts: Timeouts;
  /** The models that run in this process, by `upstream_model`. */
  local: ReadonlyMap<string, LanguageModel>;
  clock: Pick<Clock, 'now' | 'monotonicMs'>;
}): ProviderModels {
  const sdkModels: SdkModelCache = new WeakMap();
  const authorizerOf = createAuthorizers({ env, upstream, clock });

  function access(model: CatalogModel, { effort, backend, ...call }: CallOptions): ModelAccess {
    const { keyEnv, baseUrl } = backend ?? backends.find(model.providerEntry, undefined);
    const { credentials } = model.providerEntry;
    const idleMs = model.idle_timeout_s === undefined ? timeouts.idleMs : model.idle_timeout_s * 1000;
    return {
      ...call,
      upstream,
      baseUrl: baseUrl ?? ownBaseUrl(model.providerEntry, env),
      // For an entry with credentials, `keyEnv` names their secret, which only the authorizer uses.
      apiKey: keyEnv === undefined || credentials !== undefined ? undefined : env.get(keyEnv),
      authorizer: authorizerOf(model.providerEntry),
      // At a higher effort a model may be silent for as long as a whole answer may take.
      idleMs: isAboveDefaultEffort(model, effort) ? Math.max(idleMs, timeouts.answerMs) : idleMs,
      sdkModels,
    };
  }

  return {
    access,
    languageModel(model, call) {
      const { sdkFormat } = adapterOf(model);
      if (sdkFormat !== undefined) return sdkModel(model, sdkFormat, access(model, call));
      const localModel = local.get(model.upstream_model);
      if (localModel === undefined) throw new Error(`No local model runs ${model.id}.`);
      return withDeadlines(localModel, timeouts);
    },
  };
}
