// What `/` answers: a page for browsers, JSON for programs, and the newline after JSON.
import { createHash } from 'node:crypto';
import { afterEach, describe, expect, test } from 'vitest';
import type { FrontPage } from '../../../src/kernel/http/pages/front-page.ts';
import { startWorld, type World } from '../world.ts';
import { sendBytes } from '../../support/raw-http.ts';

const page: FrontPage = {
  name: 'Townhall <gateway>',
  summary: 'A summary.',
  version: '1.2.3',
  links: [{ rel: 'docs', title: 'Documentation', href: '/docs/', note: 'Guides' }],
  token: { text: 'Ask your administrator.', command: 'curl "http://x" <&1' },
};
const browserAccept = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8';

let world: World | undefined;
afterEach(async () => {
  await world?.close();
  world = undefined;
});

async function serve(server: object = { frontPage: () => page }): Promise<string> {
  world = await startWorld({ server });
  return world.url;
}

describe('GET /', () => {
  test('answers a browser with a page that names version and links', async () => {
    const response = await fetch(await serve(), { headers: { accept: browserAccept } });
    const html = await response.text();
    expect(response.headers.get('content-type')).toBe('text/html; charset=utf-8');
    expect(html).toContain('version 1.2.3');
    expect(html).toContain('<a href="/docs/">');
  });

  test('escapes every text of the page', async () => {
    const html = await (await fetch(await serve(), { headers: { accept: 'text/html' } })).text();
    expect(html).toContain('<h1>Townhall &#60;gateway&#62;</h1>');
    expect(html).toContain('curl &#34;http://x&#34; &#60;&#38;1');
  });

  test("allows only the page's own style", async () => {
    const response = await fetch(await serve(), { headers: { accept: 'text/html' } });
    const [, style = ''] = /<style>([\s\S]*)<\/style>/.exec(await response.text()) ?? [];
    const hash = createHash('sha256').update(style).digest('base64');
    const policy = response.headers.get('content-security-policy') ?? '';
    expect(policy.split('; ')).toEqual([
      "default-src 'none'",
      `style-src 'sha256-${hash}'`,
      'img-src data:',
      "form-action 'none'",
      "frame-ancestors 'none'",
      "base-uri 'none'",
    ]);
  });

  test.each(['*/*', 'application/json', 'text/html;q=0', 'image/png'])(
    'answers %s with JSON',
    async (accept) => {
      const response = await fetch(await serve(), { headers: { accept } });
      expect(await response.json()).toEqual({
        name: 'Townhall <gateway>',
        version: '1.2.3',
        links: { docs: '/docs/' },
      });
      expect(response.headers.get('vary')).toBe('Accept');
    },
  );

  test('names both reasons in Vary where CORS is on', async () => {
    const url = await serve({ frontPage: () => page, cors: { origins: ['https://app.example'] } });
    expect((await fetch(url)).headers.get('vary')).toBe('Origin, Accept');
  });

  test('answers HEAD with the length of GET and no body', async () => {
    const url = await serve();
    const [get, head] = [await fetch(url), await fetch(url, { method: 'HEAD' })];
    expect(head.headers.get('content-length')).toBe(get.headers.get('content-length'));
    expect(await head.text()).toBe('');
  });

  test('leaves other methods to the contract', async () => {
    expect((await fetch(await serve(), { method: 'POST' })).status).toBe(404);
  });

  test('is 404 on a server without a front page', async () => {
    expect((await fetch(await serve({}))).status).toBe(404);
  });
});

describe('JSON answers end with one newline', () => {
  test('of an operation, counted in its length', async () => {
    const response = await fetch(`${await serve()}/health`);
    const text = await response.text();
    expect(text).toMatch(/[^\n]\n$/);
    expect(response.headers.get('content-length')).toBe(String(Buffer.byteLength(text)));
  });

  test('of an error', async () => {
    expect(await (await fetch(`${await serve()}/nowhere`)).text()).toMatch(/\}\n$/);
  });

  test('of a request that is not HTTP', async () => {
    await serve();
    expect(await sendBytes(world?.port ?? 0, 'nonsense\r\n\r\n')).toMatch(/\}\n$/);
  });
});
