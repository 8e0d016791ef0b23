// The example that buys credits, run as shown against the provider's double.
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startPayments, type PaymentsWorld } from './world.ts';

const example = fileURLToPath(new URL('../../../examples/buy-credits.ts', import.meta.url));
let world: PaymentsWorld;
beforeAll(async () => {
  world = await startPayments();
});
afterAll(() => world?.close());

test('the example prints the balance, the checkout and the booked credits', async () => {
  const { userId, token } = await world.newUser();
  const child = spawn(process.execPath, [example, '10000000'], {
    env: { TOWNHALL_URL: world.url, TOWNHALL_TOKEN: token },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let screen = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (piece: Buffer) => (screen += piece.toString('utf8')));
  const exit = new Promise<number | null>((resolve) => child.once('close', resolve));
  await expect.poll(() => screen).toMatch(/Pay 1000 .* of usd\) at http\S+\n/);
  expect(screen).toMatch(
    /^Available: 0 credits; 0 more are set aside for calls that run\.\nUsed in thirty days: 0 credits in 0 calls\.\n/,
  );
  const [session] = [...world.stripe.sessions.values()].filter(({ url }) => screen.includes(url));
  await world.deliver('stripe', world.stripe.pay(session?.id ?? ''));
  expect(await exit, screen).toBe(0);
  expect(screen).toContain('The payment is paid: 10000000 credits.');
  expect(await world.balance(userId)).toEqual({ posted: 10_000_000n, owed: 0n });
});
