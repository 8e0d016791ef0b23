// Login from a web page of another origin, in a real Chromium that reaches only this machine: only a
// browser enforces CORS. Skipped with a warning where Chromium is absent.
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { startMailbox, type Mailbox } from '../gateway/accounts/mailbox.ts';
import { hasChromium, launchChromium } from '../support/chromium.ts';
import { startGateway, type GatewayWorld } from '../support/gateway.ts';
import { startPageServer, type PageServer } from './page-server.ts';

vi.setConfig({ testTimeout: 180_000 });

interface PageAnswer {
  status: number;
  body: Record<string, unknown>;
}

describe.skipIf(!hasChromium)('a page of a Bureau', () => {
  let world: GatewayWorld;
  let mailbox: Mailbox;
  let browser: Browser;
  let shop: PageServer;
  let otherSite: PageServer;

  beforeAll(async () => {
    mailbox = await startMailbox();
    [shop, otherSite] = await Promise.all([startShop(), startShop()]);
    world = await startGateway({
      withAdmin: true,
      env: { SMTP_URL: mailbox.url, MAIL_FROM: 'login@shop.example' },
    });
    await world.admin.bureaus.createBureau({
      bureau_id: 'shop',
      server_url: 'https://shop.example',
      redirect_origins: [shop.origin],
    });
    browser = await launchChromium();
  });
  afterAll(async () => {
    await browser?.close();
    await world?.close();
    await mailbox?.close();
    shop?.close();
    otherSite?.close();
  });

  async function open(origin: string): Promise<Page> {
    const page = await browser.newPage();
    await page.goto(origin);
    return page;
  }
  /** The answer as the page reads it; null when the browser withholds it. */
  const callGateway = (page: Page, path: string, json?: object, token?: string): Promise<PageAnswer | null> =>
    page.evaluate(
      async ({ url, body, bearer }) => {
        const headers = {
          ...(body === null ? {} : { 'content-type': 'application/json' }),
          ...(bearer === null ? {} : { authorization: `Bearer ${bearer}` }),
        };
        const response = await fetch(
          url,
          body === null ? { headers } : { method: 'POST', headers, body },
        ).catch(() => null);
        return (
          response && { status: response.status, body: (await response.json()) as Record<string, unknown> }
        );
      },
      {
        url: world.url + path,
        body: json === undefined ? null : JSON.stringify(json),
        bearer: token ?? null,
      },
    );

  test('logs a user in from an origin of its own', async () => {
    const page = await open(shop.origin);
    await expect
      .poll(() => callGateway(page, '/v1/accounts/providers?bureau_id=shop'))
      .toMatchObject({ status: 200 });
    const login = await callGateway(page, '/v1/accounts/login/start', {
      provider: 'email_code',
      bureau_id: 'shop',
    });
    const loginId = String(login?.body['login_id']);
    expect(
      await callGateway(page, '/v1/accounts/login/continue', {
        login_id: loginId,
        input: { email: 'ada@shop.example' },
      }),
    ).toMatchObject({ status: 200 });
    expect(
      await callGateway(page, '/v1/accounts/login/continue', { login_id: loginId, input: { code: 'wrong' } }),
    ).toMatchObject({ status: 401, body: { error: { code: 'invalid_credentials' } } });
    const { code } = await mailbox.letterTo('ada@shop.example');
    await callGateway(page, '/v1/accounts/login/continue', { login_id: loginId, input: { code } });
    expect(await callGateway(page, `/v1/accounts/login/result?login_id=${loginId}`)).toMatchObject({
      status: 200,
      body: { status: 'done' },
    });
    await page.close();
  });

  test('reads no answers of operations outside the login', async () => {
    const page = await open(shop.origin);
    expect(await callGateway(page, '/v1/accounts/keys/list', undefined, world.userToken)).toBeNull();
    await page.close();
  });

  test('reads no answer from another origin', async () => {
    const page = await open(otherSite.origin);
    expect(await callGateway(page, '/v1/accounts/providers?bureau_id=shop')).toBeNull();
    expect(
      await callGateway(page, '/v1/accounts/login/start', { provider: 'email_code', bureau_id: 'shop' }),
    ).toBeNull();
    await page.close();
  });

  test('reads no answer once its Bureau is paused', async () => {
    const page = await open(shop.origin);
    await world.admin.bureaus.pauseBureau({ bureau_id: 'shop' });
    await expect.poll(() => callGateway(page, '/v1/accounts/providers?bureau_id=shop')).toBeNull();
    await world.admin.bureaus.activateBureau({ bureau_id: 'shop' });
    await expect
      .poll(() => callGateway(page, '/v1/accounts/providers?bureau_id=shop'))
      .toMatchObject({ status: 200 });
    await page.close();
  });
});

const startShop = () => startPageServer(() => '<!doctype html><title>Shop</title>');
