// The page that confirms a device login, in a real Chromium that reaches only this machine. Skipped
// with a warning where Chromium is absent. DEVICE_PICTURES=FOLDER stores pictures of every step.
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { startMailbox, type Mailbox } from '../gateway/accounts/mailbox.ts';
import { hasChromium, launchChromium, openLocalPage, type LocalPage } from '../support/chromium.ts';
import { startGateway, type GatewayWorld } from '../support/gateway.ts';
import { takePictures } from './pictures.ts';

vi.setConfig({ testTimeout: 180_000 });

const pictures = process.env['DEVICE_PICTURES'];

describe.skipIf(!hasChromium)('the page of device logins', () => {
  let world: GatewayWorld;
  let mailbox: Mailbox;
  let browser: Browser;

  beforeAll(async () => {
    mailbox = await startMailbox();
    world = await startGateway({ env: { SMTP_URL: mailbox.url, MAIL_FROM: 'login@townhall.example' } });
    browser = await launchChromium();
  });
  afterAll(async () => {
    await browser?.close();
    await world?.close();
    await mailbox?.close();
  });

  const start = (key?: { credit_cap: number; models: string[] }) =>
    world.guest.accounts.startDeviceLogin({
      bureau_id: 'local',
      name: 'townhall login on laptop',
      ...(key === undefined ? {} : { key }),
    });

  async function open(address: string): Promise<LocalPage> {
    const localPage = await openLocalPage(browser);
    await localPage.page.goto(address);
    return localPage;
  }

  async function signInWithToken(page: Page): Promise<void> {
    await page.getByLabel('Sign in with').selectOption('A user token');
    await page.getByLabel('Your user token').fill(world.userToken);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Confirm' }).waitFor();
  }

  test('confirms a login by keyboard alone', async () => {
    const login = await start({ credit_cap: 5_000_000, models: ['local/echo'] });
    const { page, outside, complaints } = await open(login.verification_uri);
    await takePictures(page, pictures, '1-code');
    await page.keyboard.type(login.user_code.toLowerCase());
    await page.keyboard.press('Enter');
    await page.getByLabel('Sign in with').waitFor();
    await takePictures(page, pictures, '2-sign-in');
    await page.getByLabel('Sign in with').selectOption('email_code');
    await page.getByLabel('E-mail address').fill('ada@townhall.example');
    await page.keyboard.press('Enter');
    await page.getByLabel(/code/i).last().waitFor();
    const { code } = await mailbox.letterTo('ada@townhall.example');
    await page.locator('#inputs input').fill(code);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Confirm' }).waitFor();
    await takePictures(page, pictures, '3-decide');
    const facts = await page.locator('#facts').innerText();
    for (const fact of [
      'townhall login on laptop',
      '127.0.0.1',
      '$5.00',
      'local/echo',
      'ada@townhall.example',
    ])
      expect(facts).toContain(fact);
    // The focus is on Refuse; Confirm is the button before it.
    await page.keyboard.press('Shift+Tab');
    await page.keyboard.press('Enter');
    await page.getByText('Confirmed').waitFor();
    await takePictures(page, pictures, '4-end');
    const credential = await world.guest.accounts.getDeviceLoginResult({ device_code: login.device_code });
    expect(credential).toMatchObject({ kind: 'key', credit_cap: 5_000_000 });
    expect({ outside, complaints }).toEqual({ outside: [], complaints: [] });
    await page.close();
  });

  test('refuses a login', async () => {
    const login = await start();
    const { page } = await open(login.verification_uri_complete);
    expect(await page.getByLabel('Code').inputValue()).toBe(login.user_code);
    expect(page.url()).toBe(login.verification_uri);
    await page.keyboard.press('Enter');
    await signInWithToken(page);
    // The focus is on Refuse.
    await page.keyboard.press('Enter');
    await page.getByText('Refused').waitFor();
    await expect(
      world.guest.accounts.getDeviceLoginResult({ device_code: login.device_code }),
    ).rejects.toMatchObject({ code: 'login_denied' });
    await page.close();
  });

  test('signs in the local user of a local edition', async () => {
    const login = await start();
    const { page } = await open(login.verification_uri_complete);
    await page.getByText('at Local').waitFor();
    await page.keyboard.press('Enter');
    await page.getByLabel('Sign in with').selectOption('This machine');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('Local user').waitFor();
    await page.getByRole('button', { name: 'Confirm' }).click();
    await page.getByText('Confirmed').waitFor();
    expect(await world.guest.accounts.getDeviceLoginResult({ device_code: login.device_code })).toMatchObject(
      { kind: 'user' },
    );
    await page.close();
  });

  test('keeps the sign-in when a code is unknown', async () => {
    const login = await start();
    const { page } = await open(`${world.url}/device#BBBB-BBBB`);
    await page.keyboard.press('Enter');
    await page.getByLabel('Sign in with').selectOption('A user token');
    await page.getByLabel('Your user token').fill(world.userToken);
    await page.keyboard.press('Enter');
    await page.getByText('There is no device login with this code.').waitFor();
    await takePictures(page, pictures, '5-error');
    await page.getByLabel('Code').fill(login.user_code);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Confirm' }).click();
    await page.getByText('Confirmed').waitFor();
    expect(await world.guest.accounts.getDeviceLoginResult({ device_code: login.device_code })).toMatchObject(
      { kind: 'user' },
    );
    await page.close();
  });

  test('fits a phone without a scrollbar', async () => {
    const { page } = await open(`${world.url}/device`);
    await page.setViewportSize({ width: 320, height: 640 });
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320);
    await page.close();
  });

  test('is refused in a frame', async () => {
    const response = await fetch(`${world.url}/device`);
    expect(response.headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
    expect(response.headers.get('x-frame-options')).toBe('DENY');
  });

  test('explains what to do without JavaScript', async () => {
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(`${world.url}/device`);
    expect(await page.locator('main').innerText()).toContain('/v1/accounts/device/decide');
    await context.close();
  });
});
