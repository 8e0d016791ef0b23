// Listening sockets of a server.
import type { AddressInfo, Server as NetServer } from 'node:net';

/**
 * Where a server listens: an address, a socket in the file system, or a listening socket that the process inherited. The
 * last two name the url under which callers know them.
 */
export type ListenAddress =
  | { host: string; port: number }
  | { path: string; url: string }
  | { fd: number; url: string };

/** Resolves with a url that can be called from this machine, without a trailing slash. Rejects with the error of `listen`. */
export function listenAt(
  listener: NetServer,
  address: ListenAddress,
): Promise<{ url: string; port: number }> {
  return new Promise((resolve, reject) => {
    listener.once('error', reject);
    const { url, ...target } = 'url' in address ? address : { ...address, url: undefined };
    listener.listen(target, () => {
      listener.off('error', reject);
      const bound = listener.address() as AddressInfo | string | null;
      const port = typeof bound === 'object' && bound !== null ? bound.port : 0;
      const host = 'host' in address ? callableHost(address.host) : '';
      resolve({ url: url ?? `http://${host}:${port}`, port });
    });
  });
}

function callableHost(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}
