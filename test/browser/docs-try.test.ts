// The forms on the pages of operations send their requests to the local edition that serves the
// pages, in a real Chromium. Skipped with a warning where Chromium is absent.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { runNode } from '../../scripts/generate/tools.ts';
import { townhall, type Run } from '../cli/townhall.ts';
import { hasChromium, launchChromium, openLocalPage } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';

vi.setConfig({ testTimeout: 120_000, hookTimeout: 600_000 });

const root = join(import.meta.dirname, '../..');

describe.skipIf(!hasChromium)('the form of an operation', () => {
  let folder: string;
  let run: Run;
  let browser: Browser;
  let gatewayUrl: string;
  let agentUrl: string;

  beforeAll(async () => {
    // The server would build the portal at its first request, at low priority.
    const build = await runNode(join(root, 'scripts/docs.ts'), ['--no-check', '--if-changed'], {
      cwd: root,
      timeoutMs: 500_000,
    });
    expect(build.stderr).toBe('');
    folder = await mkdtemp(join(tmpdir(), 'townhall-try-'));
    const port = await freePort();
    gatewayUrl = `http://127.0.0.1:${port}`;
    run = townhall(['start'], {
      cwd: folder,
      env: {
        HOST: '127.0.0.1',
        PORT: String(port),
        AGENT_PORT: '0',
        CONSOLE_PORT: '0',
        AGENT_ALLOW_ORIGIN: gatewayUrl,
      },
    });
    browser = await launchChromium();
    [, agentUrl = ''] = await run.waitFor(/agent +(http\S+)/);
  });
  afterAll(async () => {
    await browser?.close();
    run?.process.kill('SIGTERM');
    await run?.ended;
    await rm(folder, { recursive: true, force: true });
  });

  const readToken = async (name: string) => (await readFile(join(folder, name), 'utf8')).trim();

  async function openForm(operation: string) {
    const localPage = await openLocalPage(browser);
    await localPage.page.goto(`${gatewayUrl}/docs/operations/${operation}.html`);
    return localPage;
  }

  async function send(page: Page, token: string): Promise<string> {
    await page.getByLabel('Your token').fill(token);
    await page.getByRole('button', { name: 'Send' }).click();
    await page.locator('.status', { hasText: /^\d{3} after / }).waitFor();
    return page.locator('.status').innerText();
  }

  test('shows the answer of the gateway', async () => {
    const { page, outside, complaints } = await openForm('gateway/ai.generateText');
    await page.getByLabel('Body').fill('{"model": "local/echo", "prompt": "From the form"}');
    expect(await send(page, await readToken('data/local.token'))).toMatch(/^200 after \d+ ms$/);
    expect(JSON.parse(await page.locator('.output').innerText())).toMatchObject({
      parts: [{ type: 'text', text: 'From the form' }],
    });
    expect({ outside, complaints }).toEqual({ outside: [], complaints: [] });
    await page.close();
  });

  test('shows an error with its code', async () => {
    const { page } = await openForm('gateway/ai.generateText');
    expect(await send(page, 'th_usr_wrong')).toMatch(/^401 /);
    expect(await page.locator('.output').innerText()).toContain('"invalid_token"');
    await page.close();
  });

  test('shows the events of a stream', async () => {
    const { page } = await openForm('gateway/ai.streamText');
    expect(await send(page, await readToken('data/local.token'))).toMatch(/^200 /);
    expect(await page.locator('.output').innerText()).toMatch(/^data: .*"text-delta"/m);
    await page.close();
  });

  test('stops a stream on request', async () => {
    const { page } = await openForm('agent/sessions.follow');
    const token = await readToken('data/agent/agent.token');
    await page.getByLabel('Agent', { exact: true }).fill(agentUrl);
    const created = await fetch(`${agentUrl}/api/sdk/sessions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: '{"id": "followed"}',
    });
    expect(created.status).toBe(201);
    await page.getByLabel('Address').fill('/api/sdk/sessions/followed/events');
    await page.getByLabel('Your token').fill(token);
    await page.getByRole('button', { name: 'Send' }).click();
    await page.locator('.output', { hasText: 'stream.ready' }).waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.locator('.status', { hasText: 'Stopped after' }).waitFor();
    await page.close();
  });

  test('shows the answer of an agent that allows the origin', async () => {
    const { page, complaints } = await openForm('agent/sessions.execute');
    await page.getByLabel('Agent', { exact: true }).fill(agentUrl);
    await page.getByLabel('Body').fill('{"instructions": "How do I stream an answer?"}');
    expect(await send(page, await readToken('data/agent/agent.token'))).toMatch(/^200 /);
    expect(JSON.parse(await page.locator('.output').innerText())).toMatchObject({ success: true });
    expect(complaints).toEqual([]);
    await page.close();
  });

  test('explains how to allow the page when an agent does not answer', async () => {
    const { page } = await openForm('agent/sessions.execute');
    await page.getByLabel('Agent', { exact: true }).fill(`http://127.0.0.1:${await freePort()}`);
    await page.getByRole('button', { name: 'Send' }).click();
    await expect
      .poll(() => page.locator('.status').innerText())
      .toContain(`AGENT_ALLOW_ORIGIN=${gatewayUrl}`);
    await page.close();
  });

  test('is absent for an upload', async () => {
    const { page } = await openForm('gateway/ai.transcribeClientAudio');
    expect(await page.getByRole('tab').count()).toBeGreaterThan(2);
    expect(await page.locator('.try').count()).toBe(0);
    await page.close();
  });
});
