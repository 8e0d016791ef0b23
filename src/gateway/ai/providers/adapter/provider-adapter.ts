// What distinguishes one kind of provider from the others: everything that the gateway does differently for it. Each
// provider's folder has one adapter, and adapters.ts has the table of them.
import type { LanguageModelV4, LanguageModelV4CallOptions } from '@ai-sdk/provider';
import type { ModelCall, ProviderOptions } from '../../hub/language-model.ts';
import type { UpstreamRequest } from '../../upstream/client.ts';
import type { EndRule } from '../../upstream/events.ts';

/** The formats that pass through to providers which speak them. */
export const passthroughFormatNames = ['chat', 'embeddings', 'responses', 'messages', 'rerank'] as const;
export type PassthroughFormatName = (typeof passthroughFormatNames)[number];

/** The formats of asynchronous video jobs. */
export const videoFormats = ['openai', 'google', 'xai'] as const;
export type VideoFormat = (typeof videoFormats)[number];

export interface ProviderAdapter {
  /** Defaults of a provider of this kind in the models file. */
  defaults: ProviderDefaults;
  /** Whether its models run in this process, without a network, retries and a circuit breaker. */
  isLocal?: boolean;
  /** The format of its SDK package for a call; absent where the models run in this process. */
  sdkFormat?: (call: ModelCall) => SdkFormat;
  /** The key's header in formats that pass through, where it is not a bearer token. */
  keyHeaders?: Partial<Record<PassthroughFormatName, UpstreamRequest['keyHeader']>>;
  /** The reasoning efforts that its SDK package translates; without a list they are sent as the models file names them. */
  efforts?: readonly string[];
  /** Its own tools in the language-model format; absent where its SDK package has none. */
  ownTools?: OwnTools;
  /** Whether its chat completions refuse tools other than `function` and `custom`. Other servers check theirs themselves. */
  hasTwoChatTools?: boolean;
  /** Whether it answers in JSON by a schema only. */
  needsAnswerSchema?: boolean;
  /** Whether it has OpenAI's formats for images, speech and transcription. */
  hasOpenAiMedia?: boolean;
  /** Audio tokens of a second in the usage of a transcription. */
  audioTokensPerSecond?: number;
  /** Members of a call that the hub has no member for, as options of the SDK package. */
  callOptions?: (choices: CallerChoices, providerId: string) => ProviderOptions;
  /** Whether a model can be held to one tool call a turn. */
  limitsParallelTools?: boolean;
}

export interface ProviderDefaults {
  base_url?: string;
  formats: PassthroughFormatName[];
  video_format?: VideoFormat;
  /** Request members that it bills other than by tokens; they are refused. */
  unpriced_members: string[];
  output_limit_member?: string;
}

export interface OwnTools {
  /** The prefix of their ids. */
  prefix: string;
  /** Whether the use of the tool costs its tokens alone. `name` is its id without the prefix. */
  isPriced(name: string, args: Record<string, unknown> | undefined): boolean;
}

/** Members of a call beyond the hub's; undefined where the caller does not send them. */
export interface CallerChoices {
  /** Whether the model may call several tools in one turn. */
  parallelToolCalls?: boolean | undefined;
  /** Whether answers must follow the schema to the letter. */
  strictSchema?: boolean | undefined;
}

/** One format of a provider's SDK package. */
export interface SdkFormat {
  keyHeader: UpstreamRequest['keyHeader'];
  endRule: EndRule;
  /** The member of the request that limits the output, where the package may raise it for reasoning. */
  raisedLimit?: string;
  /** Whether the package requests the usage of a stream by `stream_options`. */
  asksForUsage?: (model: SdkModelEntry) => boolean;
  /** Whether tool results are text only in this format. */
  hasTextResults?: boolean;
  /** Headers set by the package that belong to the format. */
  formatHeaders?: readonly string[];
  /** Imports the package at the first call, so that a server without models of this provider never loads it. */
  load(model: SdkModelEntry, settings: PackageSettings): Promise<LanguageModelV4>;
  /** The reasoning effort as the package takes it. */
  effort(reasoningEffort: string): EffortOptions;
  /** Changes to a call before it is sent in this format. */
  prepare?: (call: ModelCall) => ModelCall;
}

/** The members of a catalog model that a package needs. */
export interface SdkModelEntry {
  upstream_model: string;
  providerEntry: { id: string; usage: 'ask' | 'none'; output_limit_member?: string };
}

export type EffortOptions = Pick<LanguageModelV4CallOptions, 'reasoning'> & {
  providerOptions?: ProviderOptions;
};

export interface PackageSettings {
  baseURL: string;
  /** A placeholder: packages require one, and the transport sends the real key. */
  apiKey: string;
  fetch: typeof globalThis.fetch;
  /** Keeps the request for the transport, and returns what the package serializes and sends in its place. */
  deferBody(body: Record<string, unknown>): Record<string, unknown>;
}

/** Efforts of the AI SDK, which the packages of Anthropic and Google translate for their models. */
export const translatedEfforts = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const;

export function translatedEffort(effort: string): EffortOptions {
  return { reasoning: effort as EffortOptions['reasoning'] };
}
