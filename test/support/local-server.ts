// Scripted servers on a free port of the loopback interface.
import { once } from 'node:events';
import type { IncomingMessage, Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Resolves with the origin, such as `http://127.0.0.1:43127`. */
export async function listenLocally(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Closes the server and its connections, including those with an open answer. */
export async function closeServer(server: Server): Promise<void> {
  const closeEvent = once(server, 'close');
  server.close();
  server.closeAllConnections();
  await closeEvent;
}

/** Reads the whole body of a request. */
export async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
