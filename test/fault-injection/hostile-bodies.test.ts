// Every operation with a few hostile bodies at its own limit, on both servers; hostile-bodies.ts has all of them.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startWatchedServers, type WatchedServers } from '../support/watched-servers.ts';
import { bodiesFor, type HostileOperation, hostileOperations, measure } from './hostile-run.ts';

// On a quiet machine no body holds a loop for 50 ms. These runs share their cores with other tests, and the processor
// time of one is counted in steps of 4 ms, so three times as much fails; what is superlinear takes seconds.
const limitMs = 150;

describe('the event loop', () => {
  let servers: WatchedServers;
  beforeAll(async () => {
    servers = await startWatchedServers();
    await Promise.all([servers.gateway.settled(), servers.agent.settled()]);
  });
  afterAll(() => servers?.close());

  test('is seen to be held', async () => {
    for (const server of [servers.gateway, servers.agent]) {
      await server.reset();
      await server.hold(2 * limitMs);
      expect((await server.settled()).holdMs).toBeGreaterThan(limitMs);
    }
  });

  test.each(hostileOperations().map((operation) => [operation.operationId, operation] as const))(
    'of %s is never held for long',
    { timeout: 120_000 },
    async (_, operation) => {
      for (const body of sampleOf(operation)) {
        const measurement = await measure(servers, operation, body, { runs: 5, limitMs });
        expect(measurement.holdMs, JSON.stringify(measurement)).toBeLessThan(limitMs);
      }
    },
  );
});

// Each class has been slow somewhere. What the parser and the validator do is common to all operations, so those of up
// to 1 MiB have two bodies; a large text reaches what an operation does itself.
const commonBodies = ['root: objects of many shapes'];
const smallClasses = ['quotes'];
const largeClasses = ['quotes', 'accents and <file', 'many items', 'nesting'];
const formBodies = ['form: boundaries that are none', 'form: many parts', 'form: &'];

/** One body of each class, so that the test takes a minute; the program has all of them. */
function sampleOf(operation: HostileOperation): ReturnType<typeof bodiesFor> {
  const classes = operation.maxBytes > 1024 * 1024 ? largeClasses : smallClasses;
  const last = new Map<string, string>();
  bodyNames(operation, (name) => {
    const ending = classes.find((each) => name.endsWith(`: ${each}`) && !name.startsWith('root'));
    if (ending !== undefined) last.set(ending, name);
  });
  const bodies = new Set([...commonBodies, ...formBodies, ...last.values()]);
  return bodiesFor(operation, { few: true, only: (name) => bodies.has(name) });
}

/** Visits the names and builds none of the bodies. */
function bodyNames(operation: HostileOperation, visit: (name: string) => void): void {
  bodiesFor(operation, {
    few: true,
    only(name) {
      visit(name);
      return false;
    },
  });
}
