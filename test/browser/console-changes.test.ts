// The file changes of one answer in the console, by keyboard: shown as diffs, then undone and redone.
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Locator, Page } from 'playwright-core';
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
  `+export const value5 = "${'a line that is too long for a phone '.repeat(3)}";`,
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
    world = await openConsoleBrowser();
    await mkdir(join(world.agent.workspace, 'src'), { recursive: true });
    await writeFile(join(world.agent.workspace, 'src/values.ts'), originalText);
    page = await world.open('#/chat');
  });
  afterAll(async () => {
    await world?.close();
    expect(world?.pageErrors).toEqual([]);
  });

  /** The text of a file in the workspace; null for a missing file. */
  async function text(path: string): Promise<string | null> {
    const file = join(world.agent.workspace, path);
    return existsSync(file) ? readFile(file, 'utf8') : null;
  }

  const button = (name: string) => page.getByRole('button', { name, exact: true });

  async function sendPatchRequest(): Promise<void> {
    world.gateway.answer((request) =>
      request.prompt.at(-1)?.role === 'tool'
        ? says('Value 5 is a text now.')
        : calls({ name: 'files_patch', input: { diff }, id: 'call_1' }),
    );
    await page.getByText('connected', { exact: true }).waitFor();
    await page.getByRole('textbox', { name: 'Message' }).fill('Make value 5 a text.');
    await page.keyboard.press('Enter');
  }

  /** Presses Enter on the element, as a keyboard user does. */
  async function activate(element: Locator): Promise<void> {
    await element.focus();
    await page.keyboard.press('Enter');
  }

  test('unfold into a diff', async () => {
    await sendPatchRequest();
    const summary = page.getByText('2 files changed');
    await summary.waitFor();
    await activate(summary);
    const file = page.locator('.changes .file').nth(1);
    await activate(file.locator('summary'));
    await expect.poll(() => file.innerText()).toContain('+export const value5');
  });

  test.each([1280, 390])('fit a window of %i pixels', async (width) => {
    await page.setViewportSize({ width, height: 800 });
    await page.locator('.changes .file').nth(1).scrollIntoViewIfNeeded();
    await page.screenshot({ path: join(pictures, `changes-${width}.png`) });
    const isTooWide = await page.evaluate(
      () => document.documentElement.scrollWidth > document.documentElement.clientWidth,
    );
    expect(isTooWide).toBe(false);
  });

  test('are undone, with the focus on redo', async () => {
    await activate(button('Undo'));
    const redo = button('Redo');
    await redo.waitFor();
    expect([await text('src/values.ts'), await text('notes.md')]).toEqual([originalText, null]);
    expect(await redo.evaluate((element) => element === document.activeElement)).toBe(true);
    await page.getByText('2 files restored.').waitFor();
    await page.screenshot({ path: join(pictures, 'undone-390.png') });
  });

  test('are redone', async () => {
    // The undo left the focus on Redo.
    await page.keyboard.press('Enter');
    await button('Undo').waitFor();
    expect(await text('notes.md')).toBe('# Notes\nValue 5 is a text now.\n');
  });

  test('stay if another program has changed a file since', async () => {
    await writeFile(join(world.agent.workspace, 'notes.md'), 'mine');
    await page.setViewportSize({ width: 1280, height: 800 });
    await button('Undo').click();
    const reason = page.getByText('nothing was restored: notes.md');
    await reason.waitFor();
    await page.locator('.changes button:not([aria-busy])').waitFor();
    expect(await reason.isVisible()).toBe(true);
    await page.screenshot({ path: join(pictures, 'conflict-1280.png') });
    expect(await text('notes.md')).toBe('mine');
  });
});
