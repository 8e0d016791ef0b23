import { describe, expect, test } from 'vitest';
import type { CatalogModel } from '../../../../src/gateway/ai/catalog/catalog.ts';
import { createMp4Reader } from '../../../../src/gateway/ai/media/mp4.ts';
import { asyncVideoModel } from '../../../../src/gateway/ai/providers/async-video.ts';
import type { Upstream, UpstreamRequest } from '../../../../src/gateway/ai/upstream/client.ts';
import {
  isPublicAddress,
  publicLookup,
  requirePublicUrl,
} from '../../../../src/gateway/ai/upstream/public-address.ts';
import { scriptedFilm } from '../../../support/provider-videos.ts';

async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Uint8Array> {
  for (let offset = 0; offset < bytes.length; offset += size) yield bytes.subarray(offset, offset + size);
}

async function read(bytes: Buffer, size = 1_000) {
  const film = createMp4Reader();
  const chunks: Uint8Array[] = [];
  for await (const piece of film.passThrough(inPieces(bytes, size))) chunks.push(piece);
  expect(Buffer.concat(chunks)).toEqual(bytes);
  return film.properties();
}

describe('createMp4Reader', () => {
  const film = scriptedFilm({ seconds: 6.5, bytes: 300, width: 1920, height: 1080 });
  const fileFacts = { mediaType: 'video/mp4', width: 1920, height: 1080, durationSeconds: 6.5 };

  test.each([1, 7, 8, 9, 16, 64, 10_000])('reads a video in pieces of %i bytes', async (size) => {
    expect(await read(film, size)).toEqual(fileFacts);
  });

  test('reads boxes with 64-bit lengths and a last box without a length', async () => {
    const longBox = Buffer.alloc(16 + 40, 1);
    longBox.writeUInt32BE(1, 0);
    longBox.write('mdat', 4, 'latin1');
    longBox.writeBigUInt64BE(BigInt(longBox.length), 8);
    const endlessBox = Buffer.alloc(8 + 40, 1);
    endlessBox.writeUInt32BE(0, 0);
    endlessBox.write('mdat', 4, 'latin1');
    expect(await read(Buffer.concat([film, longBox]), 5)).toEqual(fileFacts);
    expect(await read(Buffer.concat([film, endlessBox]), 5)).toEqual(fileFacts);
  });

  test('returns null for truncated, foreign and malformed files', async () => {
    expect(await read(film.subarray(0, -1))).toBeNull();
    expect(await read(film.subarray(0, 100))).toBeNull();
    expect(await read(Buffer.from('{"error":"there was no film"}'))).toBeNull();
    expect(await read(Buffer.alloc(0))).toBeNull();
    const truncatedFilm = Buffer.from(film);
    truncatedFilm.writeUInt32BE(3, 0);
    expect(await read(truncatedFilm)).toBeNull();
    const cutIndex = Buffer.concat([
      film.subarray(0, 16),
      Buffer.from('\0\0\0\x14moov\0\0\xff\xfftrak\0\0\0\0', 'latin1'),
    ]);
    expect(await read(cutIndex)).toBeNull();
  });
});

describe('a URL in a provider answer', () => {
  test.each([
    '127.0.0.1',
    '10.1.1.1',
    '172.16.0.1',
    '192.168.1.1',
    '169.254.169.254',
    '100.64.0.1',
    '0.0.0.0',
    '::',
    '::1',
    '::ffff:127.0.0.1',
    '64:ff9b::7f00:1',
    'fd00::1',
    'fe80::1',
    '2002:7f00:1::',
    'not an address',
  ])('is not followed to %s', (address) => {
    expect(isPublicAddress(address)).toBe(false);
  });

  test.each([
    'https://127.1/',
    'https://0x7f.1/',
    'https://2130706433/',
    'https://[::ffff:127.0.0.1]/',
    'http://example.com/',
    'https://user:word@example.com/',
    'file:///etc/passwd',
  ])('is not followed as %s', (url) => {
    expect(() => requirePublicUrl(url)).toThrow(expect.objectContaining({ code: 'upstream_failed' }));
  });

  test('is not followed to a name of a private address', async () => {
    const failure = await new Promise((resolve) => publicLookup('localhost', {}, (error) => resolve(error)));
    expect(failure).toMatchObject({ code: 'upstream_failed' });
  });

  test('is followed to a public address', () => {
    expect(['8.8.8.8', '2606:4700::1111'].map(isPublicAddress)).toEqual([true, true]);
    expect(() => requirePublicUrl('https://example.com/film.mp4?signature=1')).not.toThrow();
  });
});

describe('a video on another host', () => {
  test('is downloaded without the provider key', async () => {
    const requests: Pick<UpstreamRequest, 'url' | 'apiKey' | 'requiresPublicAddress'>[] = [];
    const film = scriptedFilm({ seconds: 2 });
    const places: Record<string, string | undefined> = {
      'https://provider.example/v1/videos/video_1/content': 'https://store.example/film.mp4?signature=1',
      'https://store.example/film.mp4?signature=1': 'https://provider.example/again',
      'https://provider.example/again': 'https://far.example/film',
    };
    const upstream: Upstream = {
      async send({ url, apiKey, requiresPublicAddress, allowRedirect }) {
        requests.push({ url, apiKey, requiresPublicAddress });
        const isStanding = allowRedirect !== true;
        const body = inPieces(
          isStanding
            ? Buffer.from(JSON.stringify({ id: 'video_1', status: 'completed', seconds: '2' }))
            : film,
          500,
        );
        return {
          mediaType: '',
          body,
          abort: () => {},
          redact: (text: string) => text,
          ...(places[url] === undefined ? {} : { redirectUrl: places[url] }),
        };
      },
      toProblem: () => {
        throw new Error('Nothing is refused here.');
      },
      close: async () => {},
    };
    const model = {
      id: 'acme/film',
      upstream_model: 'film',
      by: { id: 'acme', unpriced_members: [] },
    } as unknown as CatalogModel;
    const needs = {
      upstream,
      baseUrl: 'https://provider.example/v1',
      apiKey: 'the key',
      idleMs: undefined,
      sdkModels: new WeakMap(),
      clock: { sleep: async () => {} },
      limits: { pollMs: 1, maxBytes: 1_000_000 },
    };
    const fetchedFilm = await asyncVideoModel(model, 'openai', needs).fetchResult('video_1', {
      owner: 'user usr_1',
      signal: new AbortController().signal,
      reportProgress: () => {},
    });
    for await (const _piece of fetchedFilm.open());
    expect(fetchedFilm.properties()).toMatchObject({ durationSeconds: 2, width: 1280, height: 720 });
    expect(requests.slice(1)).toEqual([
      {
        url: 'https://provider.example/v1/videos/video_1/content',
        apiKey: 'the key',
        requiresPublicAddress: false,
      },
      { url: 'https://store.example/film.mp4?signature=1', apiKey: undefined, requiresPublicAddress: true },
      { url: 'https://provider.example/again', apiKey: 'the key', requiresPublicAddress: false },
      { url: 'https://far.example/film', apiKey: undefined, requiresPublicAddress: true },
    ]);
  });
});
