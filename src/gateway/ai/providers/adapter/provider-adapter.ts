// The differences between kinds of providers, in one place. Each provider's folder has one adapter,
// and adapters.ts has the table of them.
import type { LanguageModelV4, LanguageModelV4CallOptions } from '@ai-sdk/provider';
import type { ModelCall, ProviderOptions } from '../../hub/language-model.ts';
import type { UpstreamRequest } from '../../upstream/client.ts';
import type { Credentials } from '../../catalog/credentials.ts';
import type { EndRule } from '../../upstream/events.ts';

/** The formats that pass through to providers which support them. */
export const passthroughFormatNames = [
  'chat',
  'completions',
  'embeddings',
  'responses',
  'messages',
  'rerank',
  'moderations',
] as const;
export type PassthroughFormatName = (typeof passthroughFormatNames)[number];

/** The formats of asynchronous video jobs. */
export const videoFormats = ['openai', 'google', 'xai'] as const;
export type VideoFormat = (typeof videoFormats)[number];

/** What is specific to one kind of provider. In the comments below, "it" is a provider of this kind. */
export interface ProviderAdapter {
  /** Defaults of a provider of this kind in the models file. */
  defaults: ProviderDefaults;
  /** Whether its models run in this process, without a network, retries and a circuit breaker. */
  isLocal?: boolean;
  /** The format of its SDK package for a call; absent when the models run in this process. */
  sdkFormat?: (call: ModelCall) => SdkFormat;
  /** The key's header in formats that pass through, when it is not a bearer token. */
  keyHeaders?: Partial<Record<PassthroughFormatName, UpstreamRequest['keyHeader']>>;
  /** The key's header in every format, when it is not the format's own. */
  keyHeader?: 'api-key';
  /** The types of credentials that a provider of this kind takes, in addition to an API key. */
  credentialTypes?: readonly Credentials['type'][];
  /** Whether it takes no API key, so that its entry must have credentials. */
  takesNoApiKey?: boolean;
  /** How its base URL is built from members of its entry. */
  address?: ProviderAddress;
  /** Whether stored responses of its reasoning models need `reasoning.encrypted_content`. */
  encryptsReasoning?: boolean;
  /**
   * The reasoning efforts that its SDK package translates; without a list the names
   * of the models file are sent unchanged.
   */
  efforts?: readonly string[];
  /** Its own tools in the language-model format; absent when its SDK package has none. */
  ownTools?: OwnTools;
  /**
   * Whether its chat completions reject tools other than `function` and `custom`.
   * Other servers check their tools themselves.
   */
  hasOnlyPlainChatTools?: boolean;
  /** Whether JSON answers require a schema. */
  needsAnswerSchema?: boolean;
  /** Whether it has OpenAI's formats for images, speech and transcription. */
  hasOpenAiMedia?: boolean;
  /** Audio tokens per second in the usage of a transcription. */
  audioTokensPerSecond?: number;
  /** Converts call members that the hub lacks to options of the SDK package. */
  callOptions?: (choices: CallerChoices, providerId: string) => ProviderOptions;
  /**
   * Converts the caller's cache mark to options of a message or a part; absent when
   * the provider has no marks.
   */
  cacheMark?: (mark: Record<string, unknown>) => ProviderOptions;
  /** Whether a call is sent without the reasoning of earlier turns; absent when it is always sent. */
  dropsReasoning?: (call: ModelCall) => boolean;
  /** Whether a model can be limited to one tool call per turn. */
  limitsParallelTools?: boolean;
}

export interface ProviderDefaults {
  base_url?: string;
  formats: PassthroughFormatName[];
  video_format?: VideoFormat;
  /** Request members that the provider does not bill by tokens; calls with them are rejected. */
  unpriced_members: string[];
  output_limit_member?: string;
}

export interface ProviderAddress {
  /** The members that an entry must have. */
  members: readonly (keyof AddressMembers)[];
  /** Whether an entry with a `base_url` needs none of them. */
  isReplaceable?: boolean;
  /** The base URL of an entry with all members. */
  baseUrl(members: Required<AddressMembers>): string;
}

/** Members of a provider's entry from which some kinds build their base URL. */
export interface AddressMembers {
  /** The region of Amazon Bedrock. */
  region?: string;
  /** The resource of Azure OpenAI. */
  resource?: string;
  /** The project of Google Cloud. */
  project?: string;
  location?: string;
}

export interface OwnTools {
  /** The prefix of their ids. */
  prefix: string;
  /** Whether the tool costs only its tokens. `name` is its id without the prefix. */
  isPriced(name: string, args: Record<string, unknown> | undefined): boolean;
}

/** Choices of a caller for which the hub has no members; undefined when the caller does not send them. */
export interface CallerChoices {
  /** Whether the model may call several tools in one turn. */
  parallelToolCalls?: boolean | undefined;
  /** Whether answers must match the schema exactly. */
  strictSchema?: boolean | undefined;
  /** Whether the answer includes the model's reasoning when the provider sends it only on request. */
  showsReasoning?: boolean | undefined;
}

/** One format of a provider's SDK package. */
export interface SdkFormat {
  keyHeader: UpstreamRequest['keyHeader'];
  /** How its streams end; `converse` for frames of AWS's event stream encoding. */
  endRule: EndRule | 'converse';
  /** The media type of its streams when it is not that of server-sent events. */
  streamType?: string;
  /** The path of the request's output limit, when the package may raise it for reasoning. */
  raisedLimit?: string;
  /** Whether the package requests the usage of a stream by `stream_options`. */
  requestsUsage?: (model: SdkModelEntry) => boolean;
  /** Whether tool results are text only in this format. */
  hasTextResults?: boolean;
  /** Headers set by the package that belong to the format. */
  formatHeaders?: readonly string[];
  /**
   * Imports the package at the first call, so that a server without models of this provider never loads it.
   */
  load(model: SdkModelEntry, settings: PackageSettings): Promise<LanguageModelV4>;
  /** The reasoning effort in the package's terms. */
  effort(reasoningEffort: string): EffortOptions;
  /** Changes to a call before it is sent in this format. */
  prepare?: (call: ModelCall, model: SdkModelEntry) => ModelCall;
}

/** The members of a catalog model that a package needs. */
export interface SdkModelEntry {
  upstream_model: string;
  providerEntry: { id: string; usage: 'ask' | 'none'; output_limit_member?: string } & AddressMembers;
}

export type EffortOptions = Pick<LanguageModelV4CallOptions, 'reasoning'> & {
  providerOptions?: ProviderOptions;
};

export interface PackageSettings {
  baseURL: string;
  /** A placeholder: packages require a key, but the transport sends the real one. */
  apiKey: string;
  fetch: typeof globalThis.fetch;
  /**
   * Keeps the request for the transport, and returns the placeholder that the package serializes and sends.
   */
  deferBody(body: Record<string, unknown>): Record<string, unknown>;
}

/** Efforts of the AI SDK, which the packages of Anthropic and Google translate for their models. */
export const translatedEfforts = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const;

export function translatedEffort(effort: string): EffortOptions {
  return { reasoning: effort as EffortOptions['reasoning'] };
}
