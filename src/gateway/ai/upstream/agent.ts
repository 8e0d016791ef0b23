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
  // A proxy resolves names itself, so the lookup guard has no effect. Requests that are restricted
  // to public addresses must then not bypass the proxy, hence the empty `noProxy` below.
  const lookupGuard = publicAddressesOnly && !isProxied ? { lookup: publicLookup } : {};
  const options: Undici.Agent.Options = {
    // Not `connect.timeout`, which has no effect on the connection to a proxy.
    connectTimeout: timeouts.connectMs,
    connect: lookupGuard,
    allowH2: false,
    keepAliveTimeout: 30_000,
  };
  if (!isProxied) return new undici.Agent(options);
  // Absent settings are empty strings: for undefined values the agent would read the environment
  // variables of the process instead.
  return new undici.EnvHttpProxyAgent({
    ...options,
    httpsProxy: https ?? '',
    httpProxy: http ?? '',
    noProxy: publicAddressesOnly ? '' : (none ?? ''),
  });
}
