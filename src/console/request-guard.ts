// Checks each request before routing: it must come over loopback, from a page of the console or
// from no page; a request with effects must come from a page of the console.
import type { IncomingMessage } from 'node:http';
import { loopbackGuard } from '../kernel/http/guard.ts';
import { Problem } from '../kernel/problem.ts';

const guard = loopbackGuard();

/** Throws a Problem (403) for any other request. */
export function checkOrigin(request: IncomingMessage): void {
  const { headers, method } = request;
  guard(request);
  if (method === 'GET' || method === 'HEAD') return;
  // The guard accepts requests without an Origin, as programs send them; but only pages of the
  // console may change something.
  if (headers.origin === undefined && headers['sec-fetch-site'] !== 'same-origin') {
    throw new Problem('forbidden', 'forbidden_origin', 'Only a page of this console may send this request.');
  }
}
