// Where the server may go on a provider's word: to public addresses, over https. The names are looked up when the
// connection is made and what they stand for is judged then, so that a name cannot turn into another address meanwhile.
import { lookup } from 'node:dns';
import { BlockList, isIP, type LookupFunction } from 'node:net';
import { Problem } from '../../../kernel/problem.ts';

const inner = new BlockList();
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
  inner.addSubnet(network, prefix, 'ipv4');
// Of IPv6 only what is given to the public internet counts, without what carries an IPv4 address in itself.
const outer = new BlockList();
outer.addSubnet('2000::', 3, 'ipv6');
for (const [network, prefix] of [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
] as const)
  inner.addSubnet(network, prefix, 'ipv6');

/** Whether an address is one of the public internet. */
export function isPublicAddress(address: string): boolean {
  if (isIP(address) === 4) return !inner.check(address, 'ipv4');
  return isIP(address) === 6 && outer.check(address, 'ipv6') && !inner.check(address, 'ipv6');
}

/** Throws for an address that is not followed on a provider's word, as far as it tells of itself. */
export function requirePublicUrl(url: string): void {
  const { protocol, hostname, username, password } = new URL(url);
  const literal = hostname.replace(/^\[|\]$/g, '');
  const isUsable =
    protocol === 'https:' &&
    username === '' &&
    password === '' &&
    (isIP(literal) === 0 || isPublicAddress(literal));
  if (!isUsable) throw notFollowed();
}

/** Looks a name up, and fails where any of what it stands for is not public. */
export const publicLookup: LookupFunction = (hostname, options, callback) => {
  lookup(hostname, { ...options, all: true }, (error, found) => {
    const [first] = found ?? [];
    if (error !== null || first === undefined)
      return callback(error ?? new Error('The name stands for nothing.'), '', 4);
    if (!found.every(({ address }) => isPublicAddress(address))) return callback(notFollowed(), '', 4);
    if (options.all === true) return callback(null, found);
    callback(null, first.address, first.family);
  });
};

function notFollowed(): Problem {
  return new Problem(
    'upstream_failed',
    'upstream_failed',
    'The model provider keeps its answer at an address that is not followed.',
  );
}
