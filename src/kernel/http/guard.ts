// Protects a server on the loopback interface from web pages and DNS rebinding. It runs before routes, credentials and
// bodies, and refuses every host, origin and site that is not listed.
import type { IncomingMessage } from 'node:http';
import { hostHeaders } from './request-checks.ts';
import { Problem } from '../problem.ts';

/** Refuses a request by throwing a Problem. */
export type Guard = (
  request: Pick<IncomingMessage, 'rawHeaders' | 'url' | 'headers'> & { socket: { localPort?: number } },
) => void;

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

  return (request) => {
    const hosts = hostHeaders(request);
    const host = hosts.length === 1 ? hosts[0]?.toLowerCase() : undefined;
    const isAllowed =
      host !== undefined && (isLoopbackHost(host, request.socket.localPort) || allowedHosts.has(host));
    if (!isAllowed || !targetAgrees(request.url ?? '', host)) {
      throw new Problem(
        'forbidden',
        'forbidden_host',
        'This server answers only under its own loopback address.',
      );
    }
    const { origin } = request.headers;
    const isListed = typeof origin === 'string' && allowedOrigins.has(origin);
    if (origin !== undefined && origin !== `http://${host}` && !isListed)
      throw forbiddenOrigin('Pages of this origin may not call this server.');
    // A site is a name without its port, so a page at another port of this machine sends same-site. A browser sends
    // cross-site and same-site for a listed origin too; the list of exact origins is the stronger rule.
    if (!isAllowedSite(request.headers['sec-fetch-site'], isListed ? allSites : ownSites))
      throw forbiddenOrigin('Pages of other origins may not call this server.');
  };
}

const ownSites = ['same-origin', 'none'];
const allSites = [...ownSites, 'same-site', 'cross-site'];

function isLoopbackHost(host: string, localPort: number | undefined): boolean {
  return loopbackNames.some((name) => host === `${name}:${localPort}` || (localPort === 80 && host === name));
}

// Programs send no such header. Node joins a repeated one with a comma, which equals none of the values.
function isAllowedSite(site: string | string[] | undefined, allowed: readonly string[]): boolean {
  return site === undefined || (typeof site === 'string' && allowed.includes(site.toLowerCase()));
}

// A target in absolute form names an authority too, which overrides Host.
function targetAgrees(target: string, host: string): boolean {
  if (target.startsWith('/') || target === '*') return true;
  return target.toLowerCase().startsWith(`http://${host}/`);
}

function forbiddenOrigin(message: string): Problem {
  return new Problem('forbidden', 'forbidden_origin', message);
}
