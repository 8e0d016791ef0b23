// A few hostile bodies at each operation's own size limit, on both servers; hostile-bodies.ts runs
// all of them.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startWatchedServers, type WatchedServers } from '../support/watched-servers.ts';
import { bodiesFor, type HostileOperation, hostileOperations, measure } from './hostile-run.ts';

// On an idle machine no body blocks an event loop for 50 ms. These runs share their cores with
// other tests, and processor time is counted in steps of 4 ms, so the limit is three times as much.
// Superlinear work takes seconds.
const limitMs = 150;

describe('the event loop', () => {
  let servers: WatchedServers;
  beforeAll(async () => {
    servers = await startWatchedServers();
    await Promise.all([servers.gateway.waitForIdle(), servers.agent.waitForIdle()]);
  });
  afterAll(() => servers?.close());

  test('is reported when it is blocked', async () => {
    for (const server of [servers.gateway, servers.agent]) {
      await server.reset();
      await server.block(2 * limitMs);
      expect((await server.waitForIdle()).blockedMs).toBeGreaterThan(limitMs);
    }
  });

  test.each(hostileOperations().map((operation) => [operation.operationId, operation] as const))(
    'of %s is never blocked for long',
    { timeout: 120_000 },
    async (_, operation) => {
      const sample = sampleOf(operation);
      expect(sample.length).toBeGreaterThan(0);
      for (const body of sample) {
        const measurement = await measure(servers, operation, body, { runs: 5, limitMs });
        expect(measurement.blockedMs, JSON.stringify(measurement)).toBeLessThan(limitMs);
      }
    },
  );
});

// Classes of bodies that have been slow in some operation. Parser and validator are the same for
// all operations, so operations of up to 1 MiB get two bodies. Operations with a higher limit also
// get a large text, which reaches the operation's own code.
const commonBodies = ['root: objects of many shapes'];
const smallClasses = ['quotes'];
const largeClasses = ['quotes', 'accents and <file', 'many items', 'nesting'];
const formBodies = ['form: incomplete boundaries', 'form: many parts', 'form: &'];

/**
 * One body of each class, so that the test takes about a minute; hostile-bodies.ts runs all bodies.
 */
function sampleOf(operation: HostileOperation): ReturnType<typeof bodiesFor> {
  const classes = operation.maxBytes > 1024 * 1024 ? largeClasses : smallClasses;
  const lastNames = new Map<string, string>();
  visitNames(operation, (name) => {
    const bodyClass = classes.find((suffix) => name.endsWith(`: ${suffix}`) && !name.startsWith('root'));
    if (bodyClass !== undefined) lastNames.set(bodyClass, name);
  });
  const bodies = new Set([...commonBodies, ...formBodies, ...lastNames.values()]);
  return bodiesFor(operation, { few: true, only: (name) => bodies.has(name) });
}

/** Visits the names of the bodies without building them. */
function visitNames(operation: HostileOperation, visit: (name: string) => void): void {
  bodiesFor(operation, {
    few: true,
    only(name) {
      visit(name);
      return false;
    },
  });
}
