// Makes the pictures of the guides in docs/pictures from a running local edition, in light and dark
// colors. `npm run docs:pictures` runs it after a change of a page; it needs Chromium.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createAgentClient } from '@townhall/agent';
import { createGatewayClient } from '@townhall/gateway';
import type { Page } from 'playwright-core';
import { townhall } from '../cli/townhall.ts';
import { hasChromium, launchChromium } from '../support/chromium.ts';

const target = join(import.meta.dirname, '../../docs/pictures');
const viewport = { width: 1160, height: 725 };
/** Shows the whole login page, front page or conversation. */
const tallViewport = { width: 1160, height: 860 };
const password = 'a long password of the pictures';
// Text stays sharp at this quality, and a picture is below 60 kB.
const webpQuality = 0.86;

interface Edition {
  gatewayUrl: string;
  agentUrl: string;
  /** The address that opens the console signed in. */
  consoleLink: string;
  folder: string;
}

if (!hasChromium) process.exit(1);
const folder = await mkdtemp(join(tmpdir(), 'townhall-pictures-'));
const run = townhall(['start'], {
  cwd: folder,
  env: {
    HOST: '127.0.0.1',
    PORT: '0',
    AGENT_PORT: '0',
    CONSOLE_PORT: '0',
    ADMIN_ID: 'admin',
    ADMIN_PASSWORD: password,
    SMTP_URL: 'smtp://127.0.0.1:9',
    MAIL_FROM: 'login@shop.example',
    GITHUB_CLIENT_ID: 'pictures',
    GITHUB_CLIENT_SECRET: 'pictures',
    GOOGLE_CLIENT_ID: 'pictures',
    GOOGLE_CLIENT_SECRET: 'pictures',
  },
});
const browser = await launchChromium();
try {
  const [, consoleLink = ''] = await run.waitFor(/(http\S+\/open\?code=\S+)/);
  const [, gatewayUrl = ''] = await run.waitFor(/gateway +(http\S+)/);
  const [, agentUrl = ''] = await run.waitFor(/agent +(http\S+)/);
  const edition = { gatewayUrl, agentUrl, consoleLink, folder };
  const redirectUri = await createShop(edition);
  const sessionId = await talkToAgent(edition);
  await takeGatewayPictures(edition, redirectUri);
  await takeConsolePictures(edition, sessionId);
} finally {
  await browser.close();
  run.process.kill('SIGTERM');
  await run.ended;
  await rm(folder, { recursive: true, force: true });
}

/** Creates a Bureau whose login page the pictures show; returns its redirect URI. */
async function createShop({ gatewayUrl }: Edition): Promise<string> {
  const guest = createGatewayClient({ baseUrl: gatewayUrl });
  const { session_token: token } = await guest.admin.login({ admin_id: 'admin', password });
  const admin = createGatewayClient({ baseUrl: gatewayUrl, token });
  const redirectUri = 'https://shop.example/';
  await admin.bureaus.createBureau({
    bureau_id: 'shop',
    name: 'Harbour Books',
    server_url: 'https://shop.example',
    redirect_uris: [redirectUri],
    color: '#0b6e4f',
  });
  return redirectUri;
}

async function talkToAgent({ agentUrl, folder: dataFolder }: Edition): Promise<string> {
  const token = (await readFile(join(dataFolder, 'data/agent/agent.token'), 'utf8')).trim();
  const agent = createAgentClient({ baseUrl: agentUrl, token });
  const conversations = [
    { title: 'Budgets', text: 'How do I limit what a key can spend?' },
    { title: 'Providers', text: 'How do I add a model provider?' },
    { title: 'Streams', text: 'How do I stream an answer?' },
  ];
  let sessionId = '';
  for (const { title, text } of conversations) {
    const { id } = await agent.sessions.create({ title });
    await agent.sessions.prompt({ sessionId: id, text }, { headers: { prefer: 'wait=30' } });
    sessionId = id;
  }
  return sessionId;
}

async function takeGatewayPictures({ gatewayUrl }: Edition, redirectUri: string): Promise<void> {
  const login = new URLSearchParams({
    client_id: 'shop',
    redirect_uri: redirectUri,
    code_challenge: 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM',
    state: 'picture',
  });
  for (const scheme of ['light', 'dark'] as const) {
    const page = await openPage(scheme);
    await page.setViewportSize(tallViewport);
    await page.goto(`${gatewayUrl}/login?${login}`);
    await page.getByRole('button').first().waitFor();
    await takePicture(page, 'login', scheme);
    await page.goto(gatewayUrl);
    await showDefaultPort(page, gatewayUrl);
    await takePicture(page, 'front-page', scheme);
    await page.context().close();
  }
}

async function takeConsolePictures({ consoleLink }: Edition, sessionId: string): Promise<void> {
  const page = await openPage('light');
  await page.goto(consoleLink);
  const { origin } = new URL(page.url());
  for (const scheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize(tallViewport);
    await page.goto(`${origin}/#/sessions/${sessionId}`);
    await page.locator('.message.assistant').first().waitFor();
    await takePicture(page, 'console', scheme);
    await page.setViewportSize(viewport);
    await page.goto(`${origin}/#/sessions`);
    await page.getByText('Providers').first().waitFor();
    await takePicture(page, 'console-sessions', scheme);
  }
}

async function openPage(colorScheme: 'light' | 'dark'): Promise<Page> {
  const context = await browser.newContext({ viewport, colorScheme, reducedMotion: 'reduce' });
  return context.newPage();
}

/** Shows the default port, which readers have, instead of the free port of this run. */
async function showDefaultPort(page: Page, gatewayUrl: string): Promise<void> {
  await page.evaluate((address) => {
    for (const element of document.querySelectorAll('code, pre, dd, p, a'))
      if (element.childElementCount === 0)
        element.textContent = (element.textContent ?? '').replaceAll(address, 'http://127.0.0.1:43127');
  }, gatewayUrl);
}

async function takePicture(page: Page, name: string, scheme: 'light' | 'dark'): Promise<void> {
  await page.evaluate(() => document.fonts.ready);
  const webp = await toWebp(await page.screenshot({ animations: 'disabled' }));
  await writeFile(join(target, `${name}${scheme === 'dark' ? '-dark' : ''}.webp`), webp);
  console.log(`${name} ${scheme}: ${webp.byteLength} bytes`);
}

/** Chromium writes WebP from a canvas. */
async function toWebp(png: Buffer): Promise<Buffer> {
  const page = await browser.newPage();
  const address = await page.evaluate(
    async ({ source, quality }) => {
      const image = new Image();
      image.src = source;
      await image.decode();
      const canvas = document.createElement('canvas');
      [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
      canvas.getContext('2d')?.drawImage(image, 0, 0);
      return canvas.toDataURL('image/webp', quality);
    },
    { source: `data:image/png;base64,${png.toString('base64')}`, quality: webpQuality },
  );
  await page.close();
  return Buffer.from(address.slice(address.indexOf(',') + 1), 'base64');
}
