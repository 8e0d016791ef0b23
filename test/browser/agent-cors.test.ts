// Requests of a real web page of another origin to a running agent: by script, form and image, and
// under a DNS-rebound name. The agent refuses all of them. Skipped with a warning where Chromium is
// absent.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startAgent, type TestAgent } from '../support/agent.ts';
import { hasChromium, launchChromium } from '../support/chromium.ts';
import { scriptedGateway, type ScriptedGateway } from '../support/scripted-gateway.ts';

let gateway: ScriptedGateway;
let agent: TestAgent;
let pages: Server;
let browser: Browser | undefined;
const headersSeen: Record<string, unknown>[] = [];

beforeAll(async () => {
  gateway = await scriptedGateway();
  agent = await startAgent({ gatewayUrl: gateway.url });
  pages = createServer((request, response) => {
    headersSeen.push(request.headers);
    response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>evil</title>');
  });
  await new Promise<void>((resolve) => pages.listen(0, '127.0.0.1', resolve));
  // The attacker's name resolves to this machine, as after DNS rebinding.
  if (hasChromium)
    browser = await launchChromium([
      '--host-resolver-rules=MAP evil.test 127.0.0.1, MAP localhost.evil.test 127.0.0.1',
    ]);
}, 180_000);
afterAll(async () => {
  await browser?.close();
  pages?.close();
  await agent?.close();
  await gateway?.close();
});

test.skipIf(!hasChromium)(
  'the agent refuses pages of another site, another origin or a rebound name',
  async () => {
    const agentPort = new URL(agent.url).port;
    const pagePort = (pages.address() as AddressInfo).port;
    const countBefore = await agent.sql`select count(*)::int as events from agent.sessions_events`;
    const page = await (browser as Browser).newPage();
    const answers: string[] = [];
    page.on('response', (response) => {
      if (new URL(response.url()).port === agentPort)
        answers.push(
          `${response.request().method()} ${new URL(response.url()).pathname} ${response.status()}`,
        );
    });

    for (const origin of [
      `http://evil.test:${pagePort}`,
      `http://127.0.0.1:${pagePort}`,
      `http://localhost:${pagePort}`,
    ]) {
      await page.goto(origin);
      const results = await page.evaluate(
        async ({ url, token }) => {
          const outcomes: Record<string, string> = {};
          const attempt = async (name: string, path: string, init?: RequestInit) => {
            outcomes[name] = await fetch(url + path, init).then(
              (response) => `${response.type} ${response.status}`,
              () => 'refused',
            );
          };
          const body = JSON.stringify({ instructions: 'Be evil.' });
          await attempt('health', '/health');
          await attempt('opaque', '/health', { mode: 'no-cors' });
          await attempt('simple', '/api/execute', {
            method: 'POST',
            mode: 'no-cors',
            headers: { 'content-type': 'text/plain' },
            body,
          });
          // A page cannot know the token; the origin check refuses it anyway.
          await attempt('token', '/api/execute', {
            method: 'POST',
            headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
            body,
          });
          return outcomes;
        },
        { url: agent.url, token: agent.token },
      );
      // An opaque answer has status 0. The real statuses are checked below.
      expect([origin, results]).toEqual([
        origin,
        { health: 'refused', opaque: 'opaque 0', simple: 'opaque 0', token: 'refused' },
      ]);
    }
    // A form navigates, so the page shows the agent's refusal.
    await page.goto(`http://evil.test:${pagePort}`);
    await page.setContent(
      `<form method="post" enctype="text/plain" action="${agent.url}/api/execute"><input name='{"instructions":"' value='"}'></form>`,
    );
    const [navigation] = await Promise.all([
      page.waitForResponse(`${agent.url}/api/execute`),
      page.waitForURL(`${agent.url}/api/execute`),
      page.evaluate(() => (document.forms[0] as HTMLFormElement).submit()),
    ]);
    expect(navigation.status()).toBe(403);

    // Under a rebound name the browser considers the page to be of the agent's own origin.
    for (const host of ['evil.test', 'localhost.evil.test']) {
      const reboundAnswer = await page.goto(`http://${host}:${agentPort}/health`);
      expect([host, reboundAnswer?.status()]).toEqual([host, 403]);
      const status = await page.evaluate(
        async (token) =>
          (await fetch('/api/status', { headers: { authorization: `Bearer ${token}` } })).status,
        agent.token,
      );
      expect([host, status]).toEqual([host, 403]);
    }
    expect(answers.length).toBeGreaterThan(8);
    // Includes the page on another port of 127.0.0.1: same site for the browser, and sent without
    // an Origin.
    expect(answers.filter((answer) => !answer.endsWith(' 403'))).toEqual([]);
    expect(gateway.requests).toEqual([]);
    expect(await agent.sql`select count(*)::int as events from agent.sessions_events`).toEqual(countBefore);
  },
  180_000,
);
