// The keys, credentials and endpoints of a provider in the models file, in one form for providers with one
// key, several keys or credentials. Tells which environment variables calls need, and which are missing.
import { credentialEnvs, type Credentials, secretEnv } from './credentials.ts';

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
  /**
   * The environment variable of the only key of this endpoint; without it all keys of the provider
   * are used.
   */
  api_key_env?: string;
}

/** One endpoint with one key, or with the credentials of the provider. */
export interface KeyAtEndpoint {
  /**
   * The variable of the key, or of the secret of the credentials; undefined when
   * the endpoint needs none.
   */
  keyEnv: string | undefined;
  /** All variables that calls need: the key's variable, or the variables of the credentials. */
  envs: readonly string[];
  /** Undefined for the provider's own `base_url`, which an environment variable can replace. */
  baseUrl: string | undefined;
  weight: number;
}

/**
 * The members of a provider for its keys and addresses. API keys and `credentials` exclude each other.
 */
export interface ProviderKeys {
  /** The environment variable with the API key; absent if none is needed, or with `keys`. */
  api_key_env?: string;
  /** Several keys between which calls are spread. */
  keys?: KeyEntry[];
  /** Several addresses between which calls are spread, instead of `base_url`. */
  endpoints?: EndpointEntry[];
  /** Credentials that sign requests or obtain tokens for them, instead of API keys. */
  credentials?: Credentials;
}

interface Environment {
  get(key: string): string | undefined;
}

// A call stores the combinations that it must avoid as bits of one integer, which has room for 30.
export const maxKeysAtEndpoints = 30;

/** Every endpoint with every key that it accepts, in the order of the file; never empty. */
export function keysAtEndpoints(entry: ProviderKeys): KeyAtEndpoint[] {
  const { api_key_env: ownKey, keys, endpoints, credentials } = entry;
  const ownKeys: readonly Partial<KeyEntry>[] = keys ?? [
    { env: credentials === undefined ? ownKey : secretEnv(credentials) },
  ];
  const addresses: readonly Partial<EndpointEntry>[] = endpoints ?? [{}];
  return addresses.flatMap(({ base_url: baseUrl, weight: share = 1, api_key_env: keyEnv }) =>
    (keyEnv === undefined ? ownKeys : [{ env: keyEnv }]).map(({ env, weight = 1 }: Partial<KeyEntry>) => ({
      keyEnv: env,
      envs: credentials === undefined ? definedKeys(env) : credentialEnvs(credentials),
      baseUrl,
      weight: weight * share,
    })),
  );
}

function definedKeys(env: string | undefined): string[] {
  return env === undefined ? [] : [env];
}

/** The environment variables of a provider, each once; empty when it needs none. */
export function keyEnvs(entry: ProviderKeys): string[] {
  return [...new Set(keysAtEndpoints(entry).flatMap(({ envs }) => envs))];
}

/** Whether at least one endpoint can be called with the variables that are set. */
export function hasUsableKey(entry: ProviderKeys, env: Environment): boolean {
  const { api_key_env: ownKey, keys, endpoints, credentials } = entry;
  // The usual case without building the combinations: every list of models asks this for each model.
  if (keys === undefined && endpoints === undefined && credentials === undefined)
    return ownKey === undefined || isSet(ownKey, env);
  return keysAtEndpoints(entry).some(({ envs }) => envs.every((name) => isSet(name, env)));
}

/** Which variables are missing, as a clause. */
export function missingKeys(entry: ProviderKeys, env: Environment): string {
  const names = keyEnvs(entry);
  const missingNames = names.filter((name) => !isSet(name, env));
  if (missingNames.length === 1) return `${missingNames[0]} is not set`;
  if (entry.credentials !== undefined) return `${missingNames.join(', ')} are not set`;
  return `none of ${names.join(', ')} is set`;
}

export function isSet(name: string, env: Environment): boolean {
  return (env.get(name) ?? '') !== '';
}
