// The example of the guide: a React app of another origin whose users sign in at the login page, in
// a real Chromium. Skipped with a warning where Chromium is absent. LOGIN_PICTURES=FOLDER stores
// pictures.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { hasChromium, launchChromium, openLocalPage } from '../support/chromium.ts';
import { startGateway, type GatewayWorld } from '../support/gateway.ts';
import type { Oidc } from '../support/oidc.ts';
import { until } from '../support/until.ts';
import { addOidcLogin } from './oidc-login.ts';
import { startWebApp, type WebApp } from './web-app.ts';

vi.setConfig({ testTimeout: 180_000 });

const example = join(import.meta.dirname, '../../examples/react-login.tsx');
const pictures = process.env['LOGIN_PICTURES'];

describe.skipIf(!hasChromium)('the React example', () => {
  let world: GatewayWorld;
  let oidc: Oidc;
  let browser: Browser;
  let app: WebApp;

  beforeAll(async () => {
    [app, browser] = await Promise.all([startWebApp(), launchChromium()]);
    world = await startGateway({ withAdmin: true, env: { CORS_ORIGINS: app.origin } });
    oidc = await addOidcLogin(world);
    await world.admin.bureaus.updateBureau({ bureau_id: 'local', redirect_uris: [app.address] });
    const source = readFileSync(example, 'utf8').replace(
      "'http://127.0.0.1:43127'",
      JSON.stringify(world.url),
    );
    await app.run(source, 'tsx');
    await until(async () => {
      const { items } = await world.guest.accounts.listProviders({
        bureau_id: 'local',
        redirect_uri: app.address,
      });
      return items.some(({ id }) => id === 'oidc');
    }, 'the provider is there');
  });
  afterAll(async () => {
    await browser?.close();
    await oidc?.close();
    await world?.close();
    app?.close();
  });

  async function signIn(page: Page): Promise<void> {
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('button', { name: 'Continue with Single sign-on' }).click();
    await page.getByText('Hello Grace Hopper').waitFor();
  }

  test('signs in, calls a model and signs out', async () => {
    const { page, outside, complaints } = await openLocalPage(browser);
    await page.goto(app.address);
    await signIn(page);
    await page.getByRole('button', { name: 'Ask' }).click();
    await page.getByText('Good morning').waitFor();
    await page.getByLabel('Account of Grace Hopper').click();
    if (pictures !== undefined) await page.screenshot({ path: join(pictures, '8-user-button.png') });
    const menu = await page.getByRole('button', { name: 'Sign out' }).boundingBox();
    expect(menu?.x).toBeGreaterThan(0);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('button', { name: 'Sign in' }).waitFor();
    expect({ outside, complaints }).toEqual({ outside: [], complaints: [] });
    await page.close();
  });

  test('closes the menu of the account with Escape', async () => {
    const { page } = await openLocalPage(browser);
    await page.goto(app.address);
    await signIn(page);
    await page.getByLabel('Account of Grace Hopper').click();
    await page.getByRole('button', { name: 'Sign out' }).waitFor();
    await page.keyboard.press('Escape');
    expect(await page.getByRole('button', { name: 'Sign out' }).isVisible()).toBe(false);
    await page.close();
  });

  test('shows the sign-in instead of a registration if there are no e-mail accounts', async () => {
    const { page } = await openLocalPage(browser);
    await page.goto(app.address);
    await page.getByRole('button', { name: 'Create an account' }).click();
    await page.getByRole('button', { name: 'Continue with Single sign-on' }).waitFor();
    expect(await page.getByLabel('Password').count()).toBe(0);
    await page.close();
  });

  test('shows the end of the session and returns to the same place', async () => {
    const { page } = await openLocalPage(browser);
    await page.goto(`${app.address}?page=2#total`);
    await signIn(page);
    expect(page.url()).toBe(`${app.address}?page=2#total`);
    await page.evaluate(() => {
      const key = Object.keys(sessionStorage).find((name) => name.endsWith('session')) ?? '';
      const session = JSON.parse(sessionStorage.getItem(key) ?? '') as { expiresAt: string };
      session.expiresAt = new Date(Date.now() + 3000).toISOString();
      sessionStorage.setItem(key, JSON.stringify(session));
    });
    await page.reload();
    await page.getByText('Your session is over').waitFor();
    await page.getByRole('button', { name: 'Sign in again' }).click();
    await page.getByRole('button', { name: 'Continue with Single sign-on' }).click();
    await page.getByText('Hello Grace Hopper').waitFor();
    expect(page.url()).toBe(`${app.address}?page=2#total`);
    await page.close();
  });
});
