// The memory limit of large request bodies whose requests are still open.
import { afterEach, describe, expect, test } from 'vitest';
import { createBodyBudget } from '../../../src/kernel/http/body/budget.ts';
import { startWorld, type World } from '../world.ts';
import { until } from '../../support/until.ts';

const mebibyte = 2 ** 20;

describe('createBodyBudget', () => {
  const refusal = expect.objectContaining({ status: 429, headers: { 'retry-after': '1' } });

  test('refuses a caller beyond its bytes until some are released', () => {
    const budget = createBodyBudget({ perCaller: 2 * mebibyte, total: 10 * mebibyte });
    budget.take('a', 2 * mebibyte);
    expect(() => budget.take('a', 1)).toThrow(refusal);
    budget.take('b', mebibyte);
    budget.give('a', mebibyte);
    budget.take('a', mebibyte);
    expect(() => budget.take('a', 1)).toThrow('2 MiB');
  });

  test('refuses every caller beyond the total', () => {
    const budget = createBodyBudget({ perCaller: 2 * mebibyte, total: 3 * mebibyte });
    budget.take('a', 2 * mebibyte);
    budget.take('b', mebibyte);
    expect(() => budget.take('c', 1)).toThrow(refusal);
    budget.give('b', mebibyte);
    budget.take('c', mebibyte);
  });
});

describe('a server', () => {
  let world: World;
  afterEach(() => world.close());

  test('refuses a second large body until the first request is answered', async () => {
    const { promise: isReleased, resolve: release } = Promise.withResolvers<void>();
    let calls = 0;
    world = await startWorld({
      server: {
        limits: {
          maxBodyBytes: mebibyte,
          largeBodyBytes: { perCaller: 1.5 * mebibyte, total: 10 * mebibyte },
        },
      },
      handlers: {
        'ai.generateText': async () => {
          calls += 1;
          await isReleased;
          return { status: 200, body: {} };
        },
      },
    });
    const send = (bytes: number) =>
      fetch(`${world.url}/v1/ai/text`, {
        method: 'POST',
        headers: { authorization: 'Bearer user-token', 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'a', messages: [{ role: 'user', content: 'x'.repeat(bytes) }] }),
      });
    const firstRequest = send(900_000);
    await until(() => calls === 1, 'the first call');
    expect((await send(900_000)).status).toBe(429);
    const smallRequest = send(100_000);
    await until(() => calls === 2, 'the small call');
    release();
    expect([(await firstRequest).status, (await smallRequest).status]).toEqual([200, 200]);
    await expect.poll(async () => (await send(900_000)).status).toBe(200);
  });
});
