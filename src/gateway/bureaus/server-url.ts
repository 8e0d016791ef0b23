// What may be the Server entrypoint of a Bureau, and what an origin that a login may lead back to: an https
// address, or a plain one of this machine.
import { isLoopbackHost } from '../../kernel/http/address.ts';
import { Problem } from '../../kernel/problem.ts';

/** Throws 400 unless the address is fit; returns it as given. */
export function requireServerUrl(given: string): string {
  const url = requireAddress(given, 'server_url');
  if (url.username !== '' || url.password !== '') throw unfit('server_url', 'must not hold credentials');
  if (given.includes('#')) throw unfit('server_url', 'must not have a fragment');
  return given;
}

/** Throws 400 unless each is an origin as browsers write it; returns them without repetitions. */
export function requireOrigins(given: readonly string[]): string[] {
  for (const [index, origin] of given.entries()) {
    const param = `redirect_origins[${index}]`;
    if (requireAddress(origin, param).origin !== origin) {
      throw unfit(
        param,
        'must be an origin alone, in lower case and without a slash at its end, such as https://app.example.test',
      );
    }
  }
  return [...new Set(given)];
}

/** The host that a Bureau is called after when it is given no name. */
export function hostOf(serverUrl: string): string {
  return new URL(serverUrl).host;
}

function requireAddress(given: string, param: string): URL {
  // The parser of addresses drops line breaks and trims; what is stored has to be what was checked.
  const url = URL.canParse(given) && !/[\s\p{Cc}\\]/u.test(given) ? new URL(given) : undefined;
  if (!url) throw unfit(param, 'must be an absolute address');
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && isLoopbackHost(url.host))) {
    throw unfit(param, 'must begin with https://, or with http:// on this machine');
  }
  return url;
}

function unfit(param: string, message: string): Problem {
  return new Problem('bad_request', 'invalid_request', `\`${param}\` ${message}.`, {
    param,
    details: [{ path: param, message }],
  });
}
