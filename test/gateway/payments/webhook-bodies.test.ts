// Limits on the body of a webhook: its size, and the time in which it must arrive.
import { connect as openSocket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startPayments, type PaymentsWorld } from './world.ts';

let world: PaymentsWorld;
beforeAll(async () => {
  world = await startPayments();
});
afterAll(() => world?.close());

const maximumBytes = 256 * 1024;

test('the webhook endpoint accepts a body of 256 KiB', async () => {
  const eventOf = (padding: string) =>
    JSON.stringify({ id: 'evt_big', type: 'customer.created', data: { object: { padding } } });
  const { body, signature } = world.stripe.sign(eventOf('x'.repeat(maximumBytes - eventOf('').length)));
  expect(Buffer.byteLength(body)).toBe(maximumBytes);
  expect(await world.post('stripe', body, { 'stripe-signature': signature })).toMatchObject({
    status: 200,
    outcome: 'ignored',
  });
});

test.each([maximumBytes + 1, 1024 * 1024])(
  'the webhook endpoint refuses a body of %d bytes',
  async (bytes) => {
    const { body, signature } = world.stripe.sign('x'.repeat(bytes));
    const { status } = await world.post('stripe', body, { 'stripe-signature': signature });
    expect(status).toBe(413);
  },
);

test('the webhook endpoint refuses a body that does not arrive in time', async () => {
  const startedMs = performance.now();
  const answer = await new Promise<string>((resolve) => {
    const socket = openSocket(Number(new URL(world.url).port), '127.0.0.1');
    let response = '';
    socket.on('data', (data) => (response += data.toString('latin1')));
    // The last write may hit a socket that the server has just closed.
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(response));
    const head = [
      'POST /v1/payments/webhook/stripe HTTP/1.1',
      'Host: x',
      'Content-Type: application/json',
      'Content-Length: 100000',
    ];
    socket.write(`${head.join('\r\n')}\r\n\r\n`);
    const timer = setInterval(() => socket.write('x'), 500);
    socket.on('close', () => clearInterval(timer));
  });
  expect(answer).toMatch(/^HTTP\/1\.1 400 /);
  // The limit is ten seconds; the rest allows for a busy machine. The body would take hours.
  expect(performance.now() - startedMs).toBeLessThan(20_000);
});
