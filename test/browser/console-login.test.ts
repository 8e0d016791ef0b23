// The credential of a console page in a real Chromium: which pages hold it, and what another server
// on this machine can see of it.
import type { IncomingHttpHeaders } from 'node:http';
import type { BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { hasChromium } from '../support/chromium.ts';
import { openConsoleBrowser, openConsolePage, type ConsoleBrowser } from '../support/console-browser.ts';
import { startConsole } from '../support/console.ts';
import { startPageServer, type PageServer } from './page-server.ts';

describe.skipIf(!hasChromium)('the credential of a console page', () => {
  let world: ConsoleBrowser;
  let otherServer: PageServer;
  let context: BrowserContext;
  let page: Page;
  /** Headers of every request that reaches the other port. */
  const receivedHeaders: IncomingHttpHeaders[] = [];

  beforeAll(async () => {
    world = await openConsoleBrowser();
    otherServer = await startPageServer(({ headers }) => {
      receivedHeaders.push(headers);
      return '<!doctype html><title>Another server</title>';
    });
  });
  afterAll(async () => {
    otherServer?.close();
    await world?.close();
  });
  beforeEach(async () => {
    receivedHeaders.length = 0;
    context = await world.browser.newContext();
    page = await openConsolePage(context, world.consoleServer);
    await page.getByText('connected', { exact: true }).waitFor();
  });
  afterEach(() => context.close());

  const replay = (path: string, method: string, headers: Record<string, string>) =>
    fetch(`${world.consoleServer.url}${path}`, {
      method,
      headers: { ...headers, origin: world.consoleServer.url, 'content-type': 'application/json' },
      ...(method === 'POST' ? { body: '{}' } : {}),
    });

  test('never reaches another port of this machine', async () => {
    const otherPage = await context.newPage();
    await otherPage.goto(otherServer.origin);
    const carriedState = await otherPage.evaluate(() =>
      JSON.stringify({ ...localStorage, ...sessionStorage, cookie: document.cookie }),
    );
    expect(receivedHeaders.length).toBeGreaterThan(0);
    const cookies = receivedHeaders.map(({ cookie = '' }) => cookie);
    // Cookies and storage that reach the other port open nothing at the console.
    for (const cookie of ['', ...cookies]) {
      for (const secret of [...cookie.split(/[;=]\s*/), ...carriedState.split('"')]) {
        for (const [method, path] of [
          ['POST', '/call/console.overview'],
          ['GET', '/events?session=ses_1'],
        ] as const) {
          const answer = await replay(path, method, {
            ...(cookie === '' ? {} : { cookie }),
            ...(/^[\w-]+$/.test(secret) ? { authorization: `Bearer ${secret}` } : {}),
          });
          expect([path, answer.status]).toEqual([path, 401]);
        }
      }
    }
  });

  test('survives a reload and a second tab', async () => {
    expect(page.url()).toBe(`${world.consoleServer.url}/`);
    await page.reload();
    await page.getByText('connected', { exact: true }).waitFor();
    const second = await context.newPage();
    await second.goto(`${world.consoleServer.url}/#/services`);
    await second.getByRole('heading', { name: 'Services', level: 1 }).waitFor();
    await second.getByText('connected', { exact: true }).waitFor();
  });

  test('is refused by a later console process', async () => {
    const key = await page.evaluate(() => Object.values({ ...localStorage })[0]);
    expect((await replay('/call/console.overview', 'POST', { authorization: `Bearer ${key}` })).status).toBe(
      200,
    );
    const next = await startConsole(world.agent);
    const answer = await fetch(`${next.url}/call/console.overview`, {
      method: 'POST',
      headers: { origin: next.url, authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: '{}',
    });
    await next.close();
    expect(answer.status).toBe(401);
  });

  test('survives cookies that another port sets', async () => {
    const { port } = new URL(world.consoleServer.url);
    await context.addCookies(
      ['/', '/call'].map((path) => ({
        name: `townhall_console_${port}`,
        value: 'x',
        domain: '127.0.0.1',
        path,
      })),
    );
    await page.reload();
    await page.getByText('connected', { exact: true }).waitFor();
    expect(await page.getByText('You are not signed in').count()).toBe(0);
  });

  test('is missing in a profile that used no code', async () => {
    const otherContext = await world.browser.newContext();
    const otherPage = await otherContext.newPage();
    await otherPage.goto(`${world.consoleServer.url}/#/sessions`);
    await otherPage.getByRole('heading', { name: 'You are not signed in' }).waitFor();
    await otherPage.getByText('Press Enter in the terminal').waitFor();
    expect(await otherPage.evaluate(() => localStorage.length)).toBe(0);
    await otherContext.close();
  });
});
