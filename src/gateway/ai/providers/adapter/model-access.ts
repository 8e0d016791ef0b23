// The access of one call to its provider: address, key, deadlines, and the cached SDK model.
import type { LanguageModelV4 } from '@ai-sdk/provider';
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { Authorizer } from '../../upstream/authorizer.ts';
import type { Upstream } from '../../upstream/client.ts';
import type { SdkFormat } from './provider-adapter.ts';

export interface ModelAccess {
  upstream: Upstream;
  baseUrl: string;
  /** The provider's current key; undefined when it needs none. */
  apiKey: string | undefined;
  /** Authorizes requests that are signed or carry a token. */
  authorizer?: Authorizer | undefined;
  /** Maximum silence within the answer. */
  idleMs: number | undefined;
  /** The time left to the first byte. */
  firstMs?: number | undefined;
  /** Resolves to the approved output limit when a package has raised it. Throws 402. */
  approveOutputLimit?: ((tokens: number) => Promise<number>) | undefined;
  /** Called when the answer, or a part of it, is complete and its usage may follow. */
  onAnswerComplete?: (() => void) | undefined;
  /** SDK models of earlier calls. */
  sdkModels: SdkModelCache;
}

/**
 * One SDK model for each catalog entry and format: creating one compiles its
 * schemas, which costs more than a call.
 */
export type SdkModelCache = WeakMap<CatalogModel, CachedSdkModel[]>;

export interface CachedSdkModel {
  baseUrl: string;
  format: SdkFormat;
  sdk: Promise<LanguageModelV4>;
  transport: SdkTransport;
}

/** The network for a provider package (sdk-transport.ts). */
export interface SdkTransport {
  /** The `fetch` of the package. Throws outside of `run`. */
  fetch: typeof globalThis.fetch;
  /** The `deferBody` of `PackageSettings`. */
  deferBody(body: Record<string, unknown>): Record<string, unknown>;
  /** Runs the package's function; each `fetch` in it belongs to this call. */
  run<T>(call: TransportCall, work: () => T): T;
}

/** The properties of the call that `fetch` needs. */
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
