// Guards requests to URLs that a provider chose against server-side request forgery:
// https and public addresses only. Host names are checked when the connection is
// made, so that DNS cannot change between check and use (DNS rebinding).
import { lookup } from 'node:dns';
import { BlockList, isIP, type LookupFunction } from 'node:net';
import { Problem } from '../../../kernel/problem.ts';

// The special-purpose address ranges of the IANA registries.
const privateRanges = new BlockList();
for (const [network, prefix] of [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
] as const)
  privateRanges.addSubnet(network, prefix, 'ipv4');
// Global unicast is the only public IPv6 range, without Teredo and 6to4 addresses,
// which embed an IPv4 address.
const globalUnicast = new BlockList();
globalUnicast.addSubnet('2000::', 3, 'ipv6');
for (const [network, prefix] of [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
] as const)
  privateRanges.addSubnet(network, prefix, 'ipv6');

/** Whether an IP address is public. */
export function isPublicAddress(address: string): boolean {
  if (isIP(address) === 4) return !privateRanges.check(address, 'ipv4');
  return isIP(address) === 6 && globalUnicast.check(address, 'ipv6') && !privateRanges.check(address, 'ipv6');
}

/**
 * Throws a Problem for a URL that is not https, has credentials, or has a
 * private IP address as its host.
 */
export function requirePublicUrl(url: string): void {
  const { protocol, hostname, username, password } = new URL(url);
  const literal = hostname.replace(/^\[|\]$/g, '');
  const isUsable =
    protocol === 'https:' &&
    username === '' &&
    password === '' &&
    (isIP(literal) === 0 || isPublicAddress(literal));
  if (!isUsable) throw refusedUrl();
}

/** DNS lookup for the connection; fails if any address of the name is not public. */
export const publicLookup: LookupFunction = (hostname, options, callback) => {
  lookup(hostname, { ...options, all: true }, (error, addresses) => {
    const [firstAddress] = addresses ?? [];
    if (error !== null || firstAddress === undefined)
      return callback(error ?? new Error('The host name has no address.'), '', 4);
    if (!addresses.every(({ address }) => isPublicAddress(address))) return callback(refusedUrl(), '', 4);
    if (options.all === true) return callback(null, addresses);
    callback(null, firstAddress.address, firstAddress.family);
  });
};

function refusedUrl(): Problem {
  return new Problem(
    'upstream_failed',
    'upstream_failed',
    'The model provider returned a URL for its answer that is not public; it is not fetched.',
  );
}
