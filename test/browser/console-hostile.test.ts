// Hostile model output in the console: markup, script addresses, invisible characters and very long
// texts.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hasChromium } from '../support/chromium.ts';
import { openConsoleBrowser, type ConsoleBrowser } from '../support/console-browser.ts';
import { calls, says } from '../support/scripted-gateway.ts';

const megabyte = 1024 * 1024;
const fillText = (piece: string): string =>
  piece.repeat(Math.ceil(megabyte / piece.length)).slice(0, megabyte);

/** Exports of the pages' markdown module. */
interface MarkdownModule {
  createMarkdown(root: HTMLElement): { update(text: string): void };
  renderMarkdown(content: string): HTMLElement;
}

describe.skipIf(!hasChromium)('a hostile answer in the console', { timeout: 120_000 }, () => {
  let world: ConsoleBrowser;
  let page: Page;

  beforeAll(async () => {
    world = await openConsoleBrowser();
    page = await world.open();
  });
  afterAll(async () => {
    await world?.close();
    expect(world?.pageErrors).toEqual([]);
  });

  const send = async (text: string): Promise<void> => {
    await page.goto(`${world.consoleServer.url}/#/chat`);
    await page.getByRole('textbox', { name: 'Message' }).fill(text);
    await page.keyboard.press('Enter');
    await page.locator('.conversation .pill', { hasText: 'idle' }).waitFor();
  };
  const isWithinWindow = () =>
    page.evaluate(() =>
      [...document.querySelectorAll('body, main, .log, .page')].every(
        ({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth + 1,
      ),
    );

  test('is shown as text and never as markup', async () => {
    const markup = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
    world.gateway.answer(() =>
      says(
        `${markup} [a](javascript:alert(1)) [b](data:text/html,x) ` +
          `[c](https://evil.test/"onmouseover="x) **${markup}**`,
      ),
    );
    await send(markup);
    const answer = page.locator('.message.assistant .body');
    expect(await answer.textContent()).toContain(markup);
    expect(await page.locator('.message img, .message script').count()).toBe(0);
    expect(
      await answer
        .locator('a')
        .evaluateAll((links) => links.map((link) => (link as HTMLAnchorElement).protocol)),
    ).toEqual(['https:']);
    expect(await answer.locator('a').getAttribute('title')).toContain('evil.test');
  });

  test('shows characters that reorder or hide text', async () => {
    const disguisedCommand = 'rm -rf / \u202E# sl tsuj\u202C \u{e0041}';
    world.gateway.answer(({ prompt }) =>
      prompt.at(-1)?.role === 'tool'
        ? says(`Denied \u202Ereversed\u202C \`a\u200Bb\``)
        : calls({ name: 'shell_run', input: { command: disguisedCommand } }),
    );
    await page.goto(`${world.consoleServer.url}/#/chat`);
    await page.reload();
    await page.getByRole('textbox', { name: 'Message' }).fill('Title \u202Eelit');
    await page.keyboard.press('Enter');
    const card = page.getByRole('region', { name: 'Approval of shell_run' });
    await card.waitFor();
    expect(await card.locator('pre').textContent()).toContain(
      String.raw`rm -rf / \u{202e}# sl tsuj\u{202c} \u{e0041}`,
    );
    await card.getByRole('button', { name: 'Deny' }).click();
    await page.getByText(String.raw`Denied \u{202e}reversed\u{202c} a\u{200b}b`).waitFor();
    expect(await page.locator('h1').textContent()).toBe(String.raw`Title \u{202e}elit`);
    expect(await page.locator('nav.list').textContent()).not.toContain('\u202E');
  });

  test.each([390, 1280])('wraps an unbroken text in a window of %i pixels', async (width) => {
    const word = 'x'.repeat(3_000);
    await page.setViewportSize({ width, height: 800 });
    world.gateway.answer(() =>
      says(`${word}\n\n\`${word}\`\n\n- ${word}\n\n# ${word}\n\nhttps://a.test/${word.slice(0, 1_500)}`),
    );
    await send(word);
    expect(await isWithinWindow()).toBe(true);
    await page.goto(`${world.consoleServer.url}/#/sessions`);
    await page.locator('tbody tr').first().waitFor();
    expect(await isWithinWindow()).toBe(true);
  });

  test('lets every table column scroll into view at 390 pixels', async () => {
    await page.setViewportSize({ width: 390, height: 800 });
    await page.goto(`${world.consoleServer.url}/#/sessions`);
    const rows = page.locator('.rows');
    await rows.locator('tbody tr').first().waitFor();
    expect(await rows.evaluate(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)).toBe(true);
    await rows.focus();
    await rows.evaluate((element) => element.scrollTo({ left: element.scrollWidth }));
    const lastCell = await rows.locator('tbody td').nth(5).boundingBox();
    expect((lastCell?.x ?? 0) + (lastCell?.width ?? 1_000)).toBeLessThanOrEqual(390);
    expect(await isWithinWindow()).toBe(true);
  });

  // As a string, since vitest rewrites dynamic imports in test code.
  const markdownModule = () => page.evaluateHandle<MarkdownModule>("import('/shared/markdown.js')");
  /** Elements and characters of a megabyte that repeats the piece. */
  const drawMegabyte = async (piece: string): Promise<{ elements: number; characters: number }> =>
    page.evaluate(
      ({ module: { renderMarkdown }, text }) => {
        const root = renderMarkdown(text);
        return { elements: root.querySelectorAll('*').length, characters: root.textContent.length };
      },
      { module: await markdownModule(), text: fillText(piece) },
    );
  const plainPieces = ['word ', 'x', 'a\n', 'a\n\n', 'https://', '\u202E', '😀'];
  const markupPieces = [
    '`',
    '` ',
    '*a*',
    '**',
    '*a ',
    '[',
    '[a](',
    '[a](https://a.test/',
    '\n',
    '- a\n',
    '# a\n',
    '```\n',
    '```\na\n',
    ' ',
    '|',
    '| a | b |\n',
    '| a |\n| - |\n',
    '| a |\n| - |\n| b |\n\n',
  ];
  test.each([...plainPieces, ...markupPieces])(
    'draws a megabyte of %j with a bounded number of elements',
    async (piece) => {
      expect((await drawMegabyte(piece)).elements).toBeLessThan(25_000);
    },
  );

  test.each(plainPieces)('shows at least a quarter of a megabyte of %j', async (piece) => {
    expect((await drawMegabyte(piece)).characters).toBeGreaterThan(megabyte / 4);
  });

  test.each([
    'word ',
    'x',
    '**a** ',
    'a line\n',
    '```\n',
    '- item\n',
    '[a](https://a.test) ',
    '| a | b |\n| --- | ---: |\n| 1 | 2 |\n\n',
    '| a |\n',
  ])('draws many pieces of %j with linear work', async (piece) => {
    const content = fillText(piece).slice(0, 64 * 1024);
    const { addedCount, isSame } = await page.evaluate(
      ({ module: { createMarkdown, renderMarkdown }, text }) => {
        const root = document.createElement('div');
        const observer = new MutationObserver(() => {});
        observer.observe(root, { childList: true, characterData: true, subtree: true });
        const view = createMarkdown(root);
        let count = 0;
        for (let end = 256; end <= text.length; end += 256) {
          view.update(text.slice(0, end));
          for (const { addedNodes } of observer.takeRecords())
            for (const node of addedNodes) count += 1 + (node.textContent?.length ?? 0);
        }
        const wholeMarkup = renderMarkdown(text);
        wholeMarkup.normalize();
        root.normalize();
        return { addedCount: count, isSame: root.innerHTML === wholeMarkup.innerHTML };
      },
      { module: await markdownModule(), text: content },
    );
    expect(isSame).toBe(true);
    // Each character is drawn once for good, and again while its line is unfinished: at most 8
    // KiB per update.
    expect(addedCount).toBeLessThan(content.length * 60);
  });
});
