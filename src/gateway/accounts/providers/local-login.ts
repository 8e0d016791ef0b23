// The local edition's login without credentials. It must be unreachable for other machines, for proxies,
// and for web pages that the person has open, except this server's own pages such as `/login`.
import { isLoopbackAddress, isLoopbackHost } from '../../../kernel/http/address.ts';
import type { InstantProvider, Person } from './provider.ts';

/** The only user of the Bureau `local`. */
export const localPerson: Person = {
  issuer: 'local',
  subject: 'local',
  email: null,
  displayName: 'Local user',
};

/** Whether a server with these settings may offer the local login at all. */
export function mayLogInLocally({
  engine,
  localLogin,
  cityBaseUrl,
  trustedProxies,
}: {
  engine: 'postgres' | 'embedded';
  /** `LOCAL_LOGIN`: on unless it is false. */
  localLogin: boolean | undefined;
  cityBaseUrl: string | undefined;
  trustedProxies: readonly string[];
}): boolean {
  // A public address or a trusted proxy means that other machines can reach this server. Behind a proxy
  // on this machine, the connections of all callers come from a loopback address.
  const isPrivate = trustedProxies.length === 0 && (cityBaseUrl === undefined || isLoopbackUrl(cityBaseUrl));
  return engine === 'embedded' && localLogin !== false && isPrivate;
}

export const localLogin: InstantProvider = {
  id: 'local',
  label: 'This machine',
  kind: 'instant',
  inputs: [],
  // Each check blocks one attack. Host: DNS rebinding. Origin, which browsers send with every POST:
  // a page of another server that is open in the browser. Forwarding headers: a proxy on this
  // machine, whose requests come from a loopback address.
  available: ({ bureauId, remoteAddress, host, origin, isForwarded }) =>
    bureauId === 'local' &&
    isLoopbackAddress(remoteAddress) &&
    isLoopbackHost(host) &&
    (origin === undefined || origin === `http://${host}`) &&
    !isForwarded,
  person: localPerson,
};

function isLoopbackUrl(text: string): boolean {
  return URL.canParse(text) && isLoopbackHost(new URL(text).host);
}
