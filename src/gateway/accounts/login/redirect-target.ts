// Validates where a finished login may send the browser: only to origins and addresses that the Bureau lists.
// The URL is used as the parser normalized it, so it cannot mean one thing here and another in a browser.
import { invalidMember } from '../../../kernel/problem.ts';
import { isSecureUrl } from '../../../kernel/http/address.ts';
import type { Bureau } from '../../bureaus/index.ts';

/** Binds an attempt to the browser that finishes it: the result needs the code that this address receives. */
export interface RedirectBinding {
  redirectTo: string;
  codeChallenge: string;
}

/**
 * Null when both members are absent. Throws 400 when the Bureau does not list the origin;
 * `loginPage` is always allowed.
 */
export function redirectBinding(
  {
    redirect_to: redirectTo,
    code_challenge: codeChallenge,
  }: { redirect_to?: string; code_challenge?: string },
  bureau: Pick<Bureau, 'redirectOrigins' | 'serverUrl'>,
  loginPage: string | null,
): RedirectBinding | null {
  // The contract requires both members or neither.
  if (redirectTo === undefined || codeChallenge === undefined) return null;
  const url = URL.canParse(redirectTo) ? new URL(redirectTo) : undefined;
  if (!url || !isSecureUrl(url))
    throw invalidMember('redirect_to', 'must be an https address, or an http address of this machine');
  if (url.username !== '' || url.password !== '')
    throw invalidMember('redirect_to', 'must not contain credentials');
  if (url.href === normalize(loginPage)) return { redirectTo: url.href, codeChallenge };
  const allowedOrigins = [bureau.serverUrl, ...bureau.redirectOrigins].map((address) =>
    URL.canParse(address) ? new URL(address).origin : null,
  );
  if (!allowedOrigins.includes(url.origin))
    throw invalidMember('redirect_to', `has the origin ${url.origin}, which is not one of the Bureau's`);
  return { redirectTo: url.href, codeChallenge };
}

/** The address as the URL parser writes it. Throws 400 unless it is one of the Bureau's `redirect_uris`. */
export function requireRedirectUri(text: string, { redirectUris }: Pick<Bureau, 'redirectUris'>): string {
  const href = normalize(text);
  if (href === null || !redirectUris.includes(href))
    throw invalidMember('redirect_uri', 'is not one of the `redirect_uris` of this Bureau');
  return href;
}

/** The address as the URL parser writes it; null for a string that is not a URL. */
function normalize(text: string | null): string | null {
  return text !== null && URL.canParse(text) ? new URL(text).href : null;
}

/** Adds the result as a fragment, which browsers do not send to servers. */
export function returnAddress(
  redirectTo: string,
  member: 'login_code' | 'login_error',
  value: string,
): string {
  return `${redirectTo}#${member}=${encodeURIComponent(value)}`;
}
