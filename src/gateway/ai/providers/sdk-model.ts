// A model of the hub behind one of the AI SDK's provider packages. The package translates; the transport is ours
// (upstream/client.ts), so deadlines, errors and the rule for a cut stream hold here as everywhere, and the package
// never sees a credential.
import { ReadableStream } from 'node:stream/web';
import { setImmediate } from 'node:timers/promises';
import type { LanguageModelV4, LanguageModelV4CallOptions } from '@ai-sdk/provider';
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { FinishReason, LanguageModel, ModelCall, ProviderOptions } from '../hub/language-model.ts';
import { findForm } from '../upstream/member-names.ts';
import { refuseUnsafeMembers } from '../upstream/request-guard.ts';
import {
  maxEventBytesFor,
  maxAnswerBytes,
  type Upstream,
  type UpstreamAnswer,
  type UpstreamRequest,
} from '../upstream/client.ts';
import { readAll } from '../upstream/response-body.ts';
import { completesAnswer, type EndRule, findError, providerEvents } from '../upstream/events.ts';
import { redactNestedErrorEdits } from '../upstream/error-text.ts';
import { applyEdits, topLevelMembers } from '../upstream/json-members.ts';
import { separateToolFiles } from './tool-result-files.ts';

/** How this call reaches the provider. */
export interface ModelAccess {
  upstream: Upstream;
  baseUrl: string;
  /** The provider's key now, or undefined where it needs none. */
  apiKey: string | undefined;
  /** The longest silence for this call. */
  idleMs: number | undefined;
  /** What is left to the first byte. */
  firstMs?: number | undefined;
  limitSent?: ((tokens: number) => Promise<number>) | undefined;
  completed?: (() => void) | undefined;
  /** The packages' models that were made before. */
  made: SdkModelCache;
}

/** A package's model compiles its schemas when it is made, which costs more than a call: one a format is kept. */
export type SdkModelCache = WeakMap<CatalogModel, CachedSdkModel[]>;

interface CachedSdkModel {
  baseUrl: string;
  endRule: EndRule;
  sdk: Promise<LanguageModelV4>;
  /** The calls that have not reached the transport yet, by the number that they carry as a header. */
  calls: Map<string, { access: ModelAccess; streams: boolean; signal: AbortSignal }>;
  count: number;
}

// Never leaves this process: the transport takes it off.
const callHeader = 'x-townhall-call';

/** What one package is to this file. */
export interface ProviderAdapter {
  keyHeader: UpstreamRequest['keyHeader'];
  endRule: EndRule;
  /** The member of the request that limits the output, where the package may make it larger than it was told. */
  raisedLimit?: string;
  /** Whether the format has results of tools as text alone. */
  hasTextResults?: boolean;
  /** Headers of the package's making that are part of the format. */
  formatHeaders?: readonly string[];
  /** Loads the package, at the first call: whoever runs other models only never pays for it. */
  load(settings: PackageSettings): Promise<LanguageModelV4>;
  /** The effort as the package wants it. */
  effort(reasoningEffort: string): EffortOptions;
}

export type EffortOptions = Pick<LanguageModelV4CallOptions, 'reasoning'> & { own?: ProviderOptions };

export interface PackageSettings {
  baseURL: string;
  /** Present because packages insist on one; the transport sends the real one. */
  apiKey: string;
  fetch: typeof globalThis.fetch;
}

export function sdkModel(model: CatalogModel, spoke: ProviderAdapter, access: ModelAccess): LanguageModel {
  async function open(call: ModelCall, streams: boolean) {
    refuseOptions(model, call);
    const made = madeModel(model, spoke, access);
    const sdk = await made.sdk;
    made.count += 1;
    const number = String(made.count);
    made.calls.set(number, { access, streams, signal: call.signal });
    return {
      sdk,
      options: { ...optionsOf(model, spoke, call), headers: { [callHeader]: number } },
      done: () => made.calls.delete(number),
    };
  }

  return {
    async generate(call) {
      const { sdk, options, done } = await open(call, false);
      try {
        const { content, finishReason, usage, warnings, providerMetadata } = await sdk.doGenerate(options);
        return {
          content,
          finishReason: normalizeFinishReason(finishReason),
          usage,
          warnings,
          providerMetadata,
        };
      } catch (error) {
        throw asProblem(error, call.signal);
      } finally {
        done();
      }
    },
    async *stream(call) {
      const { sdk, options, done } = await open(call, true);
      try {
        const { stream } = await sdk.doStream(options);
        // Read by hand: a web stream's own iterator takes several turns more for each part.
        const reader = stream.getReader();
        try {
          for (;;) {
            const { done: isOver, value: part } = await reader.read();
            if (isOver) break;
            if (part.type === 'error') yield { type: 'error', error: asProblem(part.error, call.signal) };
            else
              yield part.type === 'finish'
                ? { ...part, finishReason: normalizeFinishReason(part.finishReason) }
                : part;
          }
        } finally {
          // Without effect on a stream that has ended; one that nobody reads further is given up.
          reader.cancel().catch(() => {});
        }
      } catch (error) {
        throw asProblem(error, call.signal);
      } finally {
        done();
      }
    },
  };
}

// Some servers of the chat-completions format say that a model failed with a reason that the packages do not know.
function normalizeFinishReason(reason: FinishReason): FinishReason {
  return reason.raw === 'error' ? { ...reason, unified: 'error' } : reason;
}

function madeModel(
  model: CatalogModel,
  spoke: ProviderAdapter,
  { made, baseUrl }: ModelAccess,
): CachedSdkModel {
  const before = made.get(model)?.find((one) => one.baseUrl === baseUrl && one.endRule === spoke.endRule);
  if (before !== undefined) return before;
  const calls: CachedSdkModel['calls'] = new Map();
  const send: typeof globalThis.fetch = async (url, init) => {
    const headers = new Headers(init?.headers);
    const call = calls.get(headers.get(callHeader) ?? '');
    if (call === undefined) throw new Error('A package made a call that nobody asked for.');
    const { access, streams, signal } = call;
    return transport(
      {
        url: url as string,
        body: init?.body as string,
        headers: formatHeaders(spoke, headers),
        streams,
        signal,
      },
      { model, spoke, access },
    );
  };
  const sdk = spoke.load({ baseURL: baseUrl, apiKey: 'held by the transport', fetch: send });
  const fresh: CachedSdkModel = { baseUrl, endRule: spoke.endRule, sdk, calls, count: 0 };
  // Of a provider that has moved, nothing is kept.
  made.set(model, [...(made.get(model) ?? []).filter((one) => one.baseUrl === baseUrl), fresh]);
  // A failure to load is not kept.
  sdk.catch(() => made.delete(model));
  return fresh;
}

function optionsOf(model: CatalogModel, spoke: ProviderAdapter, call: ModelCall): LanguageModelV4CallOptions {
  const { reasoningEffort, signal, providerOptions = {}, memberNames: _memberNames, ...options } = call;
  const limit =
    call.maxOutputTokens ??
    (model.providerEntry.output_limit_member === undefined
      ? undefined
      : (model.max_output_tokens ?? undefined));
  const { own = {}, ...reasoning } = reasoningEffort === undefined ? {} : spoke.effort(reasoningEffort);
  const merged: ProviderOptions = { ...providerOptions };
  for (const [name, members] of Object.entries(own)) merged[name] = { ...merged[name], ...members };
  const prompt = spoke.hasTextResults === true ? separateToolFiles(options.prompt) : options.prompt;
  return {
    ...options,
    prompt,
    ...reasoning,
    ...(limit === undefined ? {} : { maxOutputTokens: limit }),
    abortSignal: signal,
    providerOptions: merged,
  };
}

// The provider package puts these options into the request as they are, so what must not be in a request must not
// be in them either, and what the call itself decides must not be decided again.
function refuseOptions({ providerEntry: provider }: CatalogModel, call: ModelCall): void {
  for (const [owner, members] of Object.entries(call.providerOptions ?? {})) {
    const path = `providerOptions.${owner}`;
    refuseUnsafeMembers(members, provider, { path });
    const decided = findForm(Object.keys(members), decidedByCall);
    if (decided === undefined) continue;
    const remedy = /effort|thinking/i.test(decided)
      ? 'reasoning_effort at the top level'
      : 'the call option of that meaning';
    throw new Problem(
      'bad_request',
      'invalid_request',
      `The member ${path}.${decided} is refused; send ${remedy} instead.`,
      {
        param: `${path}.${decided}`,
      },
    );
  }
}

const decidedByCall = [
  'model',
  'messages',
  'stream',
  'stream_options',
  'n',
  'max_tokens',
  'max_completion_tokens',
  'maxCompletionTokens',
  'max_output_tokens',
  'tools',
  'reasoning_effort',
  'reasoningEffort',
  'effort',
  'thinking',
  'thinkingConfig',
  'forceReasoning',
  'mcpServers',
  'fallbacks',
];

function formatHeaders(spoke: ProviderAdapter, sent: Headers): Record<string, string> {
  return Object.fromEntries(
    (spoke.formatHeaders ?? []).flatMap((name) => (sent.has(name) ? [[name, sent.get(name) ?? '']] : [])),
  );
}

interface Sending {
  url: string;
  body: string;
  headers: Record<string, string>;
  streams: boolean;
  signal: AbortSignal;
}

// What the package takes for the network. It sees successes only, and streams only as long as they are well-formed.
async function transport(
  sending: Sending,
  { model, spoke, access }: { model: CatalogModel; spoke: ProviderAdapter; access: ModelAccess },
): Promise<Response> {
  const { upstream, apiKey, idleMs, firstMs } = access;
  const body = await withinLimit(sending.body, spoke, access);
  const answer = await upstream.send({
    ...sending,
    body,
    apiKey,
    keyHeader: spoke.keyHeader,
    idleMs,
    firstMs,
  });
  if (!sending.streams) {
    const bytes = await readAll(answer.body, maxAnswerBytes);
    const members = topLevelMembers(bytes);
    if (members === undefined)
      throw new Problem(
        'upstream_failed',
        'upstream_failed',
        'The model provider answered with something that is not a JSON object, or one of too many parts.',
      );
    const error = findError(bytes, members);
    if (error !== undefined) throw error;
    return new Response(new Uint8Array(bytes), { headers: { 'content-type': 'application/json' } });
  }
  if (answer.mediaType !== 'text/event-stream') {
    answer.abort();
    throw new Problem(
      'upstream_failed',
      'upstream_failed',
      'The model provider did not answer with a stream.',
    );
  }
  return new Response(
    streamOf(
      checked(answer, {
        rule: spoke.endRule,
        maxEventBytes: maxEventBytesFor(spoke.endRule, model),
        completed: access.completed,
      }),
    ) as BodyInit,
    { headers: { 'content-type': 'text/event-stream' } },
  );
}

// A package that gives a model room to think on top of its answer has asked nobody whether that is paid for.
async function withinLimit(
  body: string,
  { raisedLimit }: ProviderAdapter,
  { limitSent }: ModelAccess,
): Promise<string | Uint8Array> {
  if (raisedLimit === undefined || limitSent === undefined) return body;
  const bytes = Buffer.from(body, 'utf8');
  const member = topLevelMembers(bytes)?.members.find(({ name }) => name === raisedLimit);
  if (member === undefined) return body;
  const wanted = Number(bytes.toString('latin1', member.start, member.end));
  const allowed = await limitSent(wanted);
  return allowed === wanted ? body : applyEdits(bytes, [{ ...member, text: String(allowed) }]);
}

// A web stream that fails throws away what is still in it. What came before the fault is the caller's, so it gets a
// turn to be read.
async function afterTheRest(thrown: unknown): Promise<never> {
  await setImmediate();
  throw thrown;
}

function streamOf(pieces: AsyncGenerator<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const next = await pieces.next().catch(afterTheRest);
        if (next.done === true) controller.close();
        else controller.enqueue(next.value);
      },
      async cancel() {
        await pieces.return(undefined);
      },
    },
    { highWaterMark: 0 },
  );
}

interface Checking {
  rule: EndRule;
  maxEventBytes: number;
  completed: ModelAccess['completed'];
}

async function* checked(
  { body, redact: clean }: UpstreamAnswer,
  { rule, maxEventBytes, completed }: Checking,
): AsyncGenerator<Uint8Array> {
  for await (const group of providerEvents(body, maxEventBytes, rule)) {
    if (completed !== undefined && group.some((event) => completesAnswer(event, rule))) completed();
    yield new Uint8Array(
      Buffer.concat(
        group.map(({ bytes, data, hasFailed }) =>
          hasFailed === true && data.kind === 'object'
            ? applyEdits(bytes, redactNestedErrorEdits(bytes, data.members, clean))
            : bytes,
        ),
      ),
    );
  }
}

// What a package refuses to translate is the caller's to change; it says so in words that are about the request alone.
const refusals = new Set([
  'AI_UnsupportedFunctionalityError',
  'AI_InvalidPromptError',
  'AI_InvalidArgumentError',
]);

// The package wraps what our transport threw; whatever else it throws is an answer that it could not make sense of.
function asProblem(thrown: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  for (let error = thrown, depth = 0; error instanceof Error && depth < 8; error = error.cause, depth += 1) {
    if (error instanceof Problem) return error;
    if (refusals.has(error.name))
      return new Problem(
        'impossible',
        'unsupported_by_model',
        `The model cannot take this call: ${error.message}`,
        { cause: error },
      );
  }
  return new Problem(
    'upstream_failed',
    'upstream_failed',
    'The model provider answered with something that is not a chat completion.',
    { cause: thrown },
  );
}
