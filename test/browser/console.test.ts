// The console in a real Chromium against a real agent with a scripted model: streaming, approvals,
// forks, forms from schemas and services. Screenshots are kept in build/console. Skipped with a
// warning where Chromium is absent.
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { definePlugin } from '../../src/agent/plugins/index.ts';
import { startAgent, type TestAgent } from '../support/agent.ts';
import { hasChromium, launchChromium } from '../support/chromium.ts';
import { watchConsolePage } from '../support/console-browser.ts';
import { startConsole, type TestConsole } from '../support/console.ts';
import { testDatabase, type TestDatabase } from '../support/databases.ts';
import { freePort } from '../support/free-port.ts';
import {
  calls,
  says,
  scriptedGateway,
  toolResults,
  type ScriptedGateway,
} from '../support/scripted-gateway.ts';
import { holdAnswer } from '../support/session-world.ts';

const pictures = join(import.meta.dirname, '../../build/console');

const kitchen = definePlugin<{
  cook: {
    dish: string;
    minutes: number;
    spices?: string[];
    style?: string;
    spicy?: boolean;
    plate?: { colour?: string };
  };
}>({
  name: 'kitchen',
  title: 'Kitchen',
  description: 'Cooks dishes.',
  actions: {
    cook: {
      description: 'Cooks a dish.',
      api: true,
      input: {
        type: 'object',
        required: ['dish', 'minutes'],
        properties: {
          dish: { type: 'string', minLength: 2, description: 'What to cook.' },
          minutes: { type: 'integer', minimum: 1, maximum: 240 },
          style: { enum: ['fried', 'boiled', 'raw'] },
          spicy: { type: 'boolean' },
          spices: { type: 'array', items: { type: 'string' } },
          plate: { type: 'object', properties: { colour: { type: 'string' } }, additionalProperties: false },
        },
        additionalProperties: false,
      },
      run: async ({ dish, minutes, spices = [] }) => ({ served: `${dish} after ${minutes} minutes`, spices }),
    },
  },
  services: [
    {
      name: 'oven',
      title: 'Oven',
      start: async () => {},
      stop: async () => {},
      commands: {
        heat: { description: 'Heats it.', input: { type: 'object' }, run: async () => ({ degrees: 220 }) },
      },
    },
  ],
});

describe.skipIf(!hasChromium).each(['current', 'classic'] as const)(
  'the console for an agent of the %s variant',
  { timeout: 180_000 },
  (variant) => {
    let gateway: ScriptedGateway;
    let agent: TestAgent;
    let consoleServer: TestConsole;
    let browser: Browser;
    let page: Page;
    let folder: string;
    let database: TestDatabase;
    const pageErrors: string[] = [];

    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'townhall-console-'));
      await mkdir(pictures, { recursive: true });
      await mkdir(join(folder, 'workspace'));
      gateway = await scriptedGateway();
      database = await testDatabase();
      // A fixed port, so that a restarted agent has the same address.
      agent = await start(await freePort());
      consoleServer = await startConsole(agent);
      browser = await launchChromium();
      page = await browser.newPage({
        viewport: { width: 1180, height: 780 },
        colorScheme: variant === 'classic' ? 'dark' : 'light',
      });
      watchConsolePage(page, consoleServer, pageErrors);
    }, 180_000);
    const start = (port: number): Promise<TestAgent> =>
      startAgent({
        gatewayUrl: gateway.url,
        variant,
        model: 'local/guide',
        dataDir: folder,
        workspace: join(folder, 'workspace'),
        database: database.database,
        settings: { drainMs: 0, port },
        createOptions: { plugins: [kitchen] },
      });
    afterAll(async () => {
      await browser?.close();
      await consoleServer?.close();
      await agent?.close();
      await database?.close();
      await gateway?.close();
      if (folder !== undefined) await rm(folder, { recursive: true, force: true });
      expect(pageErrors).toEqual([]);
    });

    const picture = (name: string) => page.screenshot({ path: join(pictures, `${variant}-${name}.png`) });
    const openPage = (name: string) =>
      page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name }).click();

    test('opens its login address once', async () => {
      const address = consoleServer.console.loginUrl();
      await page.goto(address);
      expect(page.url()).toBe(`${consoleServer.url}/`);
      await page.getByRole('heading', { name: 'What should the agent do?' }).waitFor();
      await page.getByText('connected', { exact: true }).waitFor();
      await picture('1-first');
      const otherContext = await browser.newContext();
      const otherPage = await otherContext.newPage();
      expect((await otherPage.goto(address))?.status()).toBe(401);
      await otherPage.getByRole('heading', { name: 'You are not signed in' }).waitFor();
      await otherContext.close();
    });

    // Browsers send cookies to every port of a host.
    test('keeps no key in a cookie', async () => {
      expect(await page.context().cookies()).toEqual([]);
    });

    test('never contains the token of the agent', async () => {
      expect(
        await page.evaluate(
          () =>
            document.cookie +
            document.documentElement.outerHTML +
            JSON.stringify({ ...localStorage, ...sessionStorage }),
        ),
      ).not.toContain(agent.token);
    });

    test('streams an answer while the next message is queued', async () => {
      const slowAnswer = holdAnswer();
      gateway.answer((_, index) =>
        index === 0
          ? slowAnswer.answer
          : says('Here is a list:\n\n- **bread**\n- `salt`\n\n```\nwater\n```\n'),
      );
      await page.getByRole('textbox', { name: 'Message' }).fill('Tell me a story about a town hall.');
      await page.keyboard.press('Enter');
      await slowAnswer.request;
      slowAnswer.say('Once upon a time ');
      await page.getByText('Once upon a time').waitFor();
      slowAnswer.say('there was a clerk');
      await page.getByText('Once upon a time there was a clerk').waitFor();
      expect(await page.locator('.message.assistant').getAttribute('aria-busy')).toBe('true');

      for (const text of ['And then?', 'Never mind this one.']) {
        await page.getByRole('textbox', { name: 'Message' }).fill(text);
        await page.keyboard.press('Enter');
      }
      const waitingItems = page.getByRole('region', { name: 'Waiting' }).getByRole('listitem');
      await waitingItems.nth(1).waitFor();
      expect(await waitingItems.allTextContents()).toEqual([
        expect.stringContaining('1And then?'),
        expect.stringContaining('2Never mind this one.'),
      ]);
      await picture('2-growing');
      await waitingItems.nth(1).getByRole('button').click();
      await waitingItems.nth(1).waitFor({ state: 'detached' });
      slowAnswer.say(' with a key.');
      slowAnswer.end();
      await page.getByText('Once upon a time there was a clerk with a key.').waitFor();
      await page.locator('.message.assistant strong', { hasText: 'bread' }).waitFor();
      await page.locator('.conversation .pill', { hasText: 'idle' }).waitFor();
      await picture('3-chat');
      expect(gateway.requests).toHaveLength(2);
      expect(await page.locator('.message.assistant').count()).toBe(2);
    });

    test('resumes a streaming run after a reload and stops it', async () => {
      const heldAnswer = holdAnswer();
      gateway.answer(() => heldAnswer.answer);
      await page.getByRole('textbox', { name: 'Message' }).fill('Count to a million.');
      await page.getByRole('button', { name: 'Send' }).click();
      await heldAnswer.request;
      heldAnswer.say('one, two, three');
      await page.getByText('one, two, three').waitFor();
      await page.reload();
      // The text from before the reload is shown again.
      await page.getByText('one, two, three').waitFor();
      heldAnswer.say(', four');
      await page.getByText('one, two, three, four').waitFor();
      await page.getByRole('button', { name: 'Stop', exact: true }).click();
      await heldAnswer.disconnection;
      await page.getByText('The run was stopped.').waitFor();
      expect(await page.getByText('one, two, three, four').count()).toBe(1);
    });

    test('asks for approval in the chat and on the approvals page', async () => {
      gateway.answer((request) => {
        const results = toolResults(request);
        const lastMessage = JSON.stringify(request.prompt.at(-1));
        if (lastMessage.includes('Make two files'))
          return calls({
            name: 'shell_run',
            input: { command: 'echo first > first.txt' },
            id: `one-${request.prompt.length}`,
          });
        const lastResult = results.at(-1);
        if (lastResult?.toolCallId.startsWith('one-'))
          return calls({
            name: 'shell_run',
            input: { command: 'echo second > second.txt' },
            id: `two-${request.prompt.length}`,
          });
        return says('One of two was made.');
      });
      await page.getByRole('textbox', { name: 'Message' }).fill('Make two files.');
      await page.keyboard.press('Enter');
      const card = page.getByRole('region', { name: 'Approval of shell_run' });
      await card.getByText('echo first > first.txt').waitFor();
      await page.locator('.badge', { hasText: '1' }).waitFor();
      await picture('4-approval');
      await card.getByRole('button', { name: 'Approve' }).click();
      await card.getByText('echo second > second.txt').waitFor();
      expect(await readFile(join(agent.workspace, 'first.txt'), 'utf8')).toBe('first\n');

      await openPage('Approvals');
      await page.getByRole('heading', { name: 'Approvals', exact: true }).waitFor();
      const approval = page.getByRole('region', { name: 'Approval of shell_run' });
      await approval.getByText('echo first > first.txt').waitFor({ state: 'detached' });
      await approval.getByText('echo second > second.txt').waitFor();
      await picture('5-approvals');
      await approval.getByLabel('Reason').fill('One is enough.');
      await approval.getByRole('button', { name: 'Deny' }).click();
      await page.getByRole('heading', { name: 'No approvals are waiting' }).waitFor();
      expect(existsSync(join(agent.workspace, 'second.txt'))).toBe(false);
      await expect.poll(() => JSON.stringify(gateway.requests.at(-1)?.prompt)).toContain('One is enough.');
      await page.locator('.badge').waitFor({ state: 'detached' });
    });

    test('forks a session at a message and continues in the fork', async () => {
      await openPage('Sessions');
      await page.getByRole('link', { name: 'Tell me a story about a town hall.' }).click();
      await page.getByText('One of two was made.').waitFor();
      await picture('6-session');
      const story = page.locator('.message.assistant').first();
      await story.hover();
      await story.getByRole('button', { name: 'Fork here' }).click();
      await page.getByText('forked from another session').waitFor();
      await page.getByText('there was a clerk with a key.').waitFor();
      expect(await page.getByText('One of two was made.').count()).toBe(0);
      gateway.answer(() => says('The fork goes its own way.'));
      await page.getByRole('textbox', { name: 'Message' }).fill('How does it end?');
      await page.keyboard.press('Enter');
      await page.getByText('The fork goes its own way.').waitFor();
    });

    test('archives a session', async () => {
      await page.getByRole('button', { name: 'Archive' }).click();
      await page.getByRole('button', { name: 'Unarchive' }).waitFor();
      await expect.poll(() => page.getByText('archived', { exact: true }).count()).toBe(1);
    });

    test('builds a form from a schema with errors at its members', async () => {
      await openPage('Plugins');
      await page.getByRole('link', { name: /Kitchen/ }).click();
      await page.locator('[data-action=cook] summary').click();
      await page.getByLabel('dish').fill('soup');
      await page.getByLabel('minutes').fill('soon');
      await page.getByLabel('style').selectOption('boiled');
      await page.getByRole('button', { name: 'Run' }).click();
      const minutes = page.getByLabel('minutes');
      await page.locator('.field', { has: minutes }).locator('.fault').waitFor();
      expect(await minutes.getAttribute('aria-invalid')).toBe('true');
      expect(await page.locator('.field', { has: minutes }).locator('.fault').textContent()).toContain(
        'integer',
      );
      await picture('7-form-error');
      await minutes.fill('20');
      await page.getByRole('group', { name: 'spices' }).getByRole('button', { name: 'Add item' }).click();
      await page.getByRole('group', { name: 'spices' }).getByRole('textbox').fill('pepper');
      await page.getByRole('group', { name: 'plate' }).getByLabel('colour').fill('blue');
      await page.getByRole('button', { name: 'Run' }).click();
      await page.getByText('soup after 20 minutes').waitFor();
      expect(await page.locator('.result').first().textContent()).toContain('pepper');
      expect(await page.locator('.fault:visible').count()).toBe(0);
      await picture('8-form-result');
    });

    test('shows why a plugin is not available', async () => {
      await page.getByRole('link', { name: /MCP servers/ }).click();
      await expect.poll(() => page.locator('main').innerText()).toContain('No MCP server is configured.');
    });

    test('stops a service', async () => {
      await openPage('Services');
      const oven = page.getByRole('region', { name: 'oven' });
      await oven.getByText('running').waitFor();
      await oven.getByRole('button', { name: 'Stop' }).click();
      await oven.getByText('stopped').waitFor();
      expect(
        (await agent.client.services.listServices()).services.find(({ name }) => name === 'oven'),
      ).toMatchObject({ state: 'stopped' });
    });

    test('shows that another client has stopped a service', async () => {
      await agent.client.services.controlService({ serviceName: 'chat', action: 'stop' });
      const chat = page.getByRole('region', { name: 'chat' });
      await expect.poll(() => chat.innerText()).toContain('stopped');
      await agent.client.services.controlService({ serviceName: 'chat', action: 'start' });
      await picture('9-services');
    });

    test('shows the error of a command with its code and request', async () => {
      const oven = page.getByRole('region', { name: 'oven' });
      await oven.locator('summary').click();
      await oven.getByRole('button', { name: 'Run the command' }).click();
      await expect.poll(() => oven.innerText()).toMatch(/Request req_\w+, service_stopped/);
    });

    test('starts a service and runs its command', async () => {
      const oven = page.getByRole('region', { name: 'oven' });
      await oven.getByRole('button', { name: 'Start' }).click();
      await oven.getByText('running').waitFor();
      await oven.getByRole('button', { name: 'Run the command' }).click();
      await expect.poll(() => oven.innerText()).toContain('220');
    });

    test('fits a small screen with the focus in the composer', async () => {
      await page.setViewportSize({ width: 390, height: 800 });
      await page.goto(`${consoleServer.url}/`);
      await page.getByRole('heading', { name: 'What should the agent do?' }).waitFor();
      expect(await page.evaluate(() => document.activeElement?.id)).toBe('composer');
      await picture('10-small');
      expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
    });

    test('opens a page by keyboard', async () => {
      await page.getByRole('link', { name: 'Skip to the content' }).focus();
      await page.keyboard.press('Tab');
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'Sessions' }).waitFor();
      expect(page.url()).toBe(`${consoleServer.url}/#/sessions`);
      await page.setViewportSize({ width: 1180, height: 780 });
    });

    test('continues by itself when the agent is back', async () => {
      const { items } = await agent.client.sessions.list({ kind: 'chat' });
      const sessionId = items[0]?.id ?? '';
      await page.goto(`${consoleServer.url}/#/chat/${sessionId}`);
      await page.getByText('One of two was made.').waitFor();
      const { port } = new URL(agent.url);
      await agent.close();
      await page.getByText('The agent does not answer.', { exact: false }).waitFor();
      await picture('12-unreachable');
      agent = await start(Number(port));
      gateway.answer(() => says('I am back.'));
      await page.getByText('connected', { exact: true }).waitFor();
      // Another client writes; the page only displays the message.
      await agent.client.chat.sendMessage({ chatId: items[0]?.chatId ?? '', text: 'Are you there?' });
      await page.getByText('I am back.').waitFor();
      expect(await page.getByText('One of two was made.').count()).toBe(1);
    });

    test('shows a refused token and uses a new one', async () => {
      await page.goto(`${consoleServer.url}/`);
      await page.getByText('connected', { exact: true }).waitFor();
      await writeFile(agent.tokenFile, 'th_agt_wrong\n');
      await page.getByText('The agent does not accept the console’s token', { exact: false }).waitFor();
      await picture('11-refused');
      await writeFile(agent.tokenFile, `${agent.token}\n`);
      await page.getByText('connected', { exact: true }).waitFor();
      expect(await page.getByText('does not accept the console’s token').count()).toBe(0);
    });
  },
);
