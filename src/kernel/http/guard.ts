// Keeps browsers and rebound names away from a server on the loopback interface: the agent's first check,
// before routes, credentials and bodies. The rule it keeps: what is not exactly expected is refused.
import { Problem } from '../problem.ts';

/** What a guard sees of a request. */
export interface Arrival {
  /** All `Host` headers, in order. */
  hosts: readonly string[];
  /** The request target as sent. */
  target: string;
  headers: Readonly<Record<string, string | string[] | undefined>>;
  /** The port that the connection came in on. */
  localPort: number;
}

/** Refuses an arrival by throwing a Problem. */
export type Guard = (arrival: Arrival) => void;

export interface LoopbackGuardOptions {
  /** Further values of `Host` that are accepted, each with its port where it has one. */
  allowHosts?: readonly string[];
  /** Origins that are accepted, exactly as browsers send them. The server's own is always. */
  allowOrigins?: readonly string[];
}

const loopbackNames = ['localhost', '127.0.0.1', '[::1]'];

export function loopbackGuard(options: LoopbackGuardOptions = {}): Guard {
  const allowedHosts = new Set((options.allowHosts ?? []).map((host) => host.toLowerCase()));
  const allowedOrigins = new Set(options.allowOrigins ?? []);

  return ({ hosts, target, headers, localPort }) => {
    const host = hosts.length === 1 ? (hosts[0] as string).toLowerCase() : undefined;
    const atLoopback = loopbackNames.some(
      (name) => host === `${name}:${localPort}` || (localPort === 80 && host === name),
    );
    if (host === undefined || !(atLoopback || allowedHosts.has(host)) || !targetAgrees(target, host)) {
      throw new Problem(
        'forbidden',
        'forbidden_host',
        'This server answers only under its own loopback address.',
      );
    }
    const { origin } = headers;
    const ownOrigin = origin === `http://${host}`;
    if (origin !== undefined && !ownOrigin && !(typeof origin === 'string' && allowedOrigins.has(origin))) {
      throw new Problem('forbidden', 'forbidden_origin', 'Pages of this origin may not call this server.');
    }
    // A site is a name without its port, so a page at any other port of this machine sends same-site. A browser sends
    // cross-site and same-site for a listed origin too; the exact list is the stronger rule.
    const listed = typeof origin === 'string' && allowedOrigins.has(origin);
    if (!isAllowedSite(headers['sec-fetch-site'], listed ? sites : ownSites)) {
      throw new Problem('forbidden', 'forbidden_origin', 'Pages of other origins may not call this server.');
    }
  };
}

const ownSites = ['same-origin', 'none'];
const sites = [...ownSites, 'same-site', 'cross-site'];

// Programs send no such header. Node joins a repeated one with a comma, which is none of the values.
function isAllowedSite(site: string | string[] | undefined, allowed: readonly string[]): boolean {
  return site === undefined || (typeof site === 'string' && allowed.includes(site.toLowerCase()));
}

// A target in absolute form names an authority too, and it overrides Host.
function targetAgrees(target: string, host: string): boolean {
  if (target.startsWith('/') || target === '*') return true;
  return target.toLowerCase().startsWith(`http://${host}/`);
}
