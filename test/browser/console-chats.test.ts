// The lists of chats and of sessions in the console, in a real Chromium.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hasChromium } from '../support/chromium.ts';
import { openConsoleBrowser, type ConsoleBrowser } from '../support/console-browser.ts';
import { says } from '../support/scripted-gateway.ts';

describe.skipIf(!hasChromium)('the console', { timeout: 120_000 }, () => {
  let world: ConsoleBrowser;
  let page: Page;
  beforeAll(async () => {
    world = await openConsoleBrowser();
    world.gateway.answer(() => says('Done.'));
    page = await world.open('#/chat');
  });
  afterAll(async () => {
    await world?.close();
    expect(world?.pageErrors).toEqual([]);
  });
  const list = () => page.getByRole('navigation', { name: 'Chats' });
  const startChat = (name: string) => world.agent.client.chat.sendMessage({ chatId: name, text: name });

  test('links to all sessions if the list of chats leaves out older chats', async () => {
    await startChat('chat-0');
    await list().getByText('chat-0', { exact: true }).waitFor();
    const allSessions = list().getByRole('link', { name: 'all sessions' });
    expect(await allSessions.count()).toBe(0);
    for (let index = 1; index <= 100; index += 1) await startChat(`chat-${index}`);
    await allSessions.waitFor();
    await allSessions.scrollIntoViewIfNeeded();
    // The list has the newest 100 of the 101 chats, and the link to all sessions.
    expect(await list().getByRole('link').count()).toBe(101);
    await allSessions.click();
    await page.getByRole('heading', { name: 'Sessions' }).waitFor();
  });

  test('lists more than 500 sessions', async () => {
    for (let count = 0; count < 510; count += 10)
      await Promise.all(Array.from({ length: 10 }, () => world.agent.client.sessions.create({})));
    await page.goto(new URL('#/sessions', page.url()).href);
    const rows = page.getByRole('region', { name: 'Sessions' }).getByRole('row');
    // Each page has 50 sessions; the row of titles counts too.
    for (let limit = 50; limit <= 500; limit += 50) {
      await expect.poll(() => rows.count()).toBe(limit + 1);
      await page.getByRole('button', { name: 'Show more' }).click();
    }
    await expect.poll(() => rows.count()).toBeGreaterThan(501);
  });
});
