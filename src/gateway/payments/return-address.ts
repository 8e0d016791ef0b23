// Where a browser goes after a payment: our own result pages, and from there back to the product, if its Bureau has
// named the origin. What the URL parser made of an address is what counts and what is used.
import { isLoopbackHost } from '../../kernel/http/address.ts';
import { Problem } from '../../kernel/problem.ts';

/** Null when none is given. Throws 400 when the Bureau has not named the origin. */
export function parseReturnAddress(
  given: string | undefined,
  bureau: { serverUrl: string; redirectOrigins: readonly string[] },
): string | null {
  if (given === undefined) return null;
  const url = URL.canParse(given) ? new URL(given) : undefined;
  const isWeb =
    url !== undefined &&
    (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopbackHost(url.host)));
  if (!isWeb) throw refuse('must be an https address, or a plain one of this machine');
  if (url.username !== '' || url.password !== '') throw refuse('must not hold credentials');
  if (given.includes('#')) throw refuse('must not have a fragment');
  const allowed = [bureau.serverUrl, ...bureau.redirectOrigins].map((one) =>
    URL.canParse(one) ? new URL(one).origin : null,
  );
  if (!allowed.includes(url.origin)) throw refuse('has an origin that is not one of the Bureau’s');
  return url.href;
}

/** Our pages for one payment; the ticket in them is the secret of the browser that pays. */
export function resultPages(baseUrl: string, ticket: string): { successUrl: string; cancelUrl: string } {
  const base = baseUrl.replace(/\/+$/, '');
  const at = (page: string): string => `${base}/v1/payments/return/${page}?ticket=${ticket}`;
  return { successUrl: at('success'), cancelUrl: at('cancel') };
}

function refuse(message: string): Problem {
  return new Problem('bad_request', 'invalid_request', `\`return_to\` ${message}.`, {
    param: 'return_to',
    details: [{ path: 'return_to', message }],
  });
}
