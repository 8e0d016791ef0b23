// Common headers of all responses, including CORS.
import { announcesBody } from './body/body.ts';
import type { HttpRequest } from './request.ts';

/** The pages that may read responses. */
export interface CorsRules {
  /** Exact origins, for every path. */
  origins: ReadonlySet<string>;
  /** Further origins that are allowed only for some paths. */
  scoped?: { paths: ReadonlySet<string>; allows(origin: string): boolean } | undefined;
}

// Unread bytes of a body up to which the connection stays open: reading 64 KiB is
// cheaper than a new connection.
const maxUnreadBytes = 64 * 1024;

export function commonHeaders(
  request: HttpRequest,
  { cors, isClosing }: { cors: CorsRules; isClosing: boolean },
): Record<string, string> {
  const headers: Record<string, string> = {
    'x-request-id': request.requestId,
    'x-content-type-options': 'nosniff',
  };
  const clientId = request.headers['x-request-id'];
  if (typeof clientId === 'string' && /^[\x20-\x7e]{1,128}$/.test(clientId))
    headers['x-client-request-id'] = clientId;
  const scopedRules = cors.scoped?.paths.has(request.path) ? cors.scoped : undefined;
  if (cors.origins.size > 0 || scopedRules) {
    const allows = (origin: string) => cors.origins.has(origin) || (scopedRules?.allows(origin) ?? false);
    Object.assign(headers, corsHeaders(request, allows));
  }
  if (isClosing || leavesBodyUnread(request)) headers['connection'] = 'close';
  return headers;
}

/** Whether too much of the request's body is unread to reuse the connection. */
export function leavesBodyUnread({ message, awaitsContinue }: HttpRequest): boolean {
  if (message.complete || !announcesBody(message)) return false;
  // A client that waits for `100 Continue` may or may not send its body after another response.
  if (awaitsContinue) return true;
  const length = message.headers['content-length'];
  return length === undefined || Number(length) > maxUnreadBytes || message.readableFlowing === false;
}

const exposedHeaders = [
  'x-request-id',
  'retry-after',
  'ratelimit',
  'ratelimit-policy',
  'server-timing',
  'idempotent-replayed',
  'x-townhall-model',
  'x-townhall-attempts',
  'x-townhall-credits',
  'x-townhall-warnings',
].join(', ');

// Never `*` and never with credentials: a page sends its bearer token itself.
function corsHeaders(request: HttpRequest, allows: (origin: string) => boolean): Record<string, string> {
  const { origin } = request.headers;
  if (typeof origin !== 'string' || !allows(origin)) return { vary: 'Origin' };
  const headers: Record<string, string> = {
    vary: 'Origin',
    'access-control-allow-origin': origin,
    'access-control-expose-headers': exposedHeaders,
  };
  const method = request.headers['access-control-request-method'];
  if (request.method !== 'OPTIONS' || typeof method !== 'string') return headers;
  const requestHeaders = request.headers['access-control-request-headers'];
  headers['access-control-allow-methods'] = 'GET, HEAD, POST, PUT, PATCH, DELETE';
  if (typeof requestHeaders === 'string' && /^[\w-]+(?:\s*,\s*[\w-]+)*$/.test(requestHeaders))
    headers['access-control-allow-headers'] = requestHeaders;
  headers['access-control-max-age'] = '600';
  return headers;
}
