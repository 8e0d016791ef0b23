// Asks the system for an address and gives it back, so that a start is refused before it opens its data.
import { createServer } from 'node:net';

/** Throws the error of `listen` when the address cannot be had at this moment. */
export async function requireFreePort({ host, port }: { host: string; port: number }): Promise<void> {
  const probe = createServer();
  await new Promise<void>((resolve, reject) => {
    probe.once('error', reject);
    probe.listen({ host, port }, resolve);
  });
  await new Promise((resolve) => probe.close(resolve));
}
