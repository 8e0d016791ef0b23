// Validates addresses of a Bureau: its Server entrypoint, and the origins and addresses that a
// login may redirect to. All must be https, or http on this machine.
import { isSecureUrl } from '../../kernel/http/address.ts';
import { invalidMember } from '../../kernel/problem.ts';

/** Throws 400 unless the address is valid; returns it unchanged. */
export function requireServerUrl(text: string): string {
  const url = requireAddress(text, 'server_url');
  if (url.username !== '' || url.password !== '')
    throw invalidMember('server_url', 'must not contain credentials');
  if (text.includes('#')) throw invalidMember('server_url', 'must not have a fragment');
  return text;
}

/** Throws 400 unless each is an origin as browsers write it; returns them without duplicates. */
export function requireOrigins(origins: readonly string[]): string[] {
  for (const [index, origin] of origins.entries()) {
    const param = `redirect_origins[${index}]`;
    if (requireAddress(origin, param).origin !== origin) {
      throw invalidMember(
        param,
        'must be an origin alone, in lower case and without a slash at its end, such as https://app.example.test',
      );
    }
  }
  return [...new Set(origins)];
}

/**
 * Throws 400 unless each is an address of an app; returns them as the URL parser writes them,
 * without duplicates.
 */
export function requireRedirectUris(addresses: readonly string[]): string[] {
  const hrefs = addresses.map((address, index) => {
    const param = `redirect_uris[${index}]`;
    const url = requireAddress(address, param);
    if (url.username !== '' || url.password !== '')
      throw invalidMember(param, 'must not contain credentials');
    if (address.includes('#')) throw invalidMember(param, 'must not have a fragment');
    return url.href;
  });
  return [...new Set(hrefs)];
}

/** The default name of a Bureau. */
export function hostOf(serverUrl: string): string {
  return new URL(serverUrl).host;
}

function requireAddress(text: string, param: string): URL {
  // The URL parser strips line breaks and spaces. Refuse them, so that the stored
  // text is the address that was checked.
  const url = URL.canParse(text) && !/[\s\p{Cc}\\]/u.test(text) ? new URL(text) : undefined;
  if (!url) throw invalidMember(param, 'must be an absolute address');
  if (!isSecureUrl(url)) {
    throw invalidMember(param, 'must begin with https://, or with http:// on this machine');
  }
  return url;
}
