// Every operation with a few hostile bodies at its own limit, on both servers; hostile-bodies.ts has all of them.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startWatchedServers, type WatchedServers } from '../support/watched-servers.ts';
import { bodiesFor, hostileOperations, measure } from './hostile-run.ts';

// On a quiet machine no body holds a loop for 50 ms. These runs share their cores with other tests, and the processor
// time of one is counted in steps of 4 ms, so three times as much fails; what is superlinear takes seconds.
const limitMs = 150;

describe('the event loop', () => {
  let servers: WatchedServers;
  beforeAll(async () => {
    servers = await startWatchedServers();
  });
  afterAll(() => servers?.close());

  test('is seen to be held', async () => {
    for (const server of [servers.gateway, servers.agent]) {
      await server.reset();
      await server.hold(2 * limitMs);
      expect((await server.settled()).holdMs).toBeGreaterThan(limitMs);
    }
  });

  test.each(hostileOperations().map((operation) => [operation.operationId, operation] as const))('of %s is never held for long', { timeout: 600_000 }, async (_, operation) => {
    for (const body of sampleOf(bodiesFor(operation, { few: true }))) {
      const measurement = await measure(servers, operation, body, { runs: 5, limitMs });
      expect(measurement.holdMs, JSON.stringify(measurement)).toBeLessThan(limitMs);
    }
  });
});

/** Of each class one that stands for it, so that the test takes minutes and not hours. */
function sampleOf(bodies: ReturnType<typeof bodiesFor>): ReturnType<typeof bodiesFor> {
  const classes = ['root: members', 'root: objects of many shapes', ': quotes', 'accents and <file', 'an endless data URL', 'many items', ': nesting', 'form: boundaries', 'form: many parts'];
  return classes.flatMap((name) => bodies.filter((body) => body.name.endsWith(name) || (name.startsWith('form') && body.name.startsWith(name))).slice(-1));
}
