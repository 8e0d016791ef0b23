// Checks that an address is free by binding it for a moment, so that a server fails to start before it
// opens its data.
import { createServer } from 'node:net';

/** Throws the error of `listen` when the address is not available. */
export async function requireFreePort({ host, port }: { host: string; port: number }): Promise<void> {
  const probe = createServer();
  await new Promise<void>((resolve, reject) => {
    probe.once('error', reject);
    probe.listen({ host, port }, resolve);
  });
  await new Promise((resolve) => probe.close(resolve));
}
