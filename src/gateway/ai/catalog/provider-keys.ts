// The keys and endpoints of a provider in the models file, in one form for providers with one and with several.

/** One of several keys of a provider. */
export interface KeyEntry {
  /** The environment variable with the key. */
  env: string;
  /** Its share of the calls, relative to the other keys; 1 by default. */
  weight?: number;
}

/** One of several addresses of a provider. */
export interface EndpointEntry {
  base_url: string;
  /** Its share of the calls, relative to the other endpoints; 1 by default. */
  weight?: number;
  /** The environment variable of the only key of this endpoint; without it all keys of the provider are used. */
  api_key_env?: string;
}

/** One endpoint with one key. */
export interface KeyAtEndpoint {
  /** Undefined when the endpoint needs no key. */
  keyEnv: string | undefined;
  /** Undefined for the provider's own `base_url`, which an environment variable can replace. */
  baseUrl: string | undefined;
  weight: number;
}

/** The members of a provider about its keys. */
export interface ProviderKeys {
  /** The environment variable with the API key; absent if none is needed, or with `keys`. */
  api_key_env?: string;
  /** Several keys between which calls are spread. */
  keys?: KeyEntry[];
  /** Several addresses between which calls are spread, in place of `base_url`. */
  endpoints?: EndpointEntry[];
}

// A call keeps the combinations that it must avoid in the bits of one small integer.
export const maxKeysAtEndpoints = 30;

/** Every endpoint with every key that it takes, in the order of the file; never empty. */
export function keysAtEndpoints({ api_key_env: ownKey, keys, endpoints }: ProviderKeys): KeyAtEndpoint[] {
  const ownKeys: readonly Partial<KeyEntry>[] = keys ?? [{ env: ownKey }];
  const addresses: readonly Partial<EndpointEntry>[] = endpoints ?? [{}];
  return addresses.flatMap(({ base_url: baseUrl, weight: share = 1, api_key_env: keyEnv }) =>
    (keyEnv === undefined ? ownKeys : [{ env: keyEnv }]).map(({ env, weight = 1 }: Partial<KeyEntry>) => ({
      keyEnv: env,
      baseUrl,
      weight: weight * share,
    })),
  );
}

/** The environment variables of the keys, each once; empty when the provider needs none. */
export function keyEnvs(entry: ProviderKeys): string[] {
  return [...new Set(keysAtEndpoints(entry).flatMap(({ keyEnv }) => keyEnv ?? []))];
}

/** Whether at least one endpoint can be called with the keys that are set. */
export function hasUsableKey(entry: ProviderKeys, env: { get(key: string): string | undefined }): boolean {
  if (entry.keys === undefined && entry.endpoints === undefined)
    return entry.api_key_env === undefined || (env.get(entry.api_key_env) ?? '') !== '';
  return keysAtEndpoints(entry).some(({ keyEnv }) => keyEnv === undefined || (env.get(keyEnv) ?? '') !== '');
}

/** Which variables are missing, as a clause. */
export function missingKeys(entry: ProviderKeys): string {
  const keys = keyEnvs(entry);
  return keys.length === 1 ? `${keys[0]} is not set` : `none of ${keys.join(', ')} is set`;
}
