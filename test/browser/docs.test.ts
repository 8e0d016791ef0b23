// Builds the reference portal and uses it in a real Chromium that reaches only this machine. The
// browser part is skipped with a warning where Chromium is absent.

import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { findExternalAssets, sealPage } from '../../scripts/docs/seal.ts';
import { type Document, operationsOf } from '../../scripts/generate/document.ts';
import { hasChromium, launchChromium, openLocalPage, type LocalPage } from '../support/chromium.ts';
import { listen } from '../support/local-server.ts';

const root = path.join(import.meta.dirname, '../..');
const folder = mkdtempSync(path.join(tmpdir(), 'townhall-docs-'));
const names = ['gateway', 'agent', 'agent-classic'];
/** All pages, by their paths in the portal. */
const pages = () =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.html'))
    .sort();
/**
 * Our own pages: guides, error codes, examples and the first page. The rest is made by Redoc;
 * 404.html works at `/docs/` only.
 */
const ownPages = () => pages().filter((name) => name !== '404.html' && !names.includes(name.slice(0, -5)));
let server: Server;
let origin = '';

beforeAll(async () => {
  await promisify(execFile)(process.execPath, [path.join(root, 'scripts/docs.ts'), '--output', folder], {
    timeout: 500_000,
  });
  server = servePortal();
  origin = (await listen(server)).url;
}, 520_000);

afterAll(() => {
  server?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** A server of the built files. */
function servePortal(): Server {
  return createServer((request, response) => {
    const file = path.join(
      folder,
      path.posix.normalize(decodeURIComponent(new URL(request.url ?? '/', 'http://localhost').pathname)),
    );
    const mediaType = {
      '.html': 'text/html; charset=utf-8',
      '.css': 'text/css',
      '.js': 'text/javascript',
      '.webp': 'image/webp',
    }[path.extname(file)];
    const isServable = existsSync(file) && mediaType !== undefined;
    response.writeHead(isServable ? 200 : 404, { 'content-type': mediaType ?? 'text/plain' });
    response.end(isServable ? readFileSync(file) : '');
  });
}

describe('a page of the portal', () => {
  test('references no asset of another host', () => {
    expect(pages().length).toBeGreaterThan(200);
    for (const page of pages())
      expect(findExternalAssets(readFileSync(path.join(folder, page), 'utf8')), page).toEqual([]);
  });

  test('carries a content security policy that allows nothing else', () => {
    for (const page of pages()) {
      const html = readFileSync(path.join(folder, page), 'utf8');
      expect(html, page).toMatch(
        /<head><meta http-equiv="Content-Security-Policy" content="default-src 'none'/,
      );
    }
  });

  test('is next to the document that it shows', () => {
    for (const name of names) {
      expect(readFileSync(path.join(folder, `${name}.json`), 'utf8')).toBe(
        readFileSync(path.join(root, 'src/contract', name, 'bundle.json'), 'utf8'),
      );
    }
  });

  test('is listed in llms.txt as Markdown if it is a guide', () => {
    const list = readFileSync(path.join(folder, 'llms.txt'), 'utf8');
    const guides = pages().filter((name) => name.startsWith('guides/') && !name.endsWith('error-codes.html'));
    expect(guides.length).toBeGreaterThan(20);
    for (const name of guides) {
      const markdown = name.replace(/\.html$/, '.md');
      expect(list).toContain(`](${markdown})`);
      expect(readFileSync(path.join(folder, markdown), 'utf8')).toMatch(/^# /);
    }
  });

  test('uses only absolute paths if it is the page for missing addresses', () => {
    const html = readFileSync(path.join(folder, '404.html'), 'utf8');
    const targets = Array.from(
      html.matchAll(/\s(?:href|src|data-root)="([^"#][^"]*)"/g),
      (match) => match[1],
    );
    expect(targets.length).toBeGreaterThan(20);
    expect(targets.filter((target) => !/^(?:\/docs\/|data:)/.test(target ?? ''))).toEqual([]);
  });

  test('is refused when it loads from another host', () => {
    const leakingPages = [
      '<script src="https://a.test/x.js">',
      '<img alt="" src=http://a.test/x.png>',
      '<link rel="stylesheet" href="//a.test/x.css">',
      '@import "https://a.test/x.css"',
      'url(https://a.test/f.woff2)',
      'url(//a.test/f.woff2)',
      '@import "//a.test/s.css"',
      'src:e?`https://a.test/l.svg`:``',
    ];
    for (const html of leakingPages) expect(findExternalAssets(html), html).toHaveLength(1);
    expect(findExternalAssets('<a href="https://a.test/">a link is followed by a person alone</a>')).toEqual(
      [],
    );
  });

  test('is refused when Redoc’s page changes or telemetry is on', () => {
    const page =
      '<head></head><body>`https://cdn.redoc.ly/redoc/logo-mini.svg` API docs by {"disableTelemetry":true}';
    const seal = (html: string) => sealPage(html, { header: '<header></header>', style: 'a { color: red }' });
    expect(seal(page)).toContain('API docs by Redoc');
    expect(seal(page)).toContain('<style>a { color: red }</style></head><body><header></header>');
    expect(() => seal(page.replace('logo-mini', 'logo'))).toThrow(/the logo was not found/);
    expect(() => seal(page.replace('true', 'false'))).toThrow(/telemetry is not off/);
  });
});

describe.skipIf(!hasChromium)('the portal in Chromium', { timeout: 120_000 }, () => {
  let browser: Browser;
  let page: Page;
  let observations: Pick<LocalPage, 'outside' | 'complaints'>;
  beforeAll(async () => {
    browser = await launchChromium();
  });
  afterAll(() => browser?.close());
  beforeEach(async () => {
    ({ page, ...observations } = await openLocalPage(browser));
  });
  afterEach(async () => {
    await page.close();
    expect(observations).toEqual({ outside: [], complaints: [] });
  });

  describe('the reference', () => {
    test('links every document from its first page', async () => {
      await page.goto(`${origin}/index.html`);
      expect(await page.locator('h1').innerText()).toBe('Townhall');
      expect(
        await page
          .locator('.documents h3 a')
          .evaluateAll((links) => links.map((link) => link.getAttribute('href'))),
      ).toEqual(names.map((name) => `${name}.html`));
      await page.locator('.documents h3 a').first().click();
      await page.locator('[data-testid="color-mode-switcher"]').first().waitFor();
      expect(page.url()).toBe(`${origin}/gateway.html`);
    });

    test.each(names)(
      'shows every operation and service of %s without a request to another host',
      async (name) => {
        const operations = operationsOf(
          JSON.parse(readFileSync(path.join(folder, `${name}.json`), 'utf8')) as Document,
        );
        await page.goto(`${origin}/${name}.html`);
        // The overview of each tag lists its operations with links.
        await showOverview(page);
        // The page source holds every operation; a long list shows only its first ones at once.
        const source = await page.content();
        expect(operations.filter(({ id }) => !source.includes(id)).map(({ id }) => id)).toEqual([]);
        // Redoc renders operations as the page scrolls.
        const serviceOf = (id: string) => id.split('.')[0] as string;
        const missingServices = new Set(operations.map(({ id }) => serviceOf(id)));
        const scrollOn = async () => {
          const positionBefore = await readScrollPosition(page);
          for (let step = 0; step < 5; step += 1) {
            const text = (await page.innerText('body')).replaceAll(/\s+/g, ' ');
            for (const { id, method, path: template } of operations)
              if (text.includes(`${method.toUpperCase()} ${template} `))
                missingServices.delete(serviceOf(id));
            await scrollOneStep(page);
          }
          // At the end, start again: Redoc may have removed an operation before it was read.
          if ((await readScrollPosition(page)) === positionBefore) await page.evaluate(() => scrollTo(0, 0));
          return [...missingServices];
        };
        await expect.poll(scrollOn, { timeout: 200_000 }).toEqual([]);
        // Leave the page: telemetry would be sent at this moment.
        await page.goto('about:blank');
      },
      240_000,
    );

    test('finds an operation by a word', async () => {
      await page.goto(`${origin}/gateway.html`);
      await showOverview(page);
      const completions = page.getByText('Create a chat completion');
      const countBefore = await completions.count();
      await page.keyboard.press('Control+k');
      await page.keyboard.type('completion');
      await expect.poll(() => completions.count()).toBeGreaterThan(countBefore);
    });

    test('shows the same samples as the page of an operation', async () => {
      await page.goto(`${origin}/gateway.html#/ai/ai.generatetext`);
      await page.getByRole('button', { name: 'curl', exact: true }).first().click();
      expect(
        (await page.getByRole('menu').filter({ hasText: 'Python' }).innerText()).split(/\s*\n\s*/),
      ).toEqual(['curl', 'TypeScript', 'Python']);
    });

    test('links back to the first page', async () => {
      await page.goto(`${origin}/gateway.html`);
      await page.getByRole('banner').getByRole('link', { name: 'Townhall' }).click();
      await expect.poll(() => page.url()).toBe(`${origin}/index.html`);
    });
  });

  describe('the search', () => {
    test('finds guides and operations by keyboard alone', async () => {
      await page.goto(`${origin}/guides/errors.html`);
      await page.keyboard.press('/');
      await page.keyboard.type('OpenAI-compatible provider');
      await page.locator('#results li[aria-selected="true"]').waitFor();
      await page.keyboard.press('Enter');
      await page.waitForURL(/guides\/model-providers\.html#/);
      await page.keyboard.press('Control+k');
      await page.keyboard.type('createChatCompletion');
      await page
        .locator('#results li[aria-selected="true"]', { hasText: 'Create a chat completion' })
        .waitFor();
      await page.keyboard.press('Enter');
      await page.waitForURL(/operations\/gateway\/ai\.createChatCompletion\.html$/);
      expect(await page.locator('p.endpoint').innerText()).toContain('/v1/ai/chat/completions');
    });

    test.each(['insufficient_credits', 'model_not_found', 'idempotency_key_reused'])(
      'leads from the error code %s to its explanation',
      async (code) => {
        await page.goto(`${origin}/index.html`);
        await page.keyboard.press('/');
        await page.keyboard.type(code);
        await page.locator('#results li[aria-selected="true"]').waitFor();
        await page.keyboard.press('Enter');
        await page.waitForURL(`${origin}/guides/error-codes.html#${code}`);
        expect(await page.locator(`h3#${code}`).isVisible()).toBe(true);
      },
    );

    test.each([
      ['streaming', 'guides/first-five-minutes.html#stream-an-answer'],
      ['ollama', 'guides/providers-by-example.html#ollama'],
      ['python', 'guides/clients.html#python'],
      ['kubernetes', 'guides/kubernetes.html#run-it-on-kubernetes'],
      ['budget', 'guides/key-with-a-budget.html#a-key-with-a-budget'],
      ['cors', 'guides/login-and-tokens.html#call-the-gateway-from-pages-of-other-origins-cors'],
      ['react', 'guides/web-login-in-react.html#a-web-login-in-react'],
    ])('names the guide first for "%s"', async (word, address) => {
      await page.goto(`${origin}/operations/index.html`);
      await page.keyboard.press('/');
      await page.keyboard.type(word);
      const first = page.locator('#results li[aria-selected="true"] a');
      await expect.poll(() => first.getAttribute('href')).toBe(`../${address}`);
    });

    test('offers the list of operations without a match', async () => {
      await page.goto(`${origin}/guides/errors.html`);
      await page.locator('#search').fill('xyzzyplugh');
      await page.getByText('No page has “xyzzyplugh”.').waitFor();
      await page.locator('#results').getByRole('link', { name: 'All operations' }).click();
      await page.waitForURL(`${origin}/operations/index.html`);
      expect(await page.locator('h1').innerText()).toBe('Operations');
    });

    test('loads its index again after a failure', async () => {
      // The failed request is among the complaints of its page.
      const ownPage = await browser.newPage();
      const pageErrors: string[] = [];
      ownPage.on('pageerror', (error) => pageErrors.push(error.message));
      await ownPage.route('**/search-index.js', (route) => route.abort());
      await ownPage.goto(`${origin}/guides/errors.html`);
      await ownPage.locator('#search').fill('idempotency');
      await ownPage.locator('#results').getByText('The search index cannot be loaded.').waitFor();
      await ownPage.unroute('**/search-index.js');
      await ownPage.locator('#search').fill('idempotency key');
      await ownPage.locator('#results li[aria-selected="true"]').waitFor();
      expect(await ownPage.locator('#results').innerText()).not.toContain('cannot be loaded');
      expect(pageErrors).toEqual([]);
      await ownPage.close();
    });

    test('works on a page that is opened from a disk', async () => {
      const diskPage = await browser.newPage();
      await diskPage.goto(`file://${folder}/guides/error-codes.html`);
      await diskPage.locator('#search').fill('idempotency');
      await diskPage.locator('#results li').first().waitFor();
      expect(await diskPage.locator('#results').innerText()).toMatch(/idempotency/i);
      await diskPage.close();
    });

    test('shows its results within the window of a phone', async () => {
      await page.setViewportSize({ width: 390, height: 800 });
      await page.goto(`${origin}/guides/error-codes.html`);
      await page.locator('#search').fill('idempotency');
      await page.locator('#results li').first().waitFor();
      const { x, width } = (await page.locator('#results').boundingBox()) ?? { x: -1, width: 0 };
      expect([x >= 0, x + width <= 390]).toEqual([true, true]);
    });
  });

  describe('the page of an operation', () => {
    test('lists exactly the error codes of the operation', async () => {
      const bundle = JSON.parse(readFileSync(path.join(folder, 'gateway.json'), 'utf8')) as Document;
      const { operation } = operationsOf(bundle).find(({ id }) => id === 'ai.generateText') ?? {};
      const codes = operation?.['x-error-codes'] ?? [];
      await page.goto(`${origin}/operations/gateway/ai.generateText.html`);
      const entryCodes = await page
        .locator('details.error')
        .evaluateAll((entries) => entries.map((entry) => entry.getAttribute('data-code') ?? ''));
      expect(codes).not.toEqual([]);
      expect(new Set(entryCodes)).toEqual(new Set(codes));
    });

    test('explains an error code with an example and a link', async () => {
      await page.goto(`${origin}/operations/gateway/ai.generateText.html`);
      const entry = page.locator('details.error[data-code="model_not_found"]');
      await entry.locator('summary').click();
      expect(JSON.parse(await entry.locator('pre code').innerText())).toMatchObject({
        error: { code: 'model_not_found', param: 'model' },
      });
      await entry.getByRole('link').click();
      await page.waitForURL(/guides\/error-codes\.html#model_not_found$/);
    });

    test('shows one sample per language', async () => {
      await page.goto(`${origin}/operations/gateway/ai.createChatCompletion.html`);
      const tabs = page.getByRole('tab');
      expect(await tabs.allInnerTexts()).toEqual(['curl', 'TypeScript', 'TypeScript (openai)', 'Python']);
      const panel = page.locator('.samples [role="tabpanel"]:visible');
      expect(await panel.innerText()).toContain('curl http://127.0.0.1:43127/v1/ai/chat/completions');
      await tabs.first().focus();
      await page.keyboard.press('ArrowRight');
      expect(await panel.innerText()).toContain('client.ai.createChatCompletion(');
    });

    test('opens with the language that was chosen before', async () => {
      await page.goto(`${origin}/operations/gateway/ai.createChatCompletion.html`);
      await page.getByRole('tab', { name: 'TypeScript', exact: true }).click();
      await page.goto(`${origin}/operations/agent/sessions.prompt.html`);
      const panel = page.locator('.samples [role="tabpanel"]:visible');
      expect(await panel.innerText()).toContain('client.sessions.prompt(');
    });

    test('copies a sample with the token of the reader', async () => {
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin });
      await page.goto(`${origin}/operations/gateway/ai.generateText.html`);
      await page.getByLabel('Your token').fill("th_usr_mine'");
      await page.locator('.samples .copy:visible').click();
      await page.locator('.samples .copy:visible', { hasText: 'Copied' }).waitFor();
      const clipboardText = await page.evaluate(() => navigator.clipboard.readText());
      expect(clipboardText).toContain('-H "Authorization: Bearer th_usr_mine"');
      await page.getByRole('tab', { name: 'Python' }).click();
      expect(await page.locator('.samples [role="tabpanel"]:visible').innerText()).toContain(
        '"Authorization": "Bearer th_usr_mine"',
      );
      await page.getByLabel('Your token').fill('');
      await page.getByRole('tab', { name: 'TypeScript' }).click();
      expect(await page.locator('.samples [role="tabpanel"]:visible').innerText()).toContain(
        "process.env['TOWNHALL_TOKEN']",
      );
    });

    test('leads to its guide, its neighbors and the reference', async () => {
      await page.goto(`${origin}/operations/gateway/payments.createCheckout.html`);
      await page.locator('.details').getByRole('link', { name: 'Payments', exact: true }).click();
      await page.waitForURL(/guides\/payments\.html$/);
      await page.locator('.operations a[href="../operations/gateway/payments.createCheckout.html"]').click();
      await page.waitForURL(/operations\/gateway\/payments\.createCheckout\.html$/);
      await page.getByRole('link', { name: 'payments.getPayment' }).click();
      await page.waitForURL(/operations\/gateway\/payments\.getPayment\.html$/);
      await page.getByRole('link', { name: 'in the reference' }).click();
      await page.waitForURL(/gateway\.html#\//);
      expect(page.url()).toMatch(/#\/payments\/payments\.getpayment$/);
    });
  });

  describe('a page of our own', () => {
    test('has a title, the style and the navigation', async () => {
      expect(ownPages()).toEqual(
        expect.arrayContaining([
          'start.html',
          'guides/agent.html',
          'guides/error-codes.html',
          'examples/first-five-minutes.ts.html',
        ]),
      );
      for (const name of ownPages()) {
        await page.goto(`${origin}/${name}`);
        expect((await page.locator('main h1').innerText()).length, name).toBeGreaterThan(2);
        // The style is loaded: without it the bar would not stick.
        expect(
          await page.locator('header').evaluate((header) => getComputedStyle(header).position),
          name,
        ).toBe('sticky');
        expect(await page.locator('#navigation a').count(), name).toBeGreaterThan(8);
      }
    }, 240_000);

    test('shares the chosen colors with all pages and the reference', async () => {
      const context = await browser.newContext({ colorScheme: 'light' });
      const page = await context.newPage();
      const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      await page.goto(`${origin}/guides/console.html`);
      const lightGround = await ground();
      await page.getByRole('button', { name: 'Dark colors' }).click();
      const darkGround = await ground();
      expect(darkGround).not.toBe(lightGround);
      await page.goto(`${origin}/index.html`);
      expect(await ground()).toBe(darkGround);
      await page.goto(`${origin}/agent.html`);
      await page.locator('[data-testid="color-mode-switcher"]').first().waitFor();
      expect(await ground()).toBe(darkGround);
      await context.close();
    });

    test('shows each picture in the colors of the page', async () => {
      for (const colorScheme of ['light', 'dark'] as const) {
        const context = await browser.newContext({ colorScheme });
        const page = await context.newPage();
        await page.goto(`${origin}/guides/web-login-in-react.html`);
        const picture = page.locator('.picture img:visible');
        expect(await picture.count()).toBe(1);
        await picture.scrollIntoViewIfNeeded();
        await expect.poll(() => picture.evaluate((image: HTMLImageElement) => image.naturalWidth)).toBe(1160);
        expect(await picture.getAttribute('src')).toBe(
          `../pictures/login${colorScheme === 'dark' ? '-dark' : ''}.webp`,
        );
        expect(((await picture.getAttribute('alt')) ?? '').length).toBeGreaterThan(10);
        await context.close();
      }
    });

    test('marks the visible section in its contents', async () => {
      await page.setViewportSize({ width: 1400, height: 800 });
      await page.goto(`${origin}/guides/agent.html#sandbox`);
      const current = page.locator('.contents a[aria-current]');
      await expect.poll(() => current.allInnerTexts()).toEqual(['Sandbox']);
    });

    test('outlines every element that the keyboard reaches', async () => {
      await page.goto(`${origin}/operations/gateway/ai.generateText.html`);
      const outlines = new Map<string, string>();
      for (let step = 0; step < 60; step += 1) {
        await page.keyboard.press('Tab');
        const [name = '', outline = ''] = await page.evaluate(() => {
          const { activeElement: element } = document;
          if (element === null) return [];
          const style = getComputedStyle(element);
          return [
            `${element.tagName} ${element.id} ${element.textContent.slice(0, 20)}`,
            `${style.outlineStyle} ${style.outlineWidth}`,
          ];
        });
        outlines.set(name, outline);
      }
      expect(outlines.size).toBeGreaterThan(30);
      expect([...outlines].filter(([, outline]) => outline !== 'solid 3px')).toEqual([]);
    });

    test('fits a phone', async () => {
      await page.setViewportSize({ width: 360, height: 700 });
      for (const name of [...ownPages(), ...names.map((name) => `${name}.html`)]) {
        await page.goto(`${origin}/${name}`);
        expect(await page.evaluate(() => document.documentElement.scrollWidth), name).toBeLessThanOrEqual(
          360,
        );
      }
    }, 240_000);

    test('has a button for the list of pages on a phone', async () => {
      await page.setViewportSize({ width: 360, height: 700 });
      await page.goto(`${origin}/guides/agent.html`);
      expect(await page.locator('#navigation').isVisible()).toBe(false);
      await page.locator('#menu').click();
      expect(await page.locator('#navigation').isVisible()).toBe(true);
    });
  });

  // The check after each test relies on it.
  test('names the requests of a page to other hosts', async () => {
    const leakingPage = await openLocalPage(browser);
    await leakingPage.page.setContent('<img src="http://elsewhere.test/logo.svg">', { waitUntil: 'load' });
    await leakingPage.page.close();
    expect(leakingPage.outside).toEqual(['http://elsewhere.test/logo.svg']);
  });
});

/** A step is shorter than the window, so that every operation is in view once. */
async function scrollOneStep(page: Page): Promise<void> {
  await page.mouse.move(700, 400);
  await page.mouse.wheel(0, 600);
  await page.evaluate(
    () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))),
  );
}

function readScrollPosition(page: Page): Promise<number> {
  return page.evaluate(() => scrollY);
}

/**
 * Scrolls past the introduction, which may be longer than the screen: Redoc renders the rest on
 * scroll.
 */
async function showOverview(page: Page): Promise<void> {
  await page.locator('[data-testid="color-mode-switcher"]').first().waitFor();
  await page.mouse.move(700, 400);
  const countOverviews = async () => {
    await page.mouse.wheel(0, 300);
    return page.getByText('Operations', { exact: true }).count();
  };
  await expect.poll(countOverviews).toBeGreaterThan(0);
}
