// Files of the portal: compression, entity tags, the page for a missing address, and what is never
// served.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startWorld, type World } from '../world.ts';

const root = mkdtempSync(join(tmpdir(), 'asset-pages-'));
const directory = join(root, 'portal');
const longPage = `<h1>Long</h1>${'text '.repeat(2_000)}`;
let world: World;

beforeAll(async () => {
  mkdirSync(join(directory, 'guides'), { recursive: true });
  writeFileSync(join(root, 'outside.html'), 'secret');
  writeFileSync(join(directory, 'index.html'), '<h1>Portal</h1>');
  writeFileSync(join(directory, 'long.html'), longPage);
  writeFileSync(join(directory, 'picture.webp'), Buffer.alloc(4_000));
  writeFileSync(join(directory, '404.html'), '<h1>Missing</h1>');
  writeFileSync(join(directory, 'guides/index.html'), '<h1>Guides</h1>');
  writeFileSync(join(directory, '.hidden'), 'secret');
  writeFileSync(join(directory, 'changing.html'), 'first');
  world = await startWorld({ server: { pages: [{ prefix: '/docs', directory }] } });
});
afterAll(async () => {
  await world.close();
  rmSync(root, { recursive: true });
});

interface ReceivedPage {
  status: number | undefined;
  headers: Record<string, string | string[] | undefined>;
  body: Buffer;
}

// fetch would decompress the body and add headers of its own.
function get(path: string, headers: Record<string, string> = {}): Promise<ReceivedPage> {
  return new Promise((resolve, reject) => {
    // The path stays as it is; a URL would resolve its dots.
    request({ host: '127.0.0.1', port: world.port, path, headers }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () =>
        resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(chunks) }),
      );
    })
      .on('error', reject)
      .end();
  });
}

describe('a page', () => {
  test('is compressed for a client that accepts gzip', async () => {
    const { headers, body } = await get('/docs/long.html', { 'accept-encoding': 'br;q=0, gzip;q=0.8' });
    expect(headers).toMatchObject({ 'content-encoding': 'gzip', vary: 'Accept-Encoding' });
    expect(headers['content-length']).toBe(String(body.length));
    expect(body.length).toBeLessThan(longPage.length / 10);
    expect(gunzipSync(body).toString()).toBe(longPage);
  });

  test('is compressed by Brotli for a client that accepts both', async () => {
    const { headers, body } = await get('/docs/long.html', { 'accept-encoding': 'gzip, deflate, br' });
    expect(headers).toMatchObject({ 'content-encoding': 'br', vary: 'Accept-Encoding' });
    expect(headers['content-length']).toBe(String(body.length));
    expect(brotliDecompressSync(body).toString()).toBe(longPage);
  });

  test('that is a picture has its media type and no encoding', async () => {
    const { headers, body } = await get('/docs/picture.webp', { 'accept-encoding': 'gzip, br' });
    expect(headers['content-type']).toBe('image/webp');
    expect(headers['content-encoding']).toBeUndefined();
    expect(body.length).toBe(4_000);
  });

  test.each(['', 'identity', 'gzip;q=0', 'deflate', 'br;q=0, gzip;q=0, *'])(
    'is sent as it is for accept-encoding "%s"',
    async (encoding) => {
      const { headers, body } = await get('/docs/long.html', { 'accept-encoding': encoding });
      expect(headers['content-encoding']).toBeUndefined();
      expect(body.toString()).toBe(longPage);
    },
  );

  test('has a tag for each encoding', async () => {
    const plainAnswer = await get('/docs/long.html');
    const gzipAnswer = await get('/docs/long.html', { 'accept-encoding': 'gzip' });
    const brotliAnswer = await get('/docs/long.html', { 'accept-encoding': 'br' });
    const tags = [plainAnswer, gzipAnswer, brotliAnswer].map(({ headers }) => headers['etag']);
    expect(new Set(tags).size).toBe(3);
  });

  test('is 304 for a request with its tag', async () => {
    const gzipAnswer = await get('/docs/long.html', { 'accept-encoding': 'gzip' });
    const secondAnswer = await get('/docs/long.html', {
      'accept-encoding': 'gzip',
      'if-none-match': `"other", W/${String(gzipAnswer.headers['etag'])}`,
    });
    expect([secondAnswer.status, secondAnswer.body.length, secondAnswer.headers['etag']]).toEqual([
      304,
      0,
      gzipAnswer.headers['etag'],
    ]);
    expect(secondAnswer.headers['cache-control']).toBe('no-cache');
  });

  test('is read again once its file has changed', async () => {
    expect((await get('/docs/changing.html')).body.toString()).toBe('first');
    writeFileSync(join(directory, 'changing.html'), 'the second');
    expect((await get('/docs/changing.html')).body.toString()).toBe('the second');
  });

  test('of a folder is its index', async () => {
    const redirect = await get('/docs/guides');
    expect([redirect.status, redirect.headers['location']]).toEqual([301, '/docs/guides/']);
    expect((await get('/docs/guides/')).body.toString()).toBe('<h1>Guides</h1>');
  });
});

describe('an address without a page', () => {
  test("shows a browser the folder's 404.html", async () => {
    const { status, headers, body } = await get('/docs/a/b.html', { accept: 'text/html' });
    expect([status, body.toString()]).toEqual([404, '<h1>Missing</h1>']);
    expect(headers['content-security-policy']).toContain("default-src 'none'");
  });

  test('answers a program with the error of the contract', async () => {
    const { status, body } = await get('/docs/a/b.html');
    expect([status, JSON.parse(body.toString())]).toMatchObject([
      404,
      { error: { code: 'route_not_found' } },
    ]);
  });

  test.each(['/docs/.hidden', '/docs/../outside.html', '/docs/%2e%2e/outside.html', '/docs//etc/passwd'])(
    'serves no file outside the folder and no hidden file: %s',
    async (path) => {
      expect((await get(path)).status).toBe(404);
    },
  );

  // The path exists on the disk, so reading it as a file would fail and be a 500.
  test('is 404 for a dot that names a folder', async () => {
    expect((await get('/docs/guides/.')).status).toBe(404);
  });
});
