// The addresses that a browser visits after a payment: a result page of the gateway, and from there
// the page of the product.
import { isSecureUrl } from '../../kernel/http/address.ts';
import { invalidMember } from '../../kernel/problem.ts';

/**
 * Throws 400 unless the origin belongs to the Bureau. Returns the parsed address as text, so that
 * the address that is used is exactly the address that was checked.
 */
export function parseReturnAddress(
  text: string | undefined,
  bureau: { serverUrl: string; redirectOrigins: readonly string[] },
): string | null {
  if (text === undefined) return null;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !isSecureUrl(url))
    throw invalidMember('return_to', 'must be an https address, or a plain one of this machine');
  if (url.username !== '' || url.password !== '')
    throw invalidMember('return_to', 'must not contain credentials');
  const allowedOrigins = [bureau.serverUrl, ...bureau.redirectOrigins].map((address) =>
    URL.canParse(address) ? new URL(address).origin : null,
  );
  if (!allowedOrigins.includes(url.origin))
    throw invalidMember('return_to', `has the origin ${url.origin}, which is not one of the Bureau's`);
  return url.href;
}

/**
 * The result pages of one payment. The token is known to the paying browser only; the database has
 * its digest.
 */
export function resultPages(baseUrl: string, resultToken: string): { successUrl: string; cancelUrl: string } {
  const base = baseUrl.replace(/\/+$/, '');
  const urlOf = (page: string): string => `${base}/v1/payments/return/${page}?ticket=${resultToken}`;
  return { successUrl: urlOf('success'), cancelUrl: urlOf('cancel') };
}
