// Where a redirect login may send a browser at its end: only to origins that the Bureau has named. What the URL
// parser made of the address is what counts and what is used, so no spelling of it means one thing here and
// another in a browser.
import { Problem } from '../../../kernel/problem.ts';
import { isLoopbackHost } from '../../../kernel/http/address.ts';
import type { Bureau } from '../../bureaus/index.ts';

/** An attempt that is bound to the browser that finishes it. */
export interface Binding {
  redirectTo: string;
  codeChallenge: string;
}

/** Null when neither is given. Throws 400 when only one is, or when the Bureau has not named the origin. */
export function bindingOf(
  given: { redirect_to?: string; code_challenge?: string },
  bureau: Pick<Bureau, 'redirectOrigins' | 'serverUrl'>,
): Binding | null {
  const { redirect_to: redirectTo, code_challenge: codeChallenge } = given;
  if (redirectTo === undefined && codeChallenge === undefined) return null;
  if (redirectTo === undefined) throw refuse('redirect_to', 'is required beside `code_challenge`');
  if (codeChallenge === undefined) throw refuse('code_challenge', 'is required beside `redirect_to`');
  const url = URL.canParse(redirectTo) ? new URL(redirectTo) : undefined;
  if (!url || !isWebAddress(url))
    throw refuse('redirect_to', 'must be an https address, or a plain one of this machine');
  if (url.username !== '' || url.password !== '') throw refuse('redirect_to', 'must not hold credentials');
  if (redirectTo.includes('#')) throw refuse('redirect_to', 'must not have a fragment');
  const allowed = [bureau.serverUrl, ...bureau.redirectOrigins].map((one) =>
    URL.canParse(one) ? new URL(one).origin : null,
  );
  if (!allowed.includes(url.origin))
    throw refuse('redirect_to', 'has an origin that is not one of the Bureau’s');
  return { redirectTo: url.href, codeChallenge };
}

/** The address with what the product is to read; a fragment, because no server is sent it. */
export function returnAddress(
  redirectTo: string,
  member: 'login_code' | 'login_error',
  value: string,
): string {
  return `${redirectTo}#${member}=${encodeURIComponent(value)}`;
}

function isWebAddress({ protocol, host }: URL): boolean {
  return protocol === 'https:' || (protocol === 'http:' && isLoopbackHost(host));
}

function refuse(param: string, message: string): Problem {
  return new Problem('bad_request', 'invalid_request', `\`${param}\` ${message}.`, {
    param,
    details: [{ path: param, message }],
  });
}
