// Keyboard focus after the focused element disappears, on every page of the console.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { definePlugin } from '../../src/agent/plugins/index.ts';
import { hasChromium } from '../support/chromium.ts';
import { openConsoleBrowser, type ConsoleBrowser } from '../support/console-browser.ts';
import { calls, says, toolResults } from '../support/scripted-gateway.ts';
import { holdAnswer } from '../support/session-world.ts';

const oven = definePlugin({
  name: 'kitchen',
  title: 'Kitchen',
  description: 'Has an oven.',
  actions: {},
  services: [{ name: 'oven', title: 'Oven', start: async () => {}, stop: async () => {} }],
});

describe.skipIf(!hasChromium)('the focus in the console', { timeout: 120_000 }, () => {
  let world: ConsoleBrowser;
  let page: Page;

  beforeAll(async () => {
    world = await openConsoleBrowser({ createOptions: { plugins: [oven] } });
    page = await world.open();
  });
  afterAll(async () => {
    await world?.close();
    expect(world?.pageErrors).toEqual([]);
  });
  beforeEach(async () => {
    await page.goto(`${world.consoleServer.url}/#/chat`);
    await page.reload();
    await page.getByText('connected', { exact: true }).waitFor();
  });

  /** Id or accessible name of the focused element. */
  const focus = () =>
    page.evaluate(
      () =>
        document.activeElement?.id ||
        document.activeElement?.getAttribute('data-approval') ||
        document.activeElement?.getAttribute('data-service') ||
        document.activeElement?.textContent ||
        document.activeElement?.tagName,
    );
  const cards = () => page.locator('[data-approval]');
  async function ask(...commands: string[]): Promise<void> {
    world.gateway.answer((request) =>
      toolResults(request).length > 0
        ? says('Done.')
        : calls(
            ...commands.map((command, index) => ({
              name: 'shell_run',
              input: { command },
              id: `call_${index}`,
            })),
          ),
    );
    await page.getByRole('textbox', { name: 'Message' }).fill(`Run ${commands.join(' and ')}`);
    await page.keyboard.press('Enter');
    await cards()
      .nth(commands.length - 1)
      .waitFor();
  }

  test('moves from an answered card to the next, then to the composer', async () => {
    await ask('echo 1', 'echo 2');
    const next = await cards().nth(1).getAttribute('data-approval');
    await cards().first().getByRole('button', { name: 'Approve' }).focus();
    await page.keyboard.press('Enter');
    await cards().nth(1).waitFor({ state: 'detached' });
    expect(await focus()).toBe(next);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await cards().first().waitFor({ state: 'detached' });
    expect(await focus()).toBe('composer');
  });

  test('moves from the last approval card to the page', async () => {
    await ask('echo 3', 'echo 4');
    await page.getByRole('link', { name: 'Approvals' }).click();
    await cards().nth(1).waitFor();
    const next = await cards().nth(1).getAttribute('data-approval');
    await cards().first().getByRole('button', { name: 'Deny' }).focus();
    await page.keyboard.press('Enter');
    await cards().nth(1).waitFor({ state: 'detached' });
    expect(await focus()).toBe(next);
    await cards().first().getByRole('button', { name: 'Deny' }).focus();
    await page.keyboard.press('Enter');
    await cards().first().waitFor({ state: 'detached' });
    expect(await focus()).toBe('main');
  });

  test('stays in a reason field when another question arrives', async () => {
    await ask('echo 5');
    await page.getByRole('link', { name: 'Approvals' }).click();
    await cards().first().getByLabel('Reason').fill('Because');
    const session = await world.agent.client.sessions.create({ attended: true });
    await world.agent.client.sessions.prompt({ sessionId: session.id, text: 'Run it' });
    await cards().nth(1).waitFor();
    expect(await cards().first().getByLabel('Reason').inputValue()).toBe('Because');
    expect(await focus()).toContain('reason-');
    for (const card of [1, 0]) await cards().nth(card).getByRole('button', { name: 'Deny' }).click();
    await page.getByRole('heading', { name: 'No approvals are waiting' }).waitFor();
  });

  test('stays on a link of a list that is redrawn', async () => {
    await page.getByRole('link', { name: 'Sessions', exact: true }).click();
    await page.locator('tbody a').first().focus();
    const name = await focus();
    await page.evaluate(() => document.querySelector('tbody')?.setAttribute('data-old', ''));
    await world.agent.client.sessions.create({ title: 'Newer' });
    await page.locator('tbody:not([data-old])').waitFor();
    expect(await focus()).toBe(name);
  });

  test('moves to the composer when a pressed button disappears', async () => {
    const slowAnswer = holdAnswer();
    world.gateway.answer(() => slowAnswer.answer);
    await page.getByRole('textbox', { name: 'Message' }).fill('Slowly');
    await page.keyboard.press('Enter');
    await slowAnswer.request;
    await page.getByRole('textbox', { name: 'Message' }).fill('Next');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Remove: Next' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('region', { name: 'Waiting' }).waitFor({ state: 'detached' });
    expect(await focus()).toBe('composer');
    await page.getByRole('button', { name: 'Stop', exact: true }).focus();
    await page.keyboard.press('Enter');
    await page.getByText('The run was stopped.').waitFor();
    expect(await focus()).toBe('composer');
  });

  test('moves from a disappearing service button to its service', async () => {
    await page.getByRole('link', { name: 'Services' }).click();
    const card = page.getByRole('region', { name: 'oven' });
    await card.getByRole('button', { name: 'Stop' }).focus();
    await page.keyboard.press('Enter');
    await card.getByText('stopped').waitFor();
    expect(await focus()).toBe('oven');
    await page.keyboard.press('Tab');
    expect(await focus()).toBe('Start');
  });
});
