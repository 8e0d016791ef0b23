// The login page with an app of another origin, in a real Chromium that reaches only this machine,
// with a real mail server and a real OpenID provider. Skipped with a warning where Chromium is
// absent. LOGIN_PICTURES=FOLDER stores pictures of the views.
import { createHash, randomBytes } from 'node:crypto';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { startMailbox, type Mailbox } from '../gateway/accounts/mailbox.ts';
import { hasChromium, launchChromium, openLocalPage, type LocalPage } from '../support/chromium.ts';
import { startGateway, type GatewayWorld } from '../support/gateway.ts';
import type { Oidc } from '../support/oidc.ts';
import { until } from '../support/until.ts';
import { addOidcLogin } from './oidc-login.ts';
import { takePictures } from './pictures.ts';
import { plainProgram, startWebApp, type WebApp } from './web-app.ts';

vi.setConfig({ testTimeout: 180_000 });

const pictures = process.env['LOGIN_PICTURES'];

describe.skipIf(!hasChromium)('the login page', () => {
  let world: GatewayWorld;
  let mailbox: Mailbox;
  let oidc: Oidc;
  let browser: Browser;
  let app: WebApp;

  beforeAll(async () => {
    [mailbox, app, browser] = await Promise.all([startMailbox(), startWebApp(), launchChromium()]);
    world = await startGateway({
      withAdmin: true,
      env: { SMTP_URL: mailbox.url, MAIL_FROM: 'login@shop.example', CORS_ORIGINS: app.origin },
    });
    oidc = await addOidcLogin(world);
    await createBureaus();
    await app.run(plainProgram({ url: world.url, bureauId: 'shop' }));
    // Three: a password, a code by e-mail and the login of another organization.
    await until(async () => {
      const answer = await fetch(`${world.url}/v1/accounts/providers?bureau_id=shop`, {
        headers: { origin: app.origin },
      });
      const { items } = (await answer.json()) as { items: unknown[] };
      return answer.headers.get('access-control-allow-origin') === app.origin && items.length === 3;
    }, 'the providers are there');
  });
  afterAll(async () => {
    await browser?.close();
    await oidc?.close();
    await world?.close();
    await mailbox?.close();
    app?.close();
  });

  async function createBureaus(): Promise<void> {
    await world.admin.bureaus.createBureau({
      bureau_id: 'shop',
      name: 'Corner Shop',
      server_url: 'https://shop.example',
      redirect_uris: [app.address],
      color: '#0b6e4f',
      starting_credits: 1_000_000,
    });
    await world.admin.bureaus.createBureau({ bureau_id: 'other', server_url: 'https://other.example' });
    for (const color of ['#ffffff', '#1b212a', '#ffee00'])
      await world.admin.bureaus.createBureau({
        bureau_id: `color-${color.slice(1)}`,
        server_url: 'https://other.example',
        redirect_uris: [app.address],
        color,
      });
    await world.admin.bureaus.updateBureau({ bureau_id: 'local', redirect_uris: [app.address] });
  }

  const newChallenge = () => createHash('sha256').update(randomBytes(8)).digest('base64url');
  const loginUrl = (members: Record<string, string> = {}) =>
    `${world.url}/login?${new URLSearchParams({
      client_id: 'shop',
      redirect_uri: app.address,
      code_challenge: newChallenge(),
      state: 's',
      ...members,
    })}`;

  async function open(address: string): Promise<LocalPage> {
    const localPage = await openLocalPage(browser);
    await localPage.page.goto(address);
    return localPage;
  }

  /** Opens the app and, with its button, the login page. */
  async function openFromApp(button = 'Sign in'): Promise<LocalPage> {
    const appPage = await open(app.address);
    await appPage.page.getByRole('button', { name: button }).click();
    await appPage.page.getByRole('heading').waitFor();
    return appPage;
  }

  const waitForGreeting = (page: Page, name: string) => page.getByText(`Hello ${name}`).waitFor();

  async function register(page: Page, email: string): Promise<void> {
    await page.getByLabel('Your name').fill('Ada Lovelace');
    await page.getByLabel('E-mail address').fill(email);
    await page.getByLabel('Password', { exact: true }).fill('correct horse battery');
    await takePictures(page, pictures, '4-register');
    await page.keyboard.press('Enter');
    await page.getByLabel('Code from the e-mail').waitFor();
    await page.keyboard.type((await mailbox.letterTo(email)).code);
    await page.keyboard.press('Enter');
  }

  describe('sign-in', () => {
    test('accepts a code from an e-mail by keyboard alone', async () => {
      const { page, outside, complaints } = await openFromApp();
      expect(await page.title()).toBe('Sign in to Corner Shop');
      await takePictures(page, pictures, '1-sign-in');
      await page.getByRole('button', { name: 'E-mail me a code instead' }).focus();
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'Sign in with a code' }).waitFor();
      await takePictures(page, pictures, '2-email');
      await page.keyboard.type('ada@shop.example');
      await page.keyboard.press('Enter');
      await page.getByLabel('Code from the e-mail').waitFor();
      await takePictures(page, pictures, '3-code');
      await page.keyboard.type((await mailbox.letterTo('ada@shop.example')).code);
      await page.keyboard.press('Enter');
      await waitForGreeting(page, 'ada@shop.example');
      expect(page.url()).toBe(app.address);
      await page.getByRole('button', { name: 'Ask' }).click();
      await page.getByText('Good morning').waitFor();
      expect({ outside, complaints }).toEqual({ outside: [], complaints: [] });
      await page.reload();
      await waitForGreeting(page, 'ada@shop.example');
      await page.close();
    });

    test('registers a user with a code from an e-mail', async () => {
      const { page } = await openFromApp('Create an account');
      await register(page, 'eve@shop.example');
      await waitForGreeting(page, 'Ada Lovelace');
      expect(page.url()).toBe(app.address);
      await page.close();
    });

    test('sets a new password for a user who has forgotten it', async () => {
      const { page } = await openFromApp('Create an account');
      await register(page, 'ivy@shop.example');
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByLabel('E-mail address').fill('ivy@shop.example');
      await page.getByRole('button', { name: 'Forgot your password?' }).click();
      await page.getByRole('heading', { name: 'Set a new password' }).waitFor();
      expect(await page.getByLabel('E-mail address').inputValue()).toBe('ivy@shop.example');
      await page.keyboard.press('Enter');
      await page
        .getByLabel('Code from the e-mail')
        .fill((await mailbox.letterTo('ivy@shop.example', 2)).code);
      await page.getByLabel('New password', { exact: true }).fill('another horse battery');
      await takePictures(page, pictures, '5-reset');
      await page.keyboard.press('Enter');
      await waitForGreeting(page, 'Ada Lovelace');
      expect(page.url()).toBe(app.address);
      await page.close();
    });

    test('shows that it has sent another code', async () => {
      const { page } = await open(loginUrl({ login_hint: 'lee@shop.example' }));
      await page.getByRole('button', { name: 'E-mail me a code instead' }).click();
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: 'Send another code' }).click();
      await page.getByRole('status').getByText('We have sent another code').waitFor();
      await takePictures(page, pictures, '3-code-again');
      await page
        .getByLabel('Code from the e-mail')
        .fill((await mailbox.letterTo('lee@shop.example', 2)).code);
      await page.keyboard.press('Enter');
      await page.waitForURL(/[?]code=/);
      expect(page.url()).toContain(app.address);
      await page.close();
    });

    test('returns from an OpenID provider to the app', async () => {
      const { page, complaints } = await openFromApp();
      await page.getByRole('button', { name: 'Continue with Single sign-on' }).click();
      await waitForGreeting(page, 'Grace Hopper');
      expect(page.url()).toBe(app.address);
      expect(complaints).toEqual([]);
      await page.close();
    });

    test('offers the sign-in again after a refusal at the provider', async () => {
      oidc.deniesLogin = true;
      const { page } = await openFromApp();
      await page.getByRole('button', { name: 'Continue with Single sign-on' }).click();
      await page.getByText('The sign-in was cancelled.').waitFor();
      oidc.deniesLogin = false;
      await page.getByRole('button', { name: 'Continue with Single sign-on' }).click();
      await waitForGreeting(page, 'Grace Hopper');
      expect(page.url()).toBe(app.address);
      await page.close();
    });

    test('ends the session of a revoked token', async () => {
      const { page } = await openFromApp();
      await page.getByRole('button', { name: 'Continue with Single sign-on' }).click();
      await waitForGreeting(page, 'Grace Hopper');
      await world.admin.accounts.revokeTokens({ bureau_id: 'shop' });
      await page.reload();
      await page.getByText('Your session has ended: revoked').waitFor();
      expect(await page.getByText('Hello').count()).toBe(0);
      await page.close();
    });
  });

  describe('passwords', () => {
    const readCompletions = (page: Page) =>
      page
        .locator('input')
        .evaluateAll((inputs) =>
          (inputs as HTMLInputElement[]).map((input) => [input.autocomplete, input.value]),
        );

    test('shows a wrong password at its field', async () => {
      const { page } = await open(loginUrl({ login_hint: 'nobody@shop.example' }));
      await page.getByLabel('Password', { exact: true }).fill('wrong');
      await page.keyboard.press('Enter');
      await page.getByRole('alert').getByText('wrong').waitFor();
      const password = page.getByLabel('Password', { exact: true });
      expect(await password.getAttribute('aria-invalid')).toBe('true');
      const errorId = await password.getAttribute('aria-errormessage');
      expect(await page.locator(`#${errorId}`).innerText()).toContain('wrong');
      await takePictures(page, pictures, '6-wrong');
      await page.close();
    });

    test('accepts a new password after too many wrong ones', async () => {
      const { page } = await openFromApp('Create an account');
      await register(page, 'kim@shop.example');
      await waitForGreeting(page, 'Ada Lovelace');
      await page.goto(loginUrl({ login_hint: 'kim@shop.example' }));
      const alert = page.getByRole('alert');
      // Five wrong passwords an hour are allowed.
      for (let count = 0; count < 6; count += 1) {
        await page.getByLabel('Password', { exact: true }).fill(`wrong ${count}`);
        await page.keyboard.press('Enter');
        await alert.getByText(count < 5 ? 'password is wrong' : 'Try again in 60 minutes').waitFor();
      }
      await takePictures(page, pictures, '6-limited');
      await page.getByRole('button', { name: 'Forgot your password?' }).click();
      await page.keyboard.press('Enter');
      await page
        .getByLabel('Code from the e-mail')
        .fill((await mailbox.letterTo('kim@shop.example', 2)).code);
      await page.getByLabel('New password', { exact: true }).fill('another horse battery');
      await page.keyboard.press('Enter');
      await page.waitForURL(/[?]code=/);
      expect(page.url()).toContain(app.address);
      await page.close();
    });

    test('shows the typed password on request', async () => {
      const { page } = await open(loginUrl());
      const password = page.getByLabel('Password', { exact: true });
      await password.fill('a secret');
      await page.getByRole('button', { name: 'Show the password' }).click();
      expect(await password.getAttribute('type')).toBe('text');
      await page.getByRole('button', { name: 'Show the password', pressed: true }).click();
      expect(await password.getAttribute('type')).toBe('password');
      await page.close();
    });

    test('names the account of a new password for password managers', async () => {
      const { page } = await open(loginUrl({ login_hint: 'mia@shop.example' }));
      expect(await readCompletions(page)).toEqual([
        ['username', 'mia@shop.example'],
        ['current-password', ''],
      ]);
      await page.getByRole('button', { name: 'Forgot your password?' }).click();
      await page.keyboard.press('Enter');
      await page.getByLabel('Code from the e-mail').waitFor();
      expect(await readCompletions(page)).toEqual([
        ['username', 'mia@shop.example'],
        ['one-time-code', ''],
        ['new-password', ''],
      ]);
      await page.close();
    });

    test('moves from the e-mail address to the password with Tab', async () => {
      const { page } = await open(loginUrl());
      await page.getByLabel('E-mail address').focus();
      await page.keyboard.press('Tab');
      expect(await page.evaluate(() => document.activeElement?.id)).toBe('input-password');
      await page.close();
    });
  });

  describe('of a local edition', () => {
    beforeAll(() => app.run(plainProgram({ url: world.url, bureauId: 'local', storage: 'localStorage' })));
    afterAll(() => app.run(plainProgram({ url: world.url, bureauId: 'shop' })));

    test('signs in the local user and returns to the same place', async () => {
      const { page, complaints } = await open(`${app.address}?page=2#total`);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('button', { name: 'Continue as the local user' }).waitFor();
      await takePictures(page, pictures, '1-local');
      await page.getByRole('button', { name: 'Continue as the local user' }).click();
      await waitForGreeting(page, 'Local user');
      expect(page.url()).toBe(`${app.address}?page=2#total`);
      expect(complaints).toEqual([]);
      await page.close();
    });

    test('refuses the local login to a page of another origin', async () => {
      const { page } = await open(app.address);
      const status = await page.evaluate(async (url) => {
        const answer = await fetch(`${url}/v1/accounts/login/start`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ provider: 'local', bureau_id: 'local' }),
        });
        return answer.status;
      }, world.url);
      expect(status).toBe(404);
      await page.close();
    });

    /** Two tabs of one browser with the app. */
    async function openTabs(): Promise<{ tabs: Page[]; close(): Promise<void> }> {
      const context = await browser.newContext();
      const tabs = [await context.newPage(), await context.newPage()];
      for (const tab of tabs) await tab.goto(app.address);
      return { tabs, close: () => context.close() };
    }

    test('shows a sign-in and a sign-out of one tab in the other', async () => {
      const { tabs, close } = await openTabs();
      const [tab, otherTab] = tabs as [Page, Page];
      await tab.getByRole('button', { name: 'Sign in' }).click();
      await tab.getByRole('button', { name: 'Continue as the local user' }).click();
      await waitForGreeting(otherTab, 'Local user');
      await tab.getByRole('button', { name: 'Sign out' }).click();
      await otherTab.getByRole('button', { name: 'Sign in' }).waitFor();
      expect(await otherTab.getByText('Hello').count()).toBe(0);
      await close();
    });

    test('lets two tabs sign in at the same time', async () => {
      const { tabs, close } = await openTabs();
      for (const tab of tabs) await tab.getByRole('button', { name: 'Sign in' }).click();
      for (const tab of tabs) {
        await tab.getByRole('button', { name: 'Continue as the local user' }).click();
        await waitForGreeting(tab, 'Local user');
        expect(tab.url()).toBe(app.address);
      }
      await close();
    });
  });

  describe('invalid requests', () => {
    test.each([
      [
        'an address that the Bureau has not listed',
        { redirect_uri: 'https://evil.example/' },
        'not registered',
      ],
      ['a method other than S256', { code_challenge_method: 'plain' }, 'Open this page from the app'],
      [
        'a challenge that is not a SHA-256 digest',
        { code_challenge: 'short' },
        'Not valid in the address: code_challenge',
      ],
      ['a state with a space', { state: 'two words' }, 'Not valid in the address: state'],
      ['an unknown Bureau', { client_id: 'nobody' }, 'no such Bureau'],
      ['the address of another Bureau', { client_id: 'other' }, 'not registered'],
    ])('refuses %s', async (_name, members, text) => {
      const { page } = await open(loginUrl(members));
      await page.getByText(text).waitFor();
      expect(await page.locator('input').count()).toBe(0);
      await takePictures(page, pictures, '7-refused');
      await page.close();
    });

    test('refuses the return of a login that another browser started', async () => {
      const { page } = await open(`${world.url}/login#login_code=lgc_${'0'.repeat(43)}`);
      await page.getByText('This sign-in was started elsewhere').waitFor();
      expect(new URL(page.url()).hash).toBe('');
      await page.close();
    });

    test('ignores a code with the state of another login', async () => {
      const { page } = await open(`${app.address}?code=lga_${'0'.repeat(43)}&state=of-an-attacker`);
      await page.getByRole('button', { name: 'Sign in' }).waitFor();
      expect(page.url()).toContain('state=of-an-attacker');
      await page.close();
    });
  });

  describe('the page itself', () => {
    const noEdge = 'rgba(0, 0, 0, 0)';
    // Yellow on white needs a border.
    test.each([
      ['ffffff', 'light', noEdge],
      ['ffffff', 'dark', noEdge],
      ['1b212a', 'light', noEdge],
      ['1b212a', 'dark', noEdge],
      ['ffee00', 'light', 'rgb(138, 148, 163)'],
      ['ffee00', 'dark', noEdge],
    ] as const)(
      'keeps its main button visible in #%s and %s colors',
      async (color, colorScheme, edgeColor) => {
        const { page } = await open(loginUrl({ client_id: `color-${color}` }));
        await page.emulateMedia({ colorScheme });
        const button = page.getByRole('button', { name: 'Sign in', exact: true });
        await button.waitFor();
        const buttonStyle = await button.evaluate((element) => {
          const { backgroundColor, borderColor } = getComputedStyle(element);
          return { backgroundColor, borderColor };
        });
        const cardColor = await page
          .locator('#card')
          .evaluate((card) => getComputedStyle(card).backgroundColor);
        expect(buttonStyle.backgroundColor).not.toBe(cardColor);
        expect(buttonStyle.borderColor).toBe(edgeColor);
        await takePictures(page, pictures, `9-color-${color}`);
        await page.close();
      },
    );

    test('fits a phone without a scrollbar', async () => {
      const { page } = await open(loginUrl());
      await page.setViewportSize({ width: 320, height: 640 });
      await page.getByLabel('Password', { exact: true }).waitFor();
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320);
      await page.close();
    });

    test('allows no inline script, no frame and no other source', async () => {
      const { headers } = await fetch(`${world.url}/login`);
      const policy = headers.get('content-security-policy') ?? '';
      expect(policy).toMatch(
        /^default-src 'none'; style-src 'sha256-[^']+'; script-src 'self'; connect-src 'self';/,
      );
      expect(policy).toContain("frame-ancestors 'none'");
      expect(headers.get('x-frame-options')).toBe('DENY');
    });

    test('explains that it needs JavaScript', async () => {
      const context = await browser.newContext({ javaScriptEnabled: false });
      const page = await context.newPage();
      await page.goto(loginUrl());
      expect(await page.locator('main').innerText()).toContain('needs JavaScript');
      await context.close();
    });
  });
});
