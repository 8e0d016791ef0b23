// Checks each request before it is routed: it must come over loopback, from a page of the console or from no page, and one
// that changes something must say that it comes from a page of the console.
import type { IncomingMessage } from 'node:http';
import { loopbackGuard } from '../kernel/http/guard.ts';
import { Problem } from '../kernel/problem.ts';

const guard = loopbackGuard();

/** Throws a Problem (403) for any other request. */
export function checkOrigin(request: IncomingMessage): void {
  const { headers, method } = request;
  guard(request);
  if (method === 'GET' || method === 'HEAD') return;
  // The guard admits requests without an Origin, as programs send them; only pages of the console may change something.
  if (headers.origin === undefined && headers['sec-fetch-site'] !== 'same-origin') {
    throw new Problem('forbidden', 'forbidden_origin', 'Only a page of this console may ask for that.');
  }
}
