// The login without credentials of the local edition. The rule it keeps: it is there only for somebody who
// sits at this machine, which a proxy, another machine or a web page must not be able to pretend.
import { isLoopbackAddress, isLoopbackHost } from '../../../kernel/http/address.ts';
import type { InstantProvider, Person } from './provider.ts';

/** The one user of the Bureau `local`. */
export const localPerson: Person = {
  issuer: 'local',
  subject: 'local',
  email: null,
  displayName: 'Local user',
};

/** Whether a server with these settings may have the local login at all. */
export function mayLogInLocally(settings: {
  engine: 'postgres' | 'embedded';
  /** `LOCAL_LOGIN`: on unless it is false. */
  localLogin: boolean | undefined;
  cityBaseUrl: string | undefined;
  trustedProxies: readonly string[];
}): boolean {
  const { engine, localLogin, cityBaseUrl, trustedProxies } = settings;
  // An address of its own or a proxy in front means that others are meant to reach this server, and behind
  // a proxy every caller looks like a neighbour.
  const isAlone = trustedProxies.length === 0 && (cityBaseUrl === undefined || isLoopbackUrl(cityBaseUrl));
  return engine === 'embedded' && localLogin !== false && isAlone;
}

export const localLogin: InstantProvider = {
  id: 'local',
  label: 'This machine',
  kind: 'instant',
  inputs: [],
  // The Host keeps out a name that an attacker made resolve to this machine; a browser sends Origin with
  // every POST, so a page that the person happens to have open is kept out too.
  // Behind a proxy on this machine everybody has a loopback address, and some proxies even write a loopback Host.
  available: ({ bureauId, remoteAddress, host, origin, isForwarded }) =>
    bureauId === 'local' &&
    isLoopbackAddress(remoteAddress) &&
    isLoopbackHost(host) &&
    origin === undefined &&
    !isForwarded,
  person: localPerson,
};

function isLoopbackUrl(text: string): boolean {
  return URL.canParse(text) && isLoopbackHost(new URL(text).host);
}
