// Limits on a webhook's body: its size and its time.
import { connect as openSocket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startPayments, type PaymentsWorld } from './world.ts';

let world: PaymentsWorld;
beforeAll(async () => {
  world = await startPayments();
});
afterAll(() => world?.close());

test('the webhook endpoint accepts bodies up to 256 KiB', async () => {
  const fittingBody = JSON.stringify({
    id: 'evt_big',
    type: 'customer.created',
    data: { object: { padding: '' } },
  });
  const largeBody = fittingBody.replace(
    '"padding":""',
    `"padding":"${'x'.repeat(256 * 1024 - fittingBody.length)}"`,
  );
  const { body, signature } = world.stripe.sign(largeBody);
  expect(Buffer.byteLength(body)).toBe(256 * 1024);
  expect(await world.post('stripe', body, { 'stripe-signature': signature })).toMatchObject({
    status: 200,
    outcome: 'ignored',
  });
  for (const bytes of [256 * 1024 + 1, 1024 * 1024])
    expect((await world.post('stripe', 'x'.repeat(bytes), { 'stripe-signature': signature })).status).toBe(
      413,
    );
});

test('the webhook endpoint refuses a body that takes longer than ten seconds', async () => {
  const startedMs = performance.now();
  const answer = await new Promise<string>((resolve) => {
    const socket = openSocket(Number(new URL(world.url).port), '127.0.0.1');
    let response = '';
    socket.on('data', (data) => (response += data.toString('latin1')));
    // The last write may hit a socket that the server has just closed.
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(response));
    socket.write(
      'POST /v1/payments/webhook/stripe HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n',
    );
    const drip = setInterval(() => socket.write('x'), 500);
    socket.on('close', () => clearInterval(drip));
  });
  expect(answer).toMatch(/^HTTP\/1\.1 400 /);
  expect(performance.now() - startedMs).toBeLessThan(20_000);
});
