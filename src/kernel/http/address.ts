// Decides from an address or a Host header whether the caller is on this machine. It uses
// the text only and no DNS, so another name that resolves to this machine does not count.
import { isIPv4, isIPv6 } from 'node:net';

/**
 * Whether the peer address is this machine: 127.0.0.0/8, `::1`, and 127.0.0.0/8 mapped into IPv6.
 */
export function isLoopbackAddress(address: string): boolean {
  const peer = plainAddress(address);
  return peer === '::1' || (isIPv4(peer) && peer.startsWith('127.'));
}

/** Whether a Host header, with or without a port, is `localhost` or a loopback address. */
export function isLoopbackHost(host: string): boolean {
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]+))(?::\d{1,5})?$/.exec(host);
  const [, bracketed, name = ''] = match ?? [];
  if (bracketed !== undefined) return isIPv6(bracketed) && isLoopbackAddress(bracketed);
  return name.toLowerCase() === 'localhost' || (isIPv4(name) && isLoopbackAddress(name));
}

/** Whether requests to the URL are encrypted or stay on this machine. */
export function isSecureUrl({ protocol, host }: URL): boolean {
  return protocol === 'https:' || (protocol === 'http:' && isLoopbackHost(host));
}

/**
 * The network under which a caller is limited: the address itself for IPv4, the /64
 * for IPv6, because a household or machine usually has a whole /64.
 */
export function networkOf(address: string): string {
  const host = plainAddress(address);
  if (!host.includes(':') || !isIPv6(host)) return host;
  // `::` stands for as many groups of zeros as are missing of eight.
  const [leadingGroups = [], trailingGroups] = host
    .split('::')
    .map((part) => (part === '' ? [] : part.split(':')));
  const zeroCount = trailingGroups === undefined ? 0 : 8 - leadingGroups.length - trailingGroups.length;
  const zeros = Array<string>(zeroCount).fill('0');
  return `${[...leadingGroups, ...zeros, ...(trailingGroups ?? [])].slice(0, 4).join(':')}::/64`;
}

/** The address without a zone: IPv6 in its shortest form, and an IPv4-mapped IPv6 address as IPv4. */
export function plainAddress(address: string): string {
  const [bare = ''] = address.split('%', 1);
  // Runs for each request, and most addresses are IPv4.
  if (!bare.includes(':') || !isIPv6(bare)) return bare;
  const shortestForm = new URL(`http://[${bare}]/`).hostname.slice(1, -1);
  const [, highBits, lowBits] = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(shortestForm) ?? [];
  if (highBits === undefined || lowBits === undefined) return shortestForm;
  const bits = (Number.parseInt(highBits, 16) << 16) | Number.parseInt(lowBits, 16);
  return [24, 16, 8, 0].map((shift) => (bits >>> shift) & 255).join('.');
}
