// What an address or a Host header says about where a caller is. It answers from the text alone and never
// asks a name server, so a name that merely resolves to this machine is not this machine.
import { isIPv4, isIPv6 } from 'node:net';

/** Whether the address of a socket's peer is this machine: 127.0.0.0/8, `::1`, and the former mapped into IPv6. */
export function isLoopbackAddress(address: string): boolean {
  const plain = plainAddress(address);
  return plain === '::1' || (isIPv4(plain) && plain.startsWith('127.'));
}

/** Whether a Host header, with or without a port, names this machine: `localhost` or a loopback address. */
export function isLoopbackHost(host: string): boolean {
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]+))(?::\d{1,5})?$/.exec(host);
  const [, bracketed, name = ''] = match ?? [];
  if (bracketed !== undefined) return isIPv6(bracketed) && isLoopbackAddress(bracketed);
  return name.toLowerCase() === 'localhost' || (isIPv4(name) && isLoopbackAddress(name));
}

/**
 * The network that one caller can be held to: the address itself for IPv4, the /64 for IPv6, because one
 * household or machine usually has a whole /64 to take addresses from.
 */
export function networkOf(address: string): string {
  const plain = plainAddress(address);
  if (!plain.includes(':') || !isIPv6(plain)) return plain;
  const [head = '', tail] = plain.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const gap = Array<string>(8 - before.length - after.length).fill('0');
  return `${[...before, ...(tail === undefined ? [] : gap), ...after].slice(0, 4).join(':')}::/64`;
}

/** Without a zone, IPv6 in its shortest form, and an IPv4 address that was mapped into IPv6 as itself. */
export function plainAddress(address: string): string {
  const [bare = ''] = address.split('%', 1);
  // Each request comes here, and most addresses are IPv4.
  if (!bare.includes(':') || !isIPv6(bare)) return bare;
  const short = new URL(`http://[${bare}]/`).hostname.slice(1, -1);
  const mapped = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(short);
  if (!mapped) return short;
  const bits = (Number.parseInt(mapped[1] ?? '', 16) << 16) | Number.parseInt(mapped[2] ?? '', 16);
  return [24, 16, 8, 0].map((shift) => (bits >>> shift) & 255).join('.');
}
