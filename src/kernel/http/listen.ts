// Listening sockets of a server.
import type { AddressInfo, Server as NetServer } from 'node:net';

/**
 * A listen address: host and port, a Unix socket, or an inherited listening socket. For the last two
 * the caller supplies the url under which clients reach the server.
 */
export type ListenAddress =
  | { host: string; port: number }
  | { path: string; url: string }
  | { fd: number; url: string };

/**
 * Resolves with a url that can be called from this machine, without a trailing
 * slash. Rejects with the error of `listen`.
 */
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
      resolve({ url: url ?? callableUrl('host' in address ? address.host : '', port), port });
    });
  });
}

/** The URL under which a program on this machine calls the address; a wildcard becomes loopback. */
export function callableUrl(host: string, port: number): string {
  if (host === '0.0.0.0') return `http://127.0.0.1:${port}`;
  if (host === '::') return `http://[::1]:${port}`;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
