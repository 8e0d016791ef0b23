// Determines a client's address from `X-Forwarded-For`, which only configured proxies may set. The
// rightmost address that is not a proxy's own counts; the entries further left may be forged.
import { BlockList, isIP } from 'node:net';
import { plainAddress } from './address.ts';

export interface Proxies {
  /** Whether no proxy is configured. */
  readonly isEmpty: boolean;
  isTrusted(address: string): boolean;
  /** The client's address, from the socket's peer and the header `X-Forwarded-For`. */
  clientOf(peer: string, forwardedFor: string | string[] | undefined): string;
}

/**
 * Parses addresses and networks such as `10.0.0.0/8`. Throws an error that names the entry for any
 * other text.
 */
export function trustProxies(list: readonly string[]): Proxies {
  const trustedAddresses = new BlockList();
  for (const entry of list) addEntry(trustedAddresses, entry);

  function isTrusted(address: string): boolean {
    if (list.length === 0) return false;
    const host = plainAddress(address);
    const version = isIP(host);
    return version !== 0 && trustedAddresses.check(host, version === 6 ? 'ipv6' : 'ipv4');
  }

  return {
    isEmpty: list.length === 0,
    isTrusted,
    clientOf(peer, forwardedFor) {
      if (list.length === 0 || forwardedFor === undefined || !isTrusted(peer)) return peer;
      const hops = String(forwardedFor).split(',').map(addressOf);
      let client = peer;
      for (const address of hops.reverse()) {
        // A trusted proxy never writes such an entry, so the hop before it is the client.
        if (address === null) return client;
        client = address;
        if (!isTrusted(address)) return client;
      }
      return client;
    },
  };
}

function addEntry(addresses: BlockList, entry: string): void {
  const [address = '', bits, ...surplus] = entry.split('/');
  const version = isIP(address);
  const width = version === 6 ? 128 : 32;
  const isValid =
    version !== 0 &&
    surplus.length === 0 &&
    (bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= width));
  if (!isValid) throw new Error(`"${entry}" is neither an address nor a network such as 10.0.0.0/8.`);
  addresses.addSubnet(address, bits === undefined ? width : Number(bits), version === 6 ? 'ipv6' : 'ipv4');
}

/** The address of one entry, which some proxies write with a port; null for any other text. */
function addressOf(entry: string): string | null {
  const text = entry.trim();
  const match =
    /^\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?$/.exec(text) ?? /^(\d+\.\d+\.\d+\.\d+):\d{1,5}$/.exec(text);
  const address = match?.[1] ?? text;
  return isIP(address) === 0 ? null : plainAddress(address);
}
