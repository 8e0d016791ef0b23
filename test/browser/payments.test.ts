// Buying credits in a real Chromium that reaches only this machine: from the product's button to
// the provider's page and back to our result page, which updates itself once the credits are
// booked. A server of the test plays the provider's page. Skipped with a warning where Chromium is
// absent.
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { startPayments, type PaymentsWorld } from '../gateway/payments/world.ts';
import type { CreemCheckout } from '../support/creem.ts';
import { hasChromium, launchChromium, openLocalPage } from '../support/chromium.ts';
import { startPageServer, type PageServer } from './page-server.ts';

vi.setConfig({ testTimeout: 180_000 });

// On any port, a gateway accepts this origin as `return_to` of its Bureau `local`. The test compares the
// address and never opens it.
const productUrl = 'http://127.0.0.1:43127/account?tab=credits';

describe.skipIf(!hasChromium)('a user who buys credits', () => {
  let world: PaymentsWorld;
  let browser: Browser;
  let provider: PageServer;

  beforeAll(async () => {
    world = await startPayments({ usesGatewayAddress: true });
    provider = await startProviderPages(world);
    browser = await launchChromium();
  });
  afterAll(async () => {
    await browser?.close();
    provider?.close();
    await world?.close();
  });

  test.each(['stripe', 'creem'] as const)(
    'sees on our page that credits paid with %s are booked',
    async (method) => {
      const { userId, client } = await world.newUser();
      const checkout = await client.payments.createCheckout({
        method,
        amount: 1_000,
        return_to: productUrl,
      });
      const id = checkout.checkout_url?.split('/').at(-1) ?? '';
      const { page, outside, complaints } = await openLocalPage(browser);

      await page.goto(`${provider.origin}/${method}/${id}`);
      await page.getByRole('link', { name: 'Pay' }).click();
      await page.getByRole('heading', { name: 'Your payment is being confirmed' }).waitFor();
      expect(new URL(page.url()).origin).toBe(world.url);
      expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });

      const event = world[method].pay(id);
      expect(await world.deliver(method, event)).toMatchObject({ outcome: 'accepted' });
      // The result page polls by itself.
      await page.getByRole('heading', { name: 'Thank you' }).waitFor({ timeout: 60_000 });
      expect(await page.locator('main').innerText()).toContain(
        method === 'stripe'
          ? 'You paid USD 10.00, and 10,000,000 credits were added'
          : 'You paid EUR 10.00, and 10,000,000 credits were added',
      );
      expect(await page.getByRole('link').getAttribute('href')).toBe(
        `${productUrl}#payment_id=${checkout.payment_id}`,
      );
      // The polling has ended.
      expect(await page.locator('meta[http-equiv="refresh"]').count()).toBe(0);
      // The page's policy allows its own style.
      expect(await page.locator('main').evaluate((main) => getComputedStyle(main).borderRadius)).toBe('16px');
      // A repeated event books nothing.
      expect(await world.deliver(method, event)).toMatchObject({ outcome: 'duplicate' });
      expect([await world.balance(userId), await world.postings(userId)]).toEqual([
        { posted: 10_000_000n, owed: 0n },
        1,
      ]);
      await page.close();
      expect({ outside, complaints }).toEqual({ outside: [], complaints: [] });
    },
  );

  test('sees that nothing was paid after leaving the checkout', async () => {
    const { userId, client } = await world.newUser();
    const checkout = await client.payments.createCheckout({ method: 'stripe', amount: 1_000 });
    const { page, outside, complaints } = await openLocalPage(browser);
    await page.goto(`${provider.origin}/stripe/${checkout.checkout_url?.split('/').at(-1)}`);
    await page.getByRole('link', { name: 'Back' }).click();
    await page.getByRole('heading', { name: 'Nothing was paid' }).waitFor();
    await page.close();
    expect(await world.balance(userId)).toEqual({ posted: 0n, owed: 0n });
    expect({ outside, complaints }).toEqual({ outside: [], complaints: [] });
  });
});

interface ReturnAddresses {
  success_url?: string;
  cancel_url?: string;
}

/** The providers' pages: links to the success and cancel addresses that the gateway sent. */
function startProviderPages({ stripe, creem }: PaymentsWorld): Promise<PageServer> {
  return startPageServer(({ url = '' }) => {
    const [, method, id = ''] = url.split('/');
    const addresses: ReturnAddresses =
      method === 'stripe' ? (stripe.sessions.get(id) ?? {}) : creemAddresses(creem.checkouts.get(id));
    return `<!doctype html><link rel="icon" href="data:,">
      <a href="${addresses.success_url}">Pay</a> <a href="${addresses.cancel_url ?? ''}">Back</a>`;
  });
}

/**
 * Creem has no cancel address, and adds members to the success address. The gateway ignores them, so
 * their signature may be wrong: credits are booked by the event alone.
 */
function creemAddresses(checkout: CreemCheckout | undefined): ReturnAddresses {
  const members = `checkout_id=${checkout?.id}&order_id=ord_1&customer_id=cust_1&signature=00`;
  return { success_url: `${checkout?.success_url}&${members}` };
}
