// A language model of the hub, implemented with one of the AI SDK's provider packages. The package
// translates between the hub and the provider's format; sdk-transport.ts sends the requests.
import type { LanguageModelV4, LanguageModelV4CallOptions } from '@ai-sdk/provider';
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import { maxKeysAtEndpoints } from '../catalog/provider-keys.ts';
import type {
  FinishReason,
  LanguageModel,
  ModelCall,
  ProviderOptions,
  StreamPart,
} from '../hub/language-model.ts';
import type { CachedSdkModel, ModelAccess, TransportCall } from './adapter/model-access.ts';
import type { ProviderAdapter, SdkFormat } from './adapter/provider-adapter.ts';
import { refuseProviderOptions } from './provider-options.ts';
import { createSdkTransport } from './sdk-transport.ts';
import { separateToolFiles } from './tool-result-files.ts';
import { upstreamFailed } from '../hub/problems.ts';

export function sdkModel(
  model: CatalogModel,
  formatOf: NonNullable<ProviderAdapter['sdkFormat']>,
  access: ModelAccess,
): LanguageModel {
  async function prepare(modelCall: ModelCall, { streams }: { streams: boolean }) {
    refuseProviderOptions(model, modelCall);
    const format = formatOf(modelCall);
    const call = format.prepare?.(modelCall, model) ?? modelCall;
    const { sdk, transport } = cachedModel(model, format, access);
    const transportCall: TransportCall = { model, format, access, streams, signal: call.signal };
    const loadedSdk = await sdk;
    return {
      options: sdkOptions(model, format, call),
      transportCall,
      run: <T>(work: (loaded: LanguageModelV4) => T): T =>
        transport.run(transportCall, () => work(loadedSdk)),
    };
  }

  return {
    async generate(call) {
      const { options, run, transportCall } = await prepare(call, { streams: false });
      try {
        const { content, finishReason, usage, warnings, providerMetadata } = await run((sdk) =>
          sdk.doGenerate(options),
        );
        return {
          content,
          finishReason: normalizeFinishReason(finishReason),
          usage,
          warnings,
          providerMetadata,
        };
      } catch (error) {
        throw callProblem(error, transportCall);
      }
    },
    async *stream(call) {
      const { options, run, transportCall } = await prepare(call, { streams: true });
      try {
        const { stream } = await run((sdk) => sdk.doStream(options));
        yield* normalizedParts(stream, transportCall);
      } catch (error) {
        throw callProblem(error, transportCall);
      }
    },
  };
}

async function* normalizedParts(
  stream: ReadableStream<StreamPart>,
  transportCall: TransportCall,
): AsyncGenerator<StreamPart> {
  // Use the reader: a web stream's iterator takes several microtasks more for each part.
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value: part } = await reader.read();
      if (done) return;
      if (part.type === 'error') yield { type: 'error', error: callProblem(part.error, transportCall) };
      else if (part.type === 'finish')
        yield { ...part, finishReason: normalizeFinishReason(part.finishReason) };
      else yield part;
    }
  } finally {
    // Aborts the request when the consumer stops early; has no effect on a stream that has ended.
    reader.cancel().catch(() => {});
  }
}

/**
 * Some servers of the chat-completions format report a failed model as "error", a
 * reason that the packages do not support.
 */
function normalizeFinishReason(reason: FinishReason): FinishReason {
  return reason.raw === 'error' ? { ...reason, unified: 'error' } : reason;
}

// A model has at most two formats at each endpoint of its provider.
const maxCachedModels = 2 * maxKeysAtEndpoints;

function cachedModel(
  model: CatalogModel,
  format: SdkFormat,
  { sdkModels, baseUrl }: ModelAccess,
): CachedSdkModel {
  const cachedModels = sdkModels.get(model) ?? [];
  const existing = cachedModels.find(
    (sdkModel) => sdkModel.baseUrl === baseUrl && sdkModel.format === format,
  );
  if (existing !== undefined) return existing;
  const transport = createSdkTransport();
  const { fetch, deferBody } = transport;
  const settings = { baseURL: baseUrl, apiKey: 'sent by the transport', fetch, deferBody };
  const sdk = format.load(model, settings);
  const newModel: CachedSdkModel = { baseUrl, format, sdk, transport };
  // Drop the oldest model of a full list: it belongs to a base URL that is no longer configured.
  sdkModels.set(model, [...cachedModels.slice(1 - maxCachedModels), newModel]);
  // The next call retries a package that failed to load.
  sdk.catch(() => sdkModels.delete(model));
  return newModel;
}

function sdkOptions(model: CatalogModel, format: SdkFormat, call: ModelCall): LanguageModelV4CallOptions {
  const { reasoningEffort, signal, providerOptions = {}, memberNames: _memberNames, ...options } = call;
  const needsLimit = model.providerEntry.output_limit_member !== undefined;
  const maxOutputTokens =
    call.maxOutputTokens ?? (needsLimit ? (model.max_output_tokens ?? undefined) : undefined);
  const { providerOptions: effortOptions = {}, ...reasoning } =
    reasoningEffort === undefined ? {} : format.effort(reasoningEffort);
  return {
    ...options,
    prompt: format.hasTextResults === true ? separateToolFiles(options.prompt) : options.prompt,
    ...reasoning,
    ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }),
    abortSignal: signal,
    providerOptions: mergeOptions(providerOptions, effortOptions),
  };
}

/** Merges the options of each provider; members of the second win. */
function mergeOptions(baseOptions: ProviderOptions, overridingOptions: ProviderOptions): ProviderOptions {
  const merged = { ...baseOptions };
  for (const [name, members] of Object.entries(overridingOptions))
    merged[name] = { ...merged[name], ...members };
  return merged;
}

/** Errors of a package that could not translate a call. Their messages concern only the request. */
const translationErrors = new Set([
  'AI_UnsupportedFunctionalityError',
  'AI_InvalidPromptError',
  'AI_InvalidArgumentError',
  'AI_NoSuchProviderReferenceError',
]);
// Some of the messages quote the request.
const maxReasonLength = 500;

/**
 * The Problem of a failed call. Packages wrap errors of the transport, so the causes
 * are searched. Any other error of a package concerns the request if nothing was
 * sent; otherwise the package could not parse the answer.
 */
function callProblem(failure: unknown, { signal, wasSent = false }: TransportCall): unknown {
  if (signal.aborted) return signal.reason;
  for (let error = failure, depth = 0; error instanceof Error && depth < 8; error = error.cause, depth += 1) {
    if (error instanceof Problem) return error;
    if (translationErrors.has(error.name)) return untranslatableProblem(error.message, error);
  }
  if (!wasSent)
    return untranslatableProblem('a part of it does not exist in the format of the provider.', failure);
  return upstreamFailed('The model provider answered with something that is not a chat completion.', failure);
}

function untranslatableProblem(reason: string, cause: unknown): Problem {
  return new Problem(
    'impossible',
    'unsupported_by_model',
    `The model does not support this call: ${reason.slice(0, maxReasonLength)}`,
    { cause },
  );
}
