// A free port for a program that cannot choose one itself.
import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

/**
 * A free port of the loopback interface. It is below the range of ephemeral ports (from 32768 on
 * Linux), where another test's connection could take it before the program listens.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(20_000, 32_000);
    const probe = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      probe.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!isFree) continue;
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
}
