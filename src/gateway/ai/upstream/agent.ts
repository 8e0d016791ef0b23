// Creates the undici dispatchers for requests to providers: connection pooling,
// proxies, and a DNS guard for public addresses.
import type * as Undici from 'undici';
import { publicLookup } from './public-address.ts';

/** Proxy settings, as in HTTPS_PROXY, HTTP_PROXY and NO_PROXY. */
export interface Proxies {
  https?: string | undefined;
  http?: string | undefined;
  none?: string | undefined;
}

export function createAgent(
  undici: typeof Undici,
  {
    timeouts,
    proxies: { https, http, none },
    publicAddressesOnly = false,
  }: { timeouts: { connectMs: number }; proxies: Proxies; publicAddressesOnly?: boolean },
): Undici.Dispatcher {
  const isProxied = https !== undefined || http !== undefined;
  // With a proxy, the proxy resolves names, so requests to public addresses must not
  // bypass it (noProxy below).
  const lookupGuard = publicAddressesOnly && !isProxied ? { lookup: publicLookup } : {};
  const options: Undici.Agent.Options = {
    connect: { timeout: timeouts.connectMs, ...lookupGuard },
    allowH2: false,
    keepAliveTimeout: 30_000,
  };
  if (!isProxied) return new undici.Agent(options);
  // Empty strings for absent settings: for undefined the agent would read the
  // process's environment.
  return new undici.EnvHttpProxyAgent({
    ...options,
    httpsProxy: https ?? '',
    httpProxy: http ?? '',
    noProxy: publicAddressesOnly ? '' : (none ?? ''),
  });
}
