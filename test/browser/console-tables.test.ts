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
    await world?.close();
    expect(world?.pageErrors).toEqual([]);
  });

  /** Renders the texts in turn, each of which continues the text before. Returns the markup after each. */
  const renderEach = async (...texts: string[]): Promise<string[]> =>
    page.evaluate(
      ({ module: { createMarkdown }, texts }) => {
        const root = document.createElement('div');
        const view = createMarkdown(root);
        return texts.map((text) => {
          view.update(text);
          root.normalize();
          // The default alignment is left out, so that the expected markup is short.
          return root.innerHTML.replaceAll(/ class="left"/g, '');
        });
      },
      // As a string, since vitest rewrites dynamic imports in test code.
      { module: await page.evaluateHandle<MarkdownModule>("import('/shared/markdown.js')"), texts },
    );
  const table = (head: string, body: string): string =>
    '<div class="table" tabindex="0" role="region" aria-label="Table">' +
    `<table><thead>${head}</thead><tbody>${body}</tbody></table></div>`;

  test('has titles and rows', async () => {
    expect(await renderEach('| a | b |\n| --- | --- |\n| 1 | `x` |\n')).toEqual([
      table('<tr><th>a</th><th>b</th></tr>', '<tr><td>1</td><td><code>x</code></td></tr>'),
    ]);
  });

  test('aligns columns by the delimiter row', async () => {
    const [markup] = await renderEach('| a | b |\n| :-: | --: |\n');
    expect(markup).toBe(table('<tr><th class="center">a</th><th class="right">b</th></tr>', ''));
  });

  test('fills missing cells', async () => {
    const [markup] = await renderEach('|a|b|\n|-|-|\n|1|\n');
    expect(markup).toContain('<tbody><tr><td>1</td><td></td></tr></tbody>');
  });

  test('drops surplus cells', async () => {
    const [markup] = await renderEach('|a|b|\n|-|-|\n|1|2|3|\n');
    expect(markup).toContain('<tbody><tr><td>1</td><td>2</td></tr></tbody>');
  });

  test('keeps escaped pipes in a cell', async () => {
    expect((await renderEach(String.raw`| a |` + '\n| - |\n' + String.raw`| x \| y |` + '\n'))[0]).toContain(
      '<td>x | y</td>',
    );
  });

  test('interrupts a paragraph', async () => {
    const [markup] = await renderEach('Before\n| a |\n| - |\n| 1 |\n');
    expect(markup).toBe(`<p>Before</p>${table('<tr><th>a</th></tr>', '<tr><td>1</td></tr>')}`);
  });

  test('ends at an empty line', async () => {
    const [markup] = await renderEach('| a |\n| - |\n| 1 |\n\n| after |\n');
    expect(markup).toBe(`${table('<tr><th>a</th></tr>', '<tr><td>1</td></tr>')}<p>| after |</p>`);
  });

  test('hides an incomplete delimiter row', async () => {
    expect(await renderEach('| a |', '| a |\n| -', '| a |\n| -- |\n')).toEqual([
      '<p>| a |</p>',
      '<p>| a |</p>',
      table('<tr><th>a</th></tr>', ''),
    ]);
  });

  test('shows an incomplete row', async () => {
    expect(await renderEach('| a |\n| -- |\n| on', '| a |\n| -- |\n| one |\n')).toEqual([
      table('<tr><th>a</th></tr>', '<tr><td>on</td></tr>'),
      table('<tr><th>a</th></tr>', '<tr><td>one</td></tr>'),
    ]);
  });

  test.each([
    ['without a delimiter row', '| a |\n| b |\n', '<p>| a |<br>| b |</p>'],
    ['when the delimiter row has more columns', '| a |\n| - | - |\n', '<p>| a |<br>| - | - |</p>'],
    ['in a code block', '```\n| a |\n| - |\n```\n', '<pre tabindex="0"><code>| a |\n| - |</code></pre>'],
  ])('is not rendered %s', async (_, text, markup) => {
    expect(await renderEach(text)).toEqual([markup]);
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
