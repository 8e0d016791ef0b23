// Permission rules in the console: an approval creates one, and the page of approvals lists and removes it.
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hasChromium } from '../support/chromium.ts';
import { openConsoleBrowser, type ConsoleBrowser } from '../support/console-browser.ts';
import { calls, says } from '../support/scripted-gateway.ts';

const pictures = join(import.meta.dirname, '../../build/console-permissions');

describe.skipIf(!hasChromium)('permissions in the console', { timeout: 120_000 }, () => {
  let world: ConsoleBrowser;
  let page: Page;
  beforeAll(async () => {
    await mkdir(pictures, { recursive: true });
    world = await openConsoleBrowser();
    page = await world.open('#/chat');
    await page.getByText('connected', { exact: true }).waitFor();
  });
  afterAll(async () => {
    await world?.close();
    expect(world?.pageErrors).toEqual([]);
  });

  /** The model calls the same command in each of its runs, which end with `Run 1.`, `Run 2.` and so on. */
  function answerWithCommand(): void {
    let run = 0;
    world.gateway.answer((request) => {
      if (request.prompt.at(-1)?.role === 'tool') return says(`Run ${run}.`);
      run += 1;
      return calls({ name: 'shell_run', input: { command: 'echo yes' }, id: `call_${run}` });
    });
  }
  async function send(text: string): Promise<void> {
    await page.getByRole('textbox', { name: 'Message' }).fill(text);
    await page.keyboard.press('Enter');
  }
  const card = () => page.getByRole('region', { name: 'Approval of shell_run' });

  test('allow a command without another approval', async () => {
    answerWithCommand();
    await send('First.');
    await card().getByRole('button', { name: 'Always in this project' }).click();
    await page.getByText('Run 1.').waitFor();
    await send('Second.');
    await page.getByText('Run 2.').waitFor();
    expect(await card().count()).toBe(0);
  });

  test('are listed until they are removed', async () => {
    await page.goto(`${world.consoleServer.url}/#/approvals`);
    const rule = page.locator('[data-permission]');
    await rule.getByText('shell.run: echo yes').waitFor();
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: 800 });
      await page.screenshot({ path: join(pictures, `permissions-${width}.png`) });
    }
    await page.setViewportSize({ width: 1280, height: 800 });
    await rule.getByRole('button', { name: 'Remove' }).click();
    await rule.waitFor({ state: 'detached' });
    expect(await world.agent.client.permissions.list()).toEqual({ items: [] });
  });

  test('ask for an approval again after their removal', async () => {
    await page.goto(`${world.consoleServer.url}/#/chat`);
    await send('Third.');
    await card().waitFor();
    expect(await card().innerText()).toContain('echo yes');
    await card().getByRole('button', { name: 'Deny' }).click();
    await page.getByText('Run 3.').waitFor();
  });
});
