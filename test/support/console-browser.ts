// A console in a real Chromium, for an agent with a scripted model.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { startAgent, type AgentOptions, type TestAgent } from './agent.ts';
import { launchChromium } from './chromium.ts';
import { startConsole, type TestConsole } from './console.ts';
import { testDatabase } from './databases.ts';
import { scriptedGateway, type ScriptedGateway } from './scripted-gateway.ts';

export interface ConsoleBrowser {
  gateway: ScriptedGateway;
  agent: TestAgent;
  consoleServer: TestConsole;
  browser: Browser;
  /** Errors of the pages, and requests to other origins. */
  pageErrors: string[];
  /** A page of a new browser profile, logged in with a code of its own. */
  open(hash?: string, viewport?: { width: number; height: number }): Promise<Page>;
  close(): Promise<void>;
}

export async function openConsoleBrowser(options: Partial<AgentOptions> = {}): Promise<ConsoleBrowser> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-console-'));
  const gateway = await scriptedGateway();
  const database = await testDatabase();
  const agent = await startAgent({
    gatewayUrl: gateway.url,
    model: 'local/guide',
    dataDir: folder,
    database: database.database,
    ...options,
    settings: { drainMs: 0, ...options.settings },
  });
  const consoleServer = await startConsole(agent);
  const browser = await launchChromium();
  const pageErrors: string[] = [];
  return {
    gateway,
    agent,
    consoleServer,
    browser,
    pageErrors,
    async open(hash = '', viewport = { width: 1180, height: 780 }) {
      const page = await openConsolePage(await browser.newContext({ viewport }), consoleServer, pageErrors);
      if (hash !== '') await page.goto(`${consoleServer.url}/${hash}`);
      return page;
    },
    async close() {
      await browser.close();
      await consoleServer.close();
      await agent.close();
      await database.close();
      await gateway.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Opens a one-time address in the browser profile and waits for the console's navigation. */
export async function openConsolePage(
  context: BrowserContext,
  consoleServer: TestConsole,
  pageErrors: string[] = [],
): Promise<Page> {
  const page = await context.newPage();
  watchConsolePage(page, consoleServer, pageErrors);
  await page.goto(consoleServer.console.loginUrl());
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Sessions' }).waitFor();
  return page;
}

/** Adds the errors of a page and its requests to other origins to `pageErrors`. */
export function watchConsolePage(page: Page, consoleServer: TestConsole, pageErrors: string[]): void {
  page.setDefaultTimeout(60_000);
  page.on('pageerror', (error) => pageErrors.push(String(error)));
  page.on('console', (message) => {
    // The page itself shows a refused call; the browser logs it too.
    if (message.type() === 'error' && !message.text().includes('Failed to load resource'))
      pageErrors.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(consoleServer.url)) pageErrors.push(`requested ${request.url()}`);
  });
}
