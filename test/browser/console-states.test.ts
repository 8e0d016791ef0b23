// One session in the console from its creation to its failure, with a picture of each state in both
// color schemes.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hasChromium } from '../support/chromium.ts';
import { openConsoleBrowser, type ConsoleBrowser } from '../support/console-browser.ts';
import { calls, says, type ScriptedAnswer } from '../support/scripted-gateway.ts';

const pictures = join(import.meta.dirname, '../../build/console-states');
const originalText =
  '// The port of the server.\nexport const port = 80;\nexport const host = "127.0.0.1";\n';
const diff = [
  '--- a/src/port.ts',
  '+++ b/src/port.ts',
  '@@ -1,3 +1,3 @@',
  ' // The port of the server.',
  '-export const port = 80;',
  '+export const port = Number(process.env.PORT ?? 8080);',
  ' export const host = "127.0.0.1";',
  '',
].join('\n');
const answerWithCosts = {
  parts: [
    { type: 'text-start', id: 't' },
    { type: 'text-delta', id: 't', delta: 'The port comes from the environment now.' },
    { type: 'text-end', id: 't' },
    {
      type: 'finish',
      finishReason: { unified: 'stop' },
      usage: { inputTokens: { total: 1200, cacheRead: 900 }, outputTokens: { total: 40 } },
      providerMetadata: { townhall: { credits: 12 } },
    },
  ],
};

/** Whether nothing covers the middle of the element. */
function isInView(locator: Locator): Promise<boolean> {
  return locator.evaluate((element) => {
    const { x, y, width, height } = element.getBoundingClientRect();
    return element.contains(document.elementFromPoint(x + width / 2, y + height / 2));
  });
}

describe.skipIf(!hasChromium)('a session in the console', { timeout: 120_000 }, () => {
  let world: ConsoleBrowser;
  let page: Page;
  let sourceFile: string;
  beforeAll(async () => {
    await mkdir(pictures, { recursive: true });
    world = await openConsoleBrowser({ settings: { modelWaitMs: 600_000 } });
    page = await world.open();
  });
  afterAll(async () => {
    await world?.close();
    expect(world?.pageErrors).toEqual([]);
  });

  async function takePictures(name: string): Promise<void> {
    for (const width of [390, 1280]) {
      await page.setViewportSize({ width, height: 800 });
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        await page.screenshot({ path: join(pictures, `${name}-${colorScheme}-${width}.png`) });
      }
      const overflow = await page.evaluate(() => {
        const { scrollWidth, clientWidth } = document.documentElement;
        const bottom = document.querySelector('.composer')?.getBoundingClientRect().bottom ?? 0;
        return { x: scrollWidth > clientWidth, y: bottom > innerHeight };
      });
      expect(overflow, `${name} at ${width} px`).toEqual({ x: false, y: false });
    }
  }

  async function send(text: string): Promise<void> {
    await page.getByRole('textbox', { name: 'Message' }).fill(text);
    await page.keyboard.press('Enter');
  }

  function answerWith(call: ScriptedAnswer, result: ScriptedAnswer): void {
    world.gateway.answer((request) => (request.prompt.at(-1)?.role === 'tool' ? result : call));
  }

  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const sessionId = () => page.url().split('/').at(-1) ?? '';

  test('shows why a worktree is impossible', async () => {
    await page.goto(`${world.consoleServer.url}/#/sessions`);
    await page.getByText('No sessions').waitFor();
    await takePictures('empty');
    await page.getByLabel('Files:').selectOption('own worktree');
    await button('New session').click();
    await page.getByText('not the top folder of a git repository').waitFor();
    await takePictures('refused');
    expect((await world.agent.client.sessions.list()).items).toEqual([]);
  });

  test('starts in a folder of its own', async () => {
    await page.getByRole('textbox', { name: 'Title' }).fill('The port');
    await page.getByLabel('Files:').selectOption('own folder');
    await button('New session').click();
    await page.locator('.head').getByText('own folder').waitFor();
    const { workspace } = await world.agent.client.sessions.getSystem({ sessionId: sessionId() });
    expect(workspace.kind).toBe('folder');
    sourceFile = join(workspace.folder, 'src/port.ts');
    await mkdir(join(workspace.folder, 'src'));
    await writeFile(sourceFile, originalText);
  });

  test('stays in plan mode until changes are allowed', async () => {
    const mode = async () => (await world.agent.client.sessions.get({ sessionId: sessionId() })).mode;
    await button('Plan only').click();
    await page.locator('.head').getByText('plan mode').waitFor();
    expect(await mode()).toBe('plan');
    await takePictures('plan');
    await button('Allow changes').click();
    await page.locator('.head').getByText('plan mode').waitFor({ state: 'detached' });
    expect(await mode()).toBe('work');
  });

  test('asks before a command', async () => {
    answerWith(
      calls({ name: 'shell_run', input: { command: 'npm test' }, id: 'call_1' }),
      says('The test passes.'),
    );
    await send('Run the tests.');
    await button('Always in this project').waitFor();
    await takePictures('approval');
    await button('Always in this project').click();
    await page.getByText('The test passes.').waitFor();
    const rules = await world.agent.client.permissions.list();
    expect(rules.items).toMatchObject([{ tool: 'shell.run', pattern: 'npm test', scope: 'project' }]);
  });

  test('shows diffs and costs of an answer', async () => {
    answerWith(calls({ name: 'files_patch', input: { diff }, id: 'call_2' }), answerWithCosts);
    await send('Read the port from the environment.');
    await page.getByText('1 file changed').click();
    await page.locator('.changes .file summary').click();
    expect(await page.locator('.line.added').textContent()).toContain('8080');
    // The call of the tool has 10 tokens in and 3 out, and the text 1,200 and 40.
    await page.getByText('1,210 tokens in (900 cached), 43 out · 12 credits').waitFor();
    await takePictures('changes-and-costs');
  });

  test('undoes and redoes the changes of an answer', async () => {
    await button('Undo').click();
    await page.getByText('The files were restored.').waitFor();
    expect(await readFile(sourceFile, 'utf8')).toBe(originalText);
    expect(await page.locator('.line.added').isVisible()).toBe(true);
    await takePictures('undone');
    await button('Redo').click();
    await page.getByText('The changes were made again.').waitFor();
    expect(await readFile(sourceFile, 'utf8')).toContain('8080');
  });

  test('shows why its run waits, even after a reload', async () => {
    world.gateway.answer(() => ({
      status: 429,
      error: { type: 'rate_limit_error', code: 'rate_limited', message: 'Too many calls.' },
      headers: { 'retry-after': '300' },
    }));
    await send('And now?');
    await page.getByText('The model is at its rate limit').waitFor();
    await takePictures('waiting');
    await page.setViewportSize({ width: 390, height: 700 });
    await expect.poll(() => isInView(page.getByText('The model is at its rate limit'))).toBe(true);
    await page.reload();
    await page.getByText('The model is at its rate limit').waitFor();
  });

  test('shows what is queued', async () => {
    await send('Then write a test for it.');
    await page.getByText('One message is queued').waitFor();
    await takePictures('queued');
    expect(await page.locator('.message.waits').count()).toBe(1);
  });

  test('shows why its run has failed', async () => {
    world.gateway.answer(() => ({ status: 400, error: { message: 'The model does not take this prompt.' } }));
    await button('Stop').click();
    await page.getByText('The model does not take this prompt.').waitFor();
    expect(await page.getByText('The model is at its rate limit').count()).toBe(0);
    await takePictures('failed');
  });

  test('lists its granted rule until it is removed', async () => {
    await page.goto(`${world.consoleServer.url}/#/approvals`);
    const rule = page.locator('[data-permission]');
    await rule.getByText('shell.run: npm test').waitFor();
    await takePictures('permissions');
    await rule.getByRole('button', { name: 'Remove' }).click();
    await rule.waitFor({ state: 'detached' });
    expect(await world.agent.client.permissions.list()).toEqual({ items: [] });
  });
});
