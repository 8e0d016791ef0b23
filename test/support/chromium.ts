// Chromium for tests of pages. A suite skips itself if Chromium is absent; CHROMIUM_PATH names another
// executable.
import { existsSync } from 'node:fs';
import { type Browser, chromium, type Page } from 'playwright-core';

const executablePath = process.env['CHROMIUM_PATH'] ?? '/usr/bin/chromium';

/** If false, the suite must be skipped; importing this module has printed a warning. */
export const hasChromium = existsSync(executablePath);
if (!hasChromium)
  console.warn(`SKIPPED: there is no Chromium at ${executablePath}; install it or set CHROMIUM_PATH.`);

/** Launches Chromium without the requests that it sends on its own. The caller closes it. */
export function launchChromium(switches: readonly string[] = []): Promise<Browser> {
  return chromium.launch({
    executablePath,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      ...switches,
    ],
  });
}

export interface LocalPage {
  page: Page;
  /** The requested addresses outside this machine; the requests are aborted. */
  outside: string[];
  /** Errors of the page and of the browser about it, such as policy violations. */
  complaints: string[];
}

/** A page that reaches only this machine. */
export async function openLocalPage(browser: Browser): Promise<LocalPage> {
  const page = await browser.newPage();
  const outsideRequests: string[] = [];
  const complaints: string[] = [];
  await page.context().route('**/*', (route) => {
    const { hostname, href } = new URL(route.request().url());
    if (hostname === '127.0.0.1') return route.continue();
    outsideRequests.push(href);
    return route.abort();
  });
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    // Browsers request /favicon.ico by themselves.
    if (message.type() === 'error' && !message.location().url.endsWith('/favicon.ico'))
      complaints.push(message.text());
  });
  return { page, outside: outsideRequests, complaints };
}
