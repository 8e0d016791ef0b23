// What may be the Server entrypoint of a Bureau: an https address, or a plain one of this machine.
import { isLoopbackHost } from '../../kernel/address.ts';
import { Problem } from '../../kernel/problem.ts';

/** Throws 400 unless the address is fit; returns it as given. */
export function requireServerUrl(given: string): string {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (!url) throw unfit('must be an absolute address');
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && isLoopbackHost(url.host))) {
    throw unfit('must begin with https://, or with http:// on this machine');
  }
  if (url.username !== '' || url.password !== '') throw unfit('must not hold credentials');
  if (given.includes('#')) throw unfit('must not have a fragment');
  return given;
}

function unfit(message: string): Problem {
  return new Problem('bad_request', 'invalid_request', `\`server_url\` ${message}.`, {
    param: 'server_url',
    details: [{ path: 'server_url', message }],
  });
}
