// Checks whether the configured providers can be called, with one short call to one model of each. The
// result is for the operator, so it includes the base URL and the environment variable of the key,
// which callers never see.
import type { Clock } from '../../kernel/clock.ts';
import { Problem } from '../../kernel/problem.ts';
import type { CatalogModel } from './catalog/catalog.ts';
import { hasUsableKey, missingKeys } from './catalog/provider-keys.ts';
import type { Passthrough } from './formats/passthrough/calls.ts';
import { embeddings } from './formats/passthrough/formats.ts';
import { adapterOf } from './providers/adapters.ts';
import { baseUrlKey, type ProviderModels } from './providers/text-models.ts';
import type { Backend, Backends } from './upstream/backends.ts';
import { ConnectionFailure } from './upstream/provider-error.ts';

/**
 * The result for one provider. `not_configured` is not a failure: its key is not set, or it has no
 * callable model.
 */
export interface ProviderCheck {
  provider: string;
  /** The environment variable of the key, if the provider has several keys: each key has its own result. */
  key?: string;
  state: 'well' | 'failing' | 'not_configured';
  /** The model that was called. */
  model: string | null;
  /** The code of the failure. */
  code: string | null;
  /** Continues a sentence that begins with the model; a whole sentence for `not_configured`. */
  message: string;
  duration_ms: number | null;
}

export interface ProviderCheckOptions {
  env: { get(key: string): string | undefined };
  models: () => readonly CatalogModel[];
  backends: Pick<Backends, 'poolOf'>;
  providers: ProviderModels;
  passthrough: Passthrough;
  clock: Pick<Clock, 'monotonicMs'>;
}

// Reasoning models may take seconds for the shortest answer.
const deadlineMs = 60_000;

/** Calls all providers at the same time; the results are in the order of the catalog. */
export async function checkProviders(options: ProviderCheckOptions): Promise<ProviderCheck[]> {
  const byProvider = Map.groupBy(
    options.models().filter((model) => adapterOf(model).isLocal !== true),
    (model) => model.provider,
  );
  const checks = await Promise.all(
    [...byProvider].map(([provider, models]) => checkProvider(provider, models, options)),
  );
  return checks.flat();
}

async function checkProvider(
  provider: string,
  models: readonly CatalogModel[],
  options: ProviderCheckOptions,
): Promise<ProviderCheck[]> {
  const entry = models[0]?.providerEntry;
  if (entry === undefined) return [notConfigured(provider, 'It has no model.')];
  if (!hasUsableKey(entry, options.env))
    return [notConfigured(provider, `${missingKeys(entry, options.env)}.`)];
  const model =
    models.find(({ modalities }) => modalities.includes('text')) ??
    models.find(({ modalities }) => modalities.includes('embedding'));
  if (model === undefined)
    return [notConfigured(provider, 'None of its models answers in text or vectors; it was not called.')];
  const pool = options.backends.poolOf(entry);
  const usableBackends = pool.backends.filter((backend) => pool.hasKey(backend));
  return Promise.all(
    usableBackends.map(async (backend) => ({
      ...(pool.isShared && backend.keyEnv !== undefined ? { key: backend.keyEnv } : {}),
      ...(await checkBackend(model, backend, options)),
    })),
  );
}

async function checkBackend(
  model: CatalogModel,
  backend: Backend,
  options: ProviderCheckOptions,
): Promise<ProviderCheck> {
  const startedMs = options.clock.monotonicMs();
  const failure = await callOnce(model, backend, options).then(
    () => undefined,
    (error: unknown) => error ?? new Error('unknown failure'),
  );
  const durationMs = Math.round(options.clock.monotonicMs() - startedMs);
  const result = { provider: model.provider, model: model.id, duration_ms: durationMs };
  if (failure === undefined) return { ...result, state: 'well', code: null, message: 'answers.' };
  const { baseUrl } = options.providers.access(model, { effort: undefined, backend });
  return {
    ...result,
    state: 'failing',
    ...describeFailure(failure, model, { envs: backend.envs, baseUrl }),
  };
}

function notConfigured(provider: string, message: string): ProviderCheck {
  return { provider, state: 'not_configured', model: null, code: null, message, duration_ms: null };
}

async function callOnce(
  model: CatalogModel,
  backend: Backend,
  { providers, passthrough }: ProviderCheckOptions,
): Promise<void> {
  const signal = AbortSignal.timeout(deadlineMs);
  if (model.modalities.includes('text')) {
    const prompt = [
      { role: 'user' as const, content: [{ type: 'text' as const, text: 'Answer with one word: hello.' }] },
    ];
    await providers
      .languageModel(model, { effort: undefined, backend })
      .generate({ prompt, maxOutputTokens: 16, reasoningEffort: undefined, signal });
    return;
  }
  const rawBody = Buffer.from(JSON.stringify({ model: model.id, input: 'hello' }));
  await passthrough.send(
    embeddings,
    { body: {}, rawBody, signal, timing: () => {}, streamErrorBody: () => undefined },
    { model, effort: undefined, backend },
  );
}

function describeFailure(
  error: unknown,
  model: CatalogModel,
  { envs, baseUrl }: { envs: readonly string[]; baseUrl: string },
): { code: string; message: string } {
  if (!(error instanceof Problem)) {
    const isTimeout = (error as { name?: unknown } | null)?.name === 'TimeoutError';
    return isTimeout
      ? {
          code: 'upstream_timeout',
          message: `did not answer at ${baseUrl} within ${deadlineMs / 1000} seconds.`,
        }
      : { code: 'internal_error', message: 'The check itself failed.' };
  }
  const code = error.externalCode ?? error.code;
  const httpStatus = (error.cause as { status?: unknown } | undefined)?.status;
  const status = typeof httpStatus === 'number' ? ` (status ${httpStatus})` : '';
  // Without a status, the credentials could not be used at all.
  if (error.code === 'provider_credentials' && status === '')
    return { code, message: `was not called: ${error.message}` };
  if (error.code === 'provider_credentials')
    return {
      code,
      message: `refused the key of ${envs.join(', ') || 'no variable'}${status}.`,
    };
  if (error.cause instanceof ConnectionFailure)
    return {
      code,
      message:
        `could not be reached at ${baseUrl} (${error.cause.message}); set ` +
        `${baseUrlKey(model.provider)} or base_url to another address.`,
    };
  if (error.kind === 'rate_limited') return { code, message: `is reachable but limits requests${status}.` };
  if (error.code === 'upstream_refused')
    return { code, message: `refused the call of ${model.upstream_model}${status}: ${error.message}` };
  const reason = error.message.replace(/^The model provider /, '').replace(/\.$/, '');
  return { code, message: `${reason}${status}, at ${baseUrl}.` };
}
