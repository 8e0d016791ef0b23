// The HTML of the result pages: their text, their security headers, and who can open them.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { pageIdOf, startPayments, type PaymentsWorld } from './world.ts';

let world: PaymentsWorld;
beforeAll(async () => {
  world = await startPayments();
});
afterAll(() => world?.close());

async function getPage(address: string): Promise<{ status: number; headers: Headers; text: string }> {
  const { pathname, search } = new URL(address, 'http://x');
  const answer = await fetch(world.url + pathname.replace(/^\/base/, '') + search);
  return { status: answer.status, headers: answer.headers, text: await answer.text() };
}

async function openOrder() {
  const { client } = await world.newUser();
  const payment = await client.payments.createCheckout({
    method: 'stripe',
    amount: 1_000,
    return_to: 'http://127.0.0.1:43127/?a="><script>',
  });
  const id = pageIdOf(payment);
  const session = world.stripe.sessions.get(id);
  return { id, success: session?.success_url ?? '', cancel: session?.cancel_url ?? '' };
}

describe('a result page', () => {
  test('forbids caching, scripts, subresources and framing', async () => {
    const { success, cancel } = await openOrder();
    for (const address of [success, cancel, '/v1/payments/return/success?ticket=nobody']) {
      const { headers, text } = await getPage(address);
      expect([
        headers.get('content-type'),
        headers.get('cache-control'),
        headers.get('referrer-policy'),
      ]).toEqual(['text/html;charset=utf-8', 'no-store', 'no-referrer']);
      expect(headers.get('content-security-policy')?.split('; ')).toEqual([
        "default-src 'none'",
        expect.stringMatching(/^style-src 'sha256-[^']+'$/),
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
      ]);
      expect(text).not.toMatch(/<script|<img|<link|src=/i);
    }
  });

  test('reloads less and less often while the payment is pending', async () => {
    const { id, success } = await openOrder();
    const readRefresh = async () =>
      /http-equiv="refresh" content="(\d+)"/.exec((await getPage(success)).text)?.[1];
    expect(await readRefresh()).toBe('4');
    const ageBy = (interval: string) => world.sql`
      update gateway.payments_orders set created_at = created_at - ${interval}::interval
      where checkout_id = ${id}`;
    await ageBy('15 minutes');
    expect(await readRefresh()).toBe('15');
    await ageBy('5 hours');
    expect(await readRefresh()).toBe('120');
    await ageBy('2 days');
    expect(await readRefresh()).toBeUndefined();
    await world.deliver('stripe', world.stripe.pay(id));
    const { text } = await getPage(success);
    expect([text.includes('<h1>Thank you</h1>'), text.includes('refresh')]).toEqual([true, false]);
  });

  test('shows the current state of the payment', async () => {
    const { id, success, cancel } = await openOrder();
    const readTitle = async (address: string) => /<h1>(.*)<\/h1>/.exec((await getPage(address)).text)?.[1];
    expect(await readTitle(cancel)).toBe('Nothing was paid');
    await world.deliver('stripe', world.stripe.pay(id));
    // The buyer returned to the checkout and paid after all.
    expect(await readTitle(cancel)).toBe('Thank you');
    await world.deliver('stripe', world.stripe.refund(id, 250));
    expect(await readTitle(success)).toBe('The payment was partly refunded');
    expect((await getPage(success)).text).toContain(
      'USD 2.50 of USD 10.00 was refunded. 7,500,000 credits of this payment remain.',
    );
    await world.deliver('stripe', world.stripe.dispute('created', id, { amount: 750 }));
    expect(await readTitle(success)).toBe('The payment is disputed');
  });

  test('escapes the return address', async () => {
    const { text } = await getPage((await openOrder()).success);
    const [, href, label] = /<a href="([^"]*)">([^<]*)<\/a>/.exec(text) ?? [];
    expect(href).toMatch(/^http:\/\/127\.0\.0\.1:43127\/\?a=%22%3E%3Cscript%3E#payment_id=pay_\w{26}$/);
    expect(label).toBe('Back to 127.0.0.1:43127');
  });

  test('is shown only with its ticket', async () => {
    const { success } = await openOrder();
    const ticket = new URL(success).searchParams.get('ticket') ?? '';
    for (const query of [
      '',
      '?ticket=',
      `?ticket=${ticket.slice(1)}`,
      `?ticket=${ticket.slice(1)}0`,
      `?payment_id=${ticket}`,
      `?ticket=${'x'.repeat(4_000)}`,
    ]) {
      const { status, text } = await getPage(`/v1/payments/return/success${query}`);
      expect([status, text.includes('There is no such payment')]).toEqual([404, true]);
    }
    // Providers append query members of their own.
    expect((await getPage(`${success}&checkout_id=ch_1&signature=00`)).status).toBe(200);
    expect(world.logLines.filter((line) => line.includes(ticket))).toEqual([]);
  });
});
