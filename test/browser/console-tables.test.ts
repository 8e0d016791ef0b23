// Tables of an answer in the console, in a real Chromium.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hasChromium } from '../support/chromium.ts';
import { openConsoleBrowser, type ConsoleBrowser } from '../support/console-browser.ts';
import { says } from '../support/scripted-gateway.ts';

/** Exports of the pages' markdown module. */
interface MarkdownModule {
  createMarkdown(root: HTMLElement): { update(text: string): void };
}

describe.skipIf(!hasChromium)('a table in an answer', { timeout: 120_000 }, () => {
  let world: ConsoleBrowser;
  let page: Page;
  beforeAll(async () => {
    world = await openConsoleBrowser();
    page = await world.open('#/chat');
  });
  afterAll(async () => {
    expect(world?.pageErrors).toEqual([]);
    await world?.close();
  });

  /** The markup after each of the texts, which grow. */
  const drawing = async (...texts: string[]): Promise<string[]> =>
    page.evaluate(
      ({ module: { createMarkdown }, pieces }) => {
        const root = document.createElement('div');
        const view = createMarkdown(root);
        return pieces.map((text) => {
          view.update(text);
          root.normalize();
          return root.innerHTML.replaceAll(/ class="left"/g, '');
        });
      },
      // As a string, since vitest rewrites dynamic imports in test code.
      { module: await page.evaluateHandle<MarkdownModule>("import('/shared/markdown.js')"), pieces: texts },
    );
  const table = (head: string, body: string): string =>
    `<div class="table" tabindex="0" role="region" aria-label="Table"><table><thead>${head}</thead><tbody>${body}</tbody></table></div>`;

  test('has titles and rows', async () => {
    expect(await drawing('| a | b |\n| --- | --- |\n| 1 | `x` |\n')).toEqual([
      table('<tr><th>a</th><th>b</th></tr>', '<tr><td>1</td><td><code>x</code></td></tr>'),
    ]);
  });

  test('aligns columns as its dashes say', async () => {
    const [markup] = await drawing('| a | b |\n| :-: | --: |\n');
    expect(markup).toBe(table('<tr><th class="center">a</th><th class="right">b</th></tr>', ''));
  });

  test('fills missing cells and leaves out surplus ones', async () => {
    const [markup] = await drawing('|a|b|\n|-|-|\n|1|\n|1|2|3|\n');
    expect(markup).toContain('<tr><td>1</td><td></td></tr><tr><td>1</td><td>2</td></tr>');
  });

  test('keeps escaped pipes in a cell', async () => {
    expect((await drawing(String.raw`| a |` + '\n| - |\n' + String.raw`| x \| y |` + '\n'))[0]).toContain(
      '<td>x | y</td>',
    );
  });

  test('follows the line before it and ends at an empty one', async () => {
    const [markup] = await drawing('Before\n| a |\n| - |\n| 1 |\n\n| after |\n');
    expect(markup).toBe(
      `<p>Before</p>${table('<tr><th>a</th></tr>', '<tr><td>1</td></tr>')}<p>| after |</p>`,
    );
  });

  test('grows row by row without its dashes in between', async () => {
    expect(
      await drawing(
        '| a |',
        '| a |\n| -',
        '| a |\n| -- |\n',
        '| a |\n| -- |\n| on',
        '| a |\n| -- |\n| one |\n',
      ),
    ).toEqual([
      '<p>| a |</p>',
      '<p>| a |</p>',
      table('<tr><th>a</th></tr>', ''),
      table('<tr><th>a</th></tr>', '<tr><td>on</td></tr>'),
      table('<tr><th>a</th></tr>', '<tr><td>one</td></tr>'),
    ]);
  });

  test.each([
    ['without dashes', '| a |\n| b |\n', '<p>| a |<br>| b |</p>'],
    ['with other columns in its dashes', '| a |\n| - | - |\n', '<p>| a |<br>| - | - |</p>'],
    ['in a block of code', '```\n| a |\n| - |\n```\n', '<pre tabindex="0"><code>| a |\n| - |</code></pre>'],
  ])('is none %s', async (_, text, markup) => {
    expect(await drawing(text)).toEqual([markup]);
  });

  test.each([390, 1280])('scrolls within its box in a window of %i pixels', async (width) => {
    const cells = Array.from({ length: 20 }, (_, index) => `column-${index}-of-many`);
    const row = (texts: readonly string[]): string => `| ${texts.join(' | ')} |\n`;
    world.gateway.answer(() => says(`${row(cells)}${row(cells.map(() => '---'))}${row(cells)}`));
    await page.setViewportSize({ width, height: 800 });
    await page.goto(`${world.consoleServer.url}/#/chat`);
    await page.getByRole('textbox', { name: 'Message' }).fill(`a table at ${width}`);
    await page.keyboard.press('Enter');
    const box = page.locator('.message.assistant .table').last();
    await box.locator('tbody td').first().waitFor();
    expect(await box.evaluate(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)).toBe(true);
    expect(
      await page.evaluate(() =>
        [...document.querySelectorAll('body, main, .log')].every(
          ({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth + 1,
        ),
      ),
    ).toBe(true);
  });
});
