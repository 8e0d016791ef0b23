// Limits of connections by client address. Many clients share the connections of a
// trusted proxy, so there each request counts as one connection.
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { Problem } from '../problem.ts';
import type { Proxies } from './proxies.ts';
import { createAddressLimit } from './rate-limits.ts';
import type { HttpRequest } from './request.ts';

export type ConnectionLimits = ReturnType<typeof createConnectionLimits>;

export function createConnectionLimits(maxPerAddress: number, proxies: Proxies | undefined) {
  const directLimit = createAddressLimit(maxPerAddress);
  const forwardedLimit = createAddressLimit(maxPerAddress);
  // Connections that never sent a request.
  const unusedSockets = new Set<Socket>();
  return {
    unusedSockets,
    /** False when the address has too many connections. */
    accept(socket: Socket): boolean {
      if (!proxies?.isTrusted(peerAddress(socket))) {
        const release = directLimit.acquire(peerAddress(socket));
        if (!release) return false;
        socket.once('close', release);
      }
      unusedSockets.add(socket);
      socket.once('close', () => unusedSockets.delete(socket));
      return true;
    },
    markUsed: (socket: Socket): void => void unusedSockets.delete(socket),
    /** Throws a 429 when the client behind a proxy has too many concurrent requests. */
    admit({ message, response, remoteAddress }: HttpRequest): void {
      if (!proxies?.isTrusted(peerAddress(message.socket))) return;
      const release = forwardedLimit.acquire(remoteAddress);
      if (!release) throw tooManyConnections();
      response.once('close', release);
    },
  };
}

/** The client's address: the socket's peer, or the address that a trusted proxy reports. */
export function clientAddress({ socket, headers }: IncomingMessage, proxies: Proxies | undefined): string {
  return proxies === undefined
    ? peerAddress(socket)
    : proxies.clientOf(peerAddress(socket), headers['x-forwarded-for']);
}

function peerAddress(socket: { remoteAddress?: string | undefined }): string {
  return socket.remoteAddress ?? '';
}

export function tooManyConnections(): Problem {
  const message = 'Too many connections from this address; try again later.';
  return new Problem('rate_limited', 'rate_limited', message, { headers: { 'retry-after': '1' } });
}
