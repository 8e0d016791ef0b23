// What has to be true of a request before anybody looks at what it wants: it comes to our own loopback address, from a
// page of our own or from no page at all, and what changes something says itself that it comes from our page.
import type { IncomingMessage } from 'node:http';
import { loopbackGuard } from '../kernel/http/guard.ts';
import { Problem } from '../kernel/problem.ts';

const guard = loopbackGuard();

/** Throws a Problem (403) for everything else. */
export function passDoor(request: IncomingMessage): void {
  const { headers, method } = request;
  guard(request);
  if (method === 'GET' || method === 'HEAD') return;
  // The guard lets a request without an Origin pass, as programs send it; here only our own pages have anything to change.
  if (headers.origin === undefined && headers['sec-fetch-site'] !== 'same-origin') {
    throw new Problem('forbidden', 'forbidden_origin', 'Only a page of this console may ask for that.');
  }
}
