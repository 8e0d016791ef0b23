// A port for a program that cannot be told to choose one itself.
import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

/**
 * A free port of the loopback interface. It lies below those that the system hands out by itself (from
 * 32768 on Linux), for one of those may belong to another test's connection by the time that the program takes it.
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
