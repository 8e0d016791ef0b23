// The console while the agent's process is stopped: the agent still accepts connections but does not
// answer.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { hasChromium, launchChromium } from '../support/chromium.ts';
import { openConsolePage } from '../support/console-browser.ts';
import { startConsole, type TestConsole } from '../support/console.ts';
import { makeDatabase, type DatabasePlace } from '../support/databases.ts';
import { readListeningUrl } from '../support/listening-url.ts';
import { says, scriptedGateway, type ScriptedGateway } from '../support/scripted-gateway.ts';

describe.skipIf(!hasChromium)('the console of an agent that is stopped', { timeout: 180_000 }, () => {
  let folder: string;
  let gateway: ScriptedGateway;
  let database: DatabasePlace;
  let agent: ChildProcess;
  let consoleServer: TestConsole;
  let browser: Browser;
  let page: Page;
  const pageErrors: string[] = [];

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-console-hung-'));
    gateway = await scriptedGateway();
    gateway.answer(() => says('I am awake.'));
    database = await makeDatabase();
    const env = {
      PATH: process.env['PATH'],
      TEST_DATABASE: JSON.stringify(database.options),
      AGENT_PORT: '0',
      AGENT_DATA_DIR: folder,
      AGENT_MODEL: 'local/guide',
      AGENT_GATEWAY_URL: gateway.url,
      AGENT_GATEWAY_TOKEN: 'th_usr_test',
    };
    agent = spawn(process.execPath, [join(import.meta.dirname, '../support/agent-process.ts')], {
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const url = await readListeningUrl(agent);
    consoleServer = await startConsole({ url, tokenFile: join(folder, 'agent.token') });
    browser = await launchChromium();
  });
  afterAll(async () => {
    await browser?.close();
    await consoleServer?.close();
    agent?.kill('SIGCONT');
    if (agent?.kill('SIGTERM')) await once(agent, 'exit');
    await database?.remove();
    await gateway?.close();
    await rm(folder, { recursive: true, force: true });
  });
  beforeEach(async () => {
    page = await openConsolePage(await browser.newContext(), consoleServer, pageErrors);
    await page.getByText('connected', { exact: true }).waitFor();
  });
  afterEach(async () => {
    agent.kill('SIGCONT');
    await page.context().close();
    expect(pageErrors.splice(0)).toEqual([]);
  });

  const message = () => page.getByRole('textbox', { name: 'Message' });
  const waitForSilence = () =>
    page.locator('.agent .pill.bad', { hasText: 'not answering' }).waitFor({ timeout: 20_000 });
  const waitForIdle = () => page.locator('.conversation .pill', { hasText: 'idle' }).waitFor();
  const exchange = async (text: string): Promise<void> => {
    await message().fill(text);
    await page.keyboard.press('Enter');
    await page.getByText('I am awake.').waitFor();
    await waitForIdle();
  };

  test('shows when the agent stops answering and when it is back', async () => {
    agent.kill('SIGSTOP');
    await waitForSilence();
    agent.kill('SIGCONT');
    await page.getByText('connected', { exact: true }).waitFor();
    expect(await page.locator('.agent .pill.bad').count()).toBe(0);
  });

  /** Sends a message in a chat whose agent has just stopped answering; the composer keeps the message. */
  const sendInVain = async (text: string): Promise<void> => {
    await exchange('Are you there?');
    agent.kill('SIGSTOP');
    await message().fill(text);
    await page.keyboard.press('Enter');
    // The message stays visible while it is being sent.
    await page.getByRole('list', { name: 'Being sent' }).getByText(text).waitFor();
    await page.locator('.composer [role=alert]', { hasText: 'did not answer within 15 seconds' }).waitFor();
  };

  test('returns an unsent message to the composer with the reason', async () => {
    await sendInVain('Write this down.');
    expect(await message().inputValue()).toBe('Write this down.');
    agent.kill('SIGCONT');
    await message().press('Enter');
    await page.locator('.message.user', { hasText: 'Write this down.' }).first().waitFor();
    await expect.poll(() => message().inputValue()).toBe('');
  });

  test('keeps an unsent message across a change of page and a reload', async () => {
    await sendInVain('Remember this.');
    await page.getByRole('link', { name: 'Services' }).click();
    await page.goBack();
    agent.kill('SIGCONT');
    await expect.poll(() => message().inputValue()).toBe('Remember this.');
    await page.reload();
    await expect.poll(() => message().inputValue()).toBe('Remember this.');
  });

  test('accepts a session prompt once even if it is sent twice', async () => {
    await page.getByRole('link', { name: 'Sessions' }).click();
    await page.getByRole('button', { name: 'New session' }).click();
    await exchange('First.');
    agent.kill('SIGSTOP');
    await message().fill('Second.');
    await page.keyboard.press('Enter');
    await page.locator('.composer [role=alert]').waitFor();
    agent.kill('SIGCONT');
    await message().press('Enter');
    await page.locator('.message.user', { hasText: 'Second.' }).waitFor();
    await expect.poll(() => page.getByText('I am awake.').count()).toBe(2);
    await waitForIdle();
    expect(await page.locator('.message.user', { hasText: 'Second.' }).count()).toBe(1);
  });

  test.each([
    ['sessions', 'main tbody tr, main .empty'],
    ['plugins', 'nav.list a'],
    ['services', '[data-service]'],
    ['approvals', 'main .empty'],
  ])('loads the page %s once the agent answers', async (name, content) => {
    agent.kill('SIGSTOP');
    await page.goto(`${consoleServer.url}/#/${name}`);
    await page.reload();
    await waitForSilence();
    await page.locator('main .empty', { hasText: 'The agent does not answer' }).waitFor();
    agent.kill('SIGCONT');
    await page.locator(content).first().waitFor();
    await expect.poll(() => page.locator('main').innerText()).not.toContain('The agent does not answer');
  });

  test('loads the chats once the agent answers', async () => {
    agent.kill('SIGSTOP');
    await page.goto(`${consoleServer.url}/#/chat`);
    await page.reload();
    await waitForSilence();
    expect(await page.getByRole('navigation', { name: 'Pages' }).isVisible()).toBe(true);
    agent.kill('SIGCONT');
    await page.locator('nav.list a, nav.list p').first().waitFor();
  });
});
