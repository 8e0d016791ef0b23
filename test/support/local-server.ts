// Servers of tests on a free port of the loopback interface.
import { once } from 'node:events';
import type { IncomingMessage, Server } from 'node:http';
import type { AddressInfo, Server as NetServer } from 'node:net';

export async function listen(server: NetServer): Promise<{ url: string; port: number }> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, port };
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
