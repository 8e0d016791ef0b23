// Whether the providers that are configured can be called: one short call of one model each. It is for the operator,
// so it names what callers are never told, such as the address that did not answer and the variable with the bad key.
import type { Clock } from '../../kernel/clock.ts';
import { Problem } from '../../kernel/problem.ts';
import type { CatalogModel } from './catalog/catalog.ts';
import type { Passthrough } from './formats/passthrough/calls.ts';
import { embeddings } from './formats/passthrough/formats.ts';
import { baseUrlKey, type ProviderModels } from './providers/text-models.ts';
import { ConnectionFailure } from './upstream/provider-error.ts';

/** How one provider stands. `not_configured` is no fault: its key is simply not set. */
export interface ProviderCheck {
  provider: string;
  state: 'well' | 'failing' | 'not_configured';
  /** The model that was called. */
  model: string | null;
  /** The code of the failure. */
  code: string | null;
  message: string;
  duration_ms: number | null;
}

export interface ProviderCheckNeeds {
  env: { get(key: string): string | undefined };
  models: () => readonly CatalogModel[];
  providers: ProviderModels;
  foreign: Passthrough;
  clock: Pick<Clock, 'monotonicMs'>;
}

// Thinking models may need a moment for the shortest answer; a minute is a fault.
const deadlineMs = 60_000;

/** Calls each provider once, all at the same time; in the order of the catalog. */
export async function checkProviders({
  env,
  models,
  providers,
  foreign,
  clock,
}: ProviderCheckNeeds): Promise<ProviderCheck[]> {
  const byProvider = new Map<string, CatalogModel[]>();
  for (const model of models()) {
    if (model.providerEntry.kind === 'local') continue;
    byProvider.set(model.provider, [...(byProvider.get(model.provider) ?? []), model]);
  }

  async function callOnce(model: CatalogModel): Promise<void> {
    const signal = AbortSignal.timeout(deadlineMs);
    if (model.modalities.includes('text')) {
      const prompt = [
        { role: 'user' as const, content: [{ type: 'text' as const, text: 'Answer with one word: hello.' }] },
      ];
      await providers
        .languageModel(model, { effort: undefined })
        .generate({ prompt, maxOutputTokens: 16, reasoningEffort: undefined, signal });
      return;
    }
    const rawBody = Buffer.from(JSON.stringify({ model: model.id, input: 'hello' }));
    await foreign.send(
      embeddings,
      { body: {}, rawBody, signal, timing: () => {}, streamErrorBody: () => undefined },
      model,
      { effort: undefined },
    );
  }

  async function check(provider: string, candidates: readonly CatalogModel[]): Promise<ProviderCheck> {
    const key = candidates[0]?.providerEntry.api_key_env;
    if (key !== undefined && (env.get(key) ?? '') === '') {
      return {
        provider,
        state: 'not_configured',
        model: null,
        code: null,
        message: `${key} is not set.`,
        duration_ms: null,
      };
    }
    const model =
      candidates.find((one) => one.modalities.includes('text')) ??
      candidates.find((one) => one.modalities.includes('embedding'));
    if (model === undefined)
      return {
        provider,
        state: 'not_configured',
        model: null,
        code: null,
        message: 'None of its models answers in text or vectors; it was not called.',
        duration_ms: null,
      };
    const startedMs = clock.monotonicMs();
    const spent = () => Math.round(clock.monotonicMs() - startedMs);
    try {
      await callOnce(model);
      return {
        provider,
        state: 'well',
        model: model.id,
        code: null,
        message: 'answers.',
        duration_ms: spent(),
      };
    } catch (thrown) {
      const { code, message } = diagnosis(
        thrown,
        model,
        providers.access(model, { effort: undefined }).baseUrl,
      );
      return { provider, state: 'failing', model: model.id, code, message, duration_ms: spent() };
    }
  }

  return Promise.all([...byProvider].map(([provider, candidates]) => check(provider, candidates)));
}

function diagnosis(thrown: unknown, model: CatalogModel, baseUrl: string): { code: string; message: string } {
  if (!(thrown instanceof Problem)) {
    const isLate = (thrown as { name?: unknown } | null)?.name === 'TimeoutError';
    return isLate
      ? {
          code: 'upstream_timeout',
          message: `did not answer at ${baseUrl} within ${deadlineMs / 1000} seconds.`,
        }
      : { code: 'internal_error', message: 'The check itself failed.' };
  }
  const code = thrown.foreignCode ?? thrown.code;
  const status = (thrown.cause as { status?: unknown } | undefined)?.status;
  const said = typeof status === 'number' ? ` (status ${status})` : '';
  if (thrown.code === 'provider_credentials')
    return {
      code,
      message: `refused the key of ${model.providerEntry.api_key_env ?? 'no variable'}${said}.`,
    };
  if (thrown.cause instanceof ConnectionFailure)
    return {
      code,
      message: `could not be reached at ${baseUrl} (${thrown.cause.message}); ${baseUrlKey(model.provider)} or base_url says another address.`,
    };
  if (thrown.kind === 'rate_limited') return { code, message: `is there but limits requests${said}.` };
  if (thrown.code === 'upstream_refused')
    return { code, message: `refused the call of ${model.upstream_model}${said}: ${thrown.message}` };
  return {
    code,
    message: `${thrown.message.replace(/^The model provider /, '').replace(/\.$/, '')}${said}, at ${baseUrl}.`,
  };
}
