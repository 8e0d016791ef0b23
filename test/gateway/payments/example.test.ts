// The example that buys credits, run as the guide shows it, against a test double of Stripe.
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
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (piece: Buffer) => (output += piece.toString('utf8')));
  const exit = new Promise<number | null>((resolve) => child.once('close', resolve));
  await expect.poll(() => output).toMatch(/Pay 1000 .* of usd\) at http\S+\n/);
  expect(output.split('\n').slice(0, 2)).toEqual([
    'Available: 0 credits; 0 more are set aside for calls that run.',
    'Used in thirty days: 0 credits in 0 calls.',
  ]);
  const [session] = [...world.stripe.sessions.values()].filter(({ url }) => output.includes(url));
  await world.deliver('stripe', world.stripe.pay(session?.id ?? ''));
  expect(await exit, output).toBe(0);
  expect(output).toContain('The payment is paid: 10000000 credits.');
  expect(await world.balance(userId)).toEqual({ posted: 10_000_000n, owed: 0n });
});
