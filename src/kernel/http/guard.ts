// Protects a server on the loopback interface from web pages and DNS rebinding. It runs before
// routes, credentials and bodies, and rejects every host, origin and site that is not listed.
import type { IncomingMessage } from 'node:http';
import { hostHeaders } from './request-checks.ts';
import { Problem } from '../problem.ts';

/** Rejects a request by throwing a Problem. */
export type Guard = (
  request: Pick<IncomingMessage, 'rawHeaders' | 'url' | 'headers'> & { socket: { localPort?: number } },
) => void;

export interface LoopbackGuardOptions {
  /** Further accepted values of `Host`, each with its port if it has one. */
  allowHosts?: readonly string[];
  /** Exact origins to accept, as browsers send them. The server's own origin is always accepted. */
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
      host !== undefined && (isOwnHost(host, request.socket.localPort) || allowedHosts.has(host));
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
    // Browsers define a site without the port, so a page at another port of this
    // machine sends same-site. For a listed origin a browser may send cross-site or
    // same-site; the list of exact origins is the stronger check.
    if (!isAllowedSite(request.headers['sec-fetch-site'], isListed ? allSites : ownSites))
      throw forbiddenOrigin('Pages of other origins may not call this server.');
  };
}

const ownSites = ['same-origin', 'none'];
const allSites = [...ownSites, 'same-site', 'cross-site'];

function isOwnHost(host: string, localPort: number | undefined): boolean {
  return loopbackNames.some((name) => host === `${name}:${localPort}` || (localPort === 80 && host === name));
}

// Only browsers send `Sec-Fetch-Site`. Node joins the values of a repeated header with a
// comma, and the result matches no allowed value.
function isAllowedSite(site: string | string[] | undefined, allowedSites: readonly string[]): boolean {
  return site === undefined || (typeof site === 'string' && allowedSites.includes(site.toLowerCase()));
}

// A target in absolute form contains an authority, which overrides Host.
function targetAgrees(target: string, host: string): boolean {
  if (target.startsWith('/') || target === '*') return true;
  return target.toLowerCase().startsWith(`http://${host}/`);
}

function forbiddenOrigin(message: string): Problem {
  return new Problem('forbidden', 'forbidden_origin', message);
}
