// What a provider's adapter tells the shared model code (sdk-model.ts), and how one call reaches the provider.
import type { LanguageModelV4, LanguageModelV4CallOptions } from '@ai-sdk/provider';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { ProviderOptions } from '../hub/language-model.ts';
import type { Upstream, UpstreamRequest } from '../upstream/client.ts';
import type { EndRule } from '../upstream/events.ts';

/** How one call reaches its provider. */
export interface ModelAccess {
  upstream: Upstream;
  baseUrl: string;
  /** The provider's key now, or undefined where it needs none. */
  apiKey: string | undefined;
  /** The longest silence within the answer. */
  idleMs: number | undefined;
  /** The time left to the first byte. */
  firstMs?: number | undefined;
  /** Resolves to the output limit that may be sent in place of the one that a package raised. Throws 402. */
  approveOutputLimit?: ((tokens: number) => Promise<number>) | undefined;
  /** Called when the answer, or a part of it, is complete and its usage may follow. */
  onAnswerComplete?: (() => void) | undefined;
  /** SDK models of earlier calls. */
  sdkModels: SdkModelCache;
}

/** One SDK model for each catalog entry and format: creating one compiles its schemas, which costs more than a call. */
export type SdkModelCache = WeakMap<CatalogModel, CachedSdkModel[]>;

export interface CachedSdkModel {
  baseUrl: string;
  endRule: EndRule;
  sdk: Promise<LanguageModelV4>;
  transport: SdkTransport;
}

/** What distinguishes one provider package, or one format of it, from the others. */
export interface ProviderAdapter {
  keyHeader: UpstreamRequest['keyHeader'];
  endRule: EndRule;
  /** The member of the request that limits the output, where the package may raise it for reasoning. */
  raisedLimit?: string;
  /** Whether the package requests the usage of a stream by `stream_options`. */
  asksForUsage?: boolean;
  /** Whether tool results are text only in this format. */
  hasTextResults?: boolean;
  /** Headers set by the package that belong to the format. */
  formatHeaders?: readonly string[];
  /** Imports the package at the first call, so that a server without models of this provider never loads it. */
  load(settings: PackageSettings): Promise<LanguageModelV4>;
  /** The reasoning effort as the package takes it. */
  effort(reasoningEffort: string): EffortOptions;
}

export type EffortOptions = Pick<LanguageModelV4CallOptions, 'reasoning'> & {
  providerOptions?: ProviderOptions;
};

export interface PackageSettings {
  baseURL: string;
  /** A placeholder: packages require one, and the transport sends the real key. */
  apiKey: string;
  fetch: typeof globalThis.fetch;
}

/** The network as a provider package sees it (sdk-transport.ts). */
export interface SdkTransport {
  /** For the package. Throws outside of `run`. */
  fetch: typeof globalThis.fetch;
  /** Runs the package's function; each `fetch` in it belongs to this call. */
  run<T>(call: TransportCall, work: () => T): T;
}

/** What `fetch` has to know of the call that it sends for. */
export interface TransportCall {
  model: CatalogModel;
  adapter: ProviderAdapter;
  access: ModelAccess;
  streams: boolean;
  signal: AbortSignal;
}
