// Servers of tests on free ports.
import { once } from 'node:events';
import type { AddressInfo, Server } from 'node:net';

/** Starts the server on a free port of this machine. */
export async function listen(server: Server): Promise<{ url: string; port: number }> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, port };
}
