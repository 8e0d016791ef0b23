// Requests of a real web page of another origin to a running agent: by script, by form, and under a
// DNS-rebound name. The agent refuses all of them. Skipped with a warning where Chromium is
// absent.
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startAgent, type TestAgent } from '../support/agent.ts';
import { hasChromium, launchChromium } from '../support/chromium.ts';
import { scriptedGateway, type ScriptedGateway } from '../support/scripted-gateway.ts';
import { startPageServer, type PageServer } from './page-server.ts';

const instructions = JSON.stringify({ instructions: 'Be evil.' });

describe.skipIf(!hasChromium)('an agent under attack by a web page', { timeout: 60_000 }, () => {
  let gateway: ScriptedGateway;
  let agent: TestAgent;
  let attacker: PageServer;
  let browser: Browser;
  let page: Page;
  /** Statuses of the agent's answers to requests of the page, by method and path. */
  let answers: [request: string, status: number][];

  beforeAll(async () => {
    gateway = await scriptedGateway();
    agent = await startAgent({ gatewayUrl: gateway.url });
    attacker = await startPageServer(() => '<!doctype html><title>evil</title>');
    // The attacker's names resolve to this machine, as after DNS rebinding.
    browser = await launchChromium([
      '--host-resolver-rules=MAP evil.test 127.0.0.1, MAP localhost.evil.test 127.0.0.1',
    ]);
  });
  afterAll(async () => {
    await browser?.close();
    attacker?.close();
    await agent?.close();
    await gateway?.close();
  });

  beforeEach(async () => {
    answers = [];
    page = await browser.newPage();
    page.on('response', (response) => {
      const { port, pathname } = new URL(response.url());
      if (port === portOf(agent.url))
        answers.push([`${response.request().method()} ${pathname}`, response.status()]);
    });
  });
  afterEach(async () => {
    await page.close();
    expect(gateway.requests).toEqual([]);
    expect(await agent.sql`select count(*)::int as events from agent.sessions_events`).toEqual([
      { events: 0 },
    ]);
  });

  const portOf = (url: string): string => new URL(url).port;

  interface PageRequest {
    method?: string;
    mode?: 'no-cors';
    headers?: Record<string, string>;
    body?: string;
  }

  /** Fetches from the page's script; an opaque answer has status 0, and a withheld one is null. */
  const fetchFromPage = (path: string, init: PageRequest = {}): Promise<number | null> =>
    page.evaluate(
      async ([url, options]) =>
        fetch(url, options).then(
          ({ status }) => status,
          () => null,
        ),
      [`${agent.url}${path}`, init] as const,
    );

  describe.each(['evil.test', '127.0.0.1', 'localhost'])('on another port of %s', (host) => {
    beforeEach(async () => {
      await page.goto(`http://${host}:${portOf(attacker.origin)}`);
    });

    // Chromium reports no status of an answer that it withholds.
    test('lets no script read an answer', async () => {
      expect(await fetchFromPage('/health')).toBeNull();
    });

    // The browser sends such a GET without an Origin; a page on 127.0.0.1 is of the same site.
    test('refuses a request whose answer is opaque', async () => {
      expect(await fetchFromPage('/health', { mode: 'no-cors' })).toBe(0);
      expect(answers).toEqual([['GET /health', 403]]);
    });

    test('refuses a POST without a preflight', async () => {
      const status = await fetchFromPage('/api/execute', {
        method: 'POST',
        mode: 'no-cors',
        headers: { 'content-type': 'text/plain' },
        body: instructions,
      });
      expect(status).toBe(0);
      expect(answers).toEqual([['POST /api/execute', 403]]);
    });

    // A page cannot know the token; the origin check refuses it anyway.
    test('starts no run for a script that has the token', async () => {
      const status = await fetchFromPage('/api/execute', {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${agent.token}` },
        body: instructions,
      });
      expect(status).toBeNull();
    });
  });

  // A form navigates, so the page shows the agent's refusal.
  test('refuses a form of another site', async () => {
    await page.goto(`http://evil.test:${portOf(attacker.origin)}`);
    await page.setContent(
      `<form method="post" enctype="text/plain" action="${agent.url}/api/execute">` +
        `<input name='{"instructions":"' value='"}'></form>`,
    );
    const [navigation] = await Promise.all([
      page.waitForResponse(`${agent.url}/api/execute`),
      page.waitForURL(`${agent.url}/api/execute`),
      page.evaluate(() => document.forms[0]?.submit()),
    ]);
    expect(navigation.status()).toBe(403);
  });

  // Under a rebound name the browser considers the page to be of the agent's own origin.
  test.each(['evil.test', 'localhost.evil.test'])('refuses requests to the rebound name %s', async (host) => {
    const response = await page.goto(`http://${host}:${portOf(agent.url)}/health`);
    expect(response?.status()).toBe(403);
    const status = await page.evaluate(
      async (token) => (await fetch('/api/status', { headers: { authorization: `Bearer ${token}` } })).status,
      agent.token,
    );
    expect(status).toBe(403);
  });
});
