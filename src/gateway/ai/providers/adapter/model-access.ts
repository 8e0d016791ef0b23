// How one call reaches its provider: address, key, deadlines, and the SDK model that is kept for further calls.
import type { LanguageModelV4 } from '@ai-sdk/provider';
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { Upstream } from '../../upstream/client.ts';
import type { SdkFormat } from './provider-adapter.ts';

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
  format: SdkFormat;
  sdk: Promise<LanguageModelV4>;
  transport: SdkTransport;
}

/** The network as a provider package sees it (sdk-transport.ts). */
export interface SdkTransport {
  /** For the package. Throws outside of `run`. */
  fetch: typeof globalThis.fetch;
  /** For the package. See `PackageSettings`. */
  deferBody(body: Record<string, unknown>): Record<string, unknown>;
  /** Runs the package's function; each `fetch` in it belongs to this call. */
  run<T>(call: TransportCall, work: () => T): T;
}

/** What `fetch` has to know of the call that it sends for. */
export interface TransportCall {
  model: CatalogModel;
  format: SdkFormat;
  access: ModelAccess;
  streams: boolean;
  signal: AbortSignal;
  /** Whether the package has sent a request for the call; set by the transport. */
  wasSent?: boolean;
  /** The request that the transport serializes for the package. */
  deferredBody?: Record<string, unknown>;
}
