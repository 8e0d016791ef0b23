// File changes in the console: the diffs below an answer, undo and redo, by keyboard and on a phone.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hasChromium } from '../support/chromium.ts';
import { openConsoleBrowser, type ConsoleBrowser } from '../support/console-browser.ts';
import { calls, says } from '../support/scripted-gateway.ts';

const pictures = join(import.meta.dirname, '../../build/console-changes');
const originalText = Array.from(
  { length: 12 },
  (_, index) => `export const value${index} = ${index};\n`,
).join('');
const diff = [
  '--- a/src/values.ts',
  '+++ b/src/values.ts',
  '@@ -5,3 +5,3 @@',
  ' export const value4 = 4;',
  '-export const value5 = 5;',
  '+export const value5 = "a long line that does not fit the width of a phone, so that it scrolls by itself";',
  ' export const value6 = 6;',
  '--- /dev/null',
  '+++ b/notes.md',
  '@@ -0,0 +1,2 @@',
  '+# Notes',
  '+Value 5 is a text now.',
  '',
].join('\n');

describe.skipIf(!hasChromium)('file changes in the console', { timeout: 120_000 }, () => {
  let world: ConsoleBrowser;
  let page: Page;
  beforeAll(async () => {
    await mkdir(pictures, { recursive: true });
    world = await openConsoleBrowser({});
    page = await world.open();
  });
  afterAll(async () => {
    expect(world?.pageErrors).toEqual([]);
    await world?.close();
  });

  const text = (path: string) => readFile(join(world.agent.workspace, path), 'utf8').catch(() => null);

  test('are shown, undone and redone', async () => {
    await mkdir(join(world.agent.workspace, 'src'), { recursive: true });
    await writeFile(join(world.agent.workspace, 'src/values.ts'), originalText);
    world.gateway.answer((request) =>
      request.prompt.at(-1)?.role === 'tool'
        ? says('Value 5 is a text now.')
        : calls({ name: 'files_patch', input: { diff }, id: 'call_1' }),
    );
    await page.goto(`${world.consoleServer.url}/#/chat`);
    await page.getByText('here', { exact: true }).waitFor();
    await page.getByRole('textbox', { name: 'Message' }).fill('Make value 5 a text.');
    await page.keyboard.press('Enter');
    const summary = page.getByText('2 files changed');
    await summary.waitFor();
    await summary.focus();
    await page.keyboard.press('Enter');
    const file = page.locator('.changes .file').nth(1);
    await file.locator('summary').focus();
    await page.keyboard.press('Enter');
    await file.getByText('+export const value5').waitFor();
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: 800 });
      await file.scrollIntoViewIfNeeded();
      await page.screenshot({ path: join(pictures, `changes-${width}.png`) });
      const isWide = await page.evaluate(
        () => document.documentElement.scrollWidth > document.documentElement.clientWidth,
      );
      expect(isWide).toBe(false);
    }
    const undo = page.getByRole('button', { name: 'Undo', exact: true });
    await undo.focus();
    await page.keyboard.press('Enter');
    const redo = page.getByRole('button', { name: 'Redo', exact: true });
    await redo.waitFor();
    expect([await text('src/values.ts'), await text('notes.md')]).toEqual([originalText, null]);
    expect(await redo.evaluate((element) => element === document.activeElement)).toBe(true);
    await page.getByText('2 files set back.').waitFor();
    await page.screenshot({ path: join(pictures, 'undone-390.png') });
    await page.keyboard.press('Enter');
    await undo.waitFor();
    expect(await text('notes.md')).toBe('# Notes\nValue 5 is a text now.\n');
  });

  test('name the files that another program has changed', async () => {
    await writeFile(join(world.agent.workspace, 'notes.md'), 'mine');
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.getByRole('button', { name: 'Undo', exact: true }).click();
    const reason = page.getByText('nothing was set back: notes.md');
    await reason.waitFor();
    await page.locator('.changes button:not([aria-busy])').waitFor();
    expect(await reason.isVisible()).toBe(true);
    await page.screenshot({ path: join(pictures, 'conflict-1280.png') });
    expect(await text('notes.md')).toBe('mine');
  });
});
