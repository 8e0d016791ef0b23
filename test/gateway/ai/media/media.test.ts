import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { audioSeconds } from '../../../../src/gateway/ai/media/audio-duration.ts';
import { createMediaLinks } from '../../../../src/gateway/ai/media/links.ts';
import { detectImage } from '../../../../src/gateway/ai/media/image-type.ts';
import { localMediaModels } from '../../../../src/gateway/ai/providers/local/media-models.ts';
import { scriptedPicture } from '../../../support/provider.ts';
import { startS3Server, type S3Server } from '../../../support/s3-server.ts';
import { download, endedVideo, waitForEnd, imagesOf, startMedia, type MediaWorld } from './media-world.ts';

let world: MediaWorld;
beforeAll(async () => {
  world = await startMedia();
});
afterAll(() => world?.close());

async function makeImage(): Promise<{ jobId: string; url: URL }> {
  const { job_id } = await world.user.ai.createImage({ model: 'local/shapes', prompt: 'dot', size: '64x64' });
  const job = await waitForEnd(world.user, job_id);
  return { jobId: job_id, url: new URL(imagesOf(job)[0]?.url ?? '') };
}

describe('ai.getMedia', { timeout: 60_000 }, () => {
  it('serves the bytes to anyone with the link', async () => {
    const { url } = await makeImage();
    expect(url.origin).toBe(world.url);
    const { status, headers, bytes } = await download(url.href);
    expect([status, headers.get('content-length'), headers.get('cache-control')]).toEqual([
      200,
      String(bytes.length),
      'private, max-age=3600, immutable',
    ]);
    const head = await fetch(url, { method: 'HEAD' });
    expect([head.status, head.headers.get('content-length'), (await head.arrayBuffer()).byteLength]).toEqual([
      200,
      String(bytes.length),
      0,
    ]);
    const seconds = Number(url.searchParams.get('expires')) - Date.now() / 1000;
    expect(seconds).toBeGreaterThan(3_400);
    expect(seconds).toBeLessThan(3_800);
  });

  it('answers 404 for a forged link', async () => {
    const [{ url }, { url: otherUrl }] = [await makeImage(), await makeImage()];
    const forgeLink = (change: (link: URL) => void) => {
      const link = new URL(url);
      change(link);
      return link.href;
    };
    const expiryText = url.searchParams.get('expires') ?? '';
    const mediaId = url.pathname.split('/').at(-1) ?? '';
    const links = [
      forgeLink((link) => link.searchParams.set('expires', String(Number(expiryText) + 1))),
      forgeLink((link) => link.searchParams.set('signature', 'A'.repeat(43))),
      forgeLink((link) => link.searchParams.set('signature', 'x')),
      forgeLink((link) =>
        link.searchParams.set(
          'signature',
          createHmac('sha256', '').update(`${mediaId}\n${expiryText}`).digest('base64url'),
        ),
      ),
      forgeLink((link) => link.searchParams.set('signature', otherUrl.searchParams.get('signature') ?? '')),
      forgeLink((link) => (link.pathname = otherUrl.pathname)),
      forgeLink((link) => (link.pathname = '/v1/ai/media/med_00000000000000000000000000')),
    ];
    const answers = await Promise.all(
      links.map(async (link) => {
        const { status, bytes } = await download(link);
        const { error } = JSON.parse(bytes.toString()) as { error: Record<string, unknown> };
        return JSON.stringify([status, error['code'], error['message']]);
      }),
    );
    expect(new Set(answers)).toEqual(
      new Set([
        JSON.stringify([404, 'media_not_found', 'This link is invalid, or it or its file has expired.']),
      ]),
    );
    expect((await download(`${url.origin}${url.pathname}`)).status).toBe(400);
    expect(
      (await download(forgeLink((link) => (link.pathname = '/v1/ai/media/..%2f..%2fetc%2fpasswd')))).status,
    ).toBe(400);
  });

  it('answers 404 for an expired link', async () => {
    const shortWorld = await startMedia({ env: { MEDIA_LINK_SECONDS: '5' } });
    try {
      const { job_id } = await shortWorld.user.ai.createImage({
        model: 'local/shapes',
        prompt: 'dot',
        size: '64x64',
      });
      const oldUrl = imagesOf(await waitForEnd(shortWorld.user, job_id))[0]?.url ?? '';
      expect((await download(oldUrl)).status).toBe(200);
      await expect.poll(async () => (await download(oldUrl)).status, { interval: 250 }).toBe(404);
      const freshUrl = imagesOf(await shortWorld.user.ai.getImage({ job_id }))[0]?.url ?? '';
      expect((await download(freshUrl)).status).toBe(200);
    } finally {
      await shortWorld.close();
    }
  });
});

describe('a gateway with a bucket', { timeout: 60_000 }, () => {
  let server: S3Server;
  let bucketWorld: MediaWorld;
  beforeAll(async () => {
    server = await startS3Server();
    const env = { ...server.env(''), STARTING_CREDITS: '1000000', VIDEO_POLL_MS: '50' };
    bucketWorld = await startMedia({ env });
  });
  afterAll(async () => {
    await bucketWorld?.close();
    await server?.close();
  });

  it('stores images and serves them under links of its own', async () => {
    const { job_id } = await bucketWorld.user.ai.createImage({
      model: 'local/shapes',
      prompt: 'dot',
      size: '64x64',
    });
    const [image] = imagesOf(await waitForEnd(bucketWorld.user, job_id));
    expect(await server.keys()).toContain(`city/${image?.media_id}`);
    expect(image?.url).toMatch(new RegExp(`^${bucketWorld.url}/v1/ai/media/`));
    const { status, bytes } = await download(image?.url ?? '');
    expect(status).toBe(200);
    expect(detectImage(bytes)).toMatchObject({ mediaType: 'image/png', width: 64 });
  });

  it("stores a provider's film", async () => {
    const { job_id } = (await bucketWorld.user.ai.startVideo({
      model: 'acme/film-paid',
      prompt: 'dot',
    })) as { job_id: string };
    const job = await endedVideo(bucketWorld.user, job_id);
    const [film] = job.status === 'succeeded' ? job.videos : [];
    expect(await server.keys()).toContain(`city/${film?.media_id}`);
    expect((await download(film?.url ?? '')).bytes.length).toBeGreaterThan(100);
  });

  it('answers 503 for a file while the bucket is out of reach', async () => {
    const brokenServer = await startS3Server();
    const brokenWorld = await startMedia({ env: brokenServer.env('') });
    try {
      const { job_id } = await brokenWorld.user.ai.createImage({
        model: 'local/shapes',
        prompt: 'dot',
        size: '64x64',
      });
      const [image] = imagesOf(await waitForEnd(brokenWorld.user, job_id));
      await brokenServer.close();
      const answer = await fetch(image?.url ?? '');
      expect(answer.status).toBe(503);
      expect(await answer.json()).toMatchObject({ error: { code: 'storage_unavailable' } });
    } finally {
      await brokenWorld.close();
    }
  });

  it('fails a job that it cannot store', async () => {
    const brokenServer = await startS3Server();
    const brokenWorld = await startMedia({ env: brokenServer.env('') });
    try {
      await brokenServer.close();
      const { job_id } = await brokenWorld.user.ai.createImage({
        model: 'local/shapes',
        prompt: 'dot',
        size: '64x64',
      });
      expect(await waitForEnd(brokenWorld.user, job_id)).toMatchObject({ status: 'failed' });
    } finally {
      await brokenWorld.close();
    }
  });
});

describe('createMediaLinks', () => {
  const now = new Date('2026-11-20T12:00:00Z');
  const partsOf = (url: string) => {
    const { pathname, searchParams } = new URL(url);
    return [
      pathname.split('/').at(-1) ?? '',
      Number(searchParams.get('expires')),
      searchParams.get('signature') ?? '',
    ] as const;
  };

  it('accepts only links of the current and the previous key', () => {
    const [oldKey, youngKey, foreignKey] = [Buffer.alloc(32, 1), Buffer.alloc(32, 2), Buffer.alloc(32, 3)];
    const makeLinks = (keys: Buffer[]) =>
      createMediaLinks({ keys, baseUrl: () => 'http://127.0.0.1:1', linkSeconds: 60 });
    const oldParts = partsOf(makeLinks([oldKey]).urlFor('med_1', now));
    expect(oldParts[1]).toBe(now.getTime() / 1000 + 60);
    expect(makeLinks([youngKey, oldKey]).verify(...oldParts)).toBe(true);
    expect(makeLinks([youngKey]).verify(...oldParts)).toBe(false);
    expect(
      makeLinks([youngKey, oldKey]).verify(...partsOf(makeLinks([foreignKey]).urlFor('med_1', now))),
    ).toBe(false);
  });
});

describe('localMediaModels', () => {
  it('offers only models whose package is installed', () => {
    const idsOf = (isInstalled: (name: string) => boolean) =>
      localMediaModels({ isInstalled }).entries.map(({ id }) => id);
    expect(localMediaModels().entries.map(({ id }) => id)).toEqual([
      'local/shapes',
      'local/storyboard',
      'local/flite',
    ]);
    expect(idsOf(() => false)).toEqual(['local/shapes']);
    expect(idsOf((name) => name === 'h264-mp4-encoder')).toEqual(['local/shapes', 'local/storyboard']);
  });
});

describe('detectImage', () => {
  it('detects only the supported formats', () => {
    expect(detectImage(scriptedPicture)).toEqual({ mediaType: 'image/png', width: 1, height: 1 });
    const gif = Buffer.concat([Buffer.from('GIF89a'), Buffer.from([3, 0, 2, 0]), Buffer.alloc(30)]);
    expect(detectImage(gif)).toEqual({ mediaType: 'image/gif', width: 3, height: 2 });
    const jpeg = Buffer.concat([
      Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0, 4, 0, 0, 0xff, 0xc2, 0, 11, 8, 0, 5, 0, 7]),
      Buffer.alloc(30),
    ]);
    expect(detectImage(jpeg)).toEqual({ mediaType: 'image/jpeg', width: 7, height: 5 });
    const webp = Buffer.concat([
      Buffer.from('RIFF\0\0\0\0WEBPVP8X'),
      Buffer.from([10, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 19, 0, 0]),
      Buffer.alloc(10),
    ]);
    expect(detectImage(webp)).toEqual({ mediaType: 'image/webp', width: 10, height: 20 });
    for (const text of [
      '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
      '<html><body>hello there, this is a page</body></html>',
      '\x89PNG\r\n\x1a\n',
    ]) {
      expect(detectImage(Buffer.from(text, 'latin1'))).toBeNull();
    }
  });
});

describe('audioSeconds', () => {
  const wav = (length: number, dataBytes: number) =>
    Buffer.concat([
      Buffer.from('RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0', 'latin1'),
      Buffer.from('LIST\x03\0\0\0abc\0data', 'latin1'),
      uint32(length),
      Buffer.alloc(dataBytes),
    ]);
  const uint32 = (value: number) => Buffer.from(Uint32Array.of(value).buffer);

  it('reads wav headers, with and without a length', () => {
    expect(audioSeconds(wav(8_000, 8_000))).toBe(1);
    expect(audioSeconds(wav(0xffff_ffff, 4_000))).toBe(0.5);
  });

  it('reads flac, ogg, mp3, mp4 and webm headers', () => {
    const flac = Buffer.concat([Buffer.from('fLaC\x80\0\0\x22', 'latin1'), Buffer.alloc(34)]);
    // 44,100 samples a second, 88,200 samples in all.
    flac.writeUIntBE(44_100 << 4, 18, 3);
    flac.writeUInt32BE(88_200, 22);
    expect(audioSeconds(flac)).toBe(2);

    const page = (position: bigint, body: Buffer) => {
      const head = Buffer.alloc(28);
      head.write('OggS', 0, 'latin1');
      head.writeBigInt64LE(position, 6);
      head.writeUInt8(1, 26);
      head.writeUInt8(body.length, 27);
      return Buffer.concat([head, body]);
    };
    const opus = Buffer.concat([
      Buffer.from('OpusHead\x01\x01', 'latin1'),
      Buffer.from([0x38, 1]),
      Buffer.alloc(7),
    ]);
    expect(audioSeconds(Buffer.concat([page(0n, opus), page(312n + 72_000n, Buffer.alloc(10))]))).toBe(1.5);

    // MPEG 1, layer 3, 128 kbit/s, 44,100 Hz: 417 bytes a frame, 1,152 samples.
    const frame = Buffer.alloc(417);
    frame.writeUInt32BE(0xfffb9000, 0);
    const id3 = Buffer.concat([Buffer.from('ID3\x04\0\0\0\0\0\x0a', 'latin1'), Buffer.alloc(10)]);
    expect(audioSeconds(Buffer.concat([id3, ...Array.from({ length: 100 }, () => frame)]))).toBeCloseTo(
      (100 * 1_152) / 44_100,
      6,
    );
    const taggedFrame = Buffer.from(frame);
    taggedFrame.write('Xing', 36, 'latin1');
    taggedFrame.writeUInt32BE(1, 40);
    taggedFrame.writeUInt32BE(1_000, 44);
    expect(audioSeconds(taggedFrame)).toBeCloseTo((1_000 * 1_152) / 44_100, 6);

    const box = (name: string, ...content: Buffer[]) => {
      const head = Buffer.alloc(8);
      head.writeUInt32BE(8 + Buffer.concat(content).length, 0);
      head.write(name, 4, 'latin1');
      return Buffer.concat([head, ...content]);
    };
    const movie = Buffer.alloc(100);
    movie.writeUInt32BE(1_000, 12);
    movie.writeUInt32BE(2_500, 16);
    expect(
      audioSeconds(
        Buffer.concat([
          box('ftyp', Buffer.from('M4A ')),
          box('mdat', Buffer.alloc(50)),
          box('moov', box('mvhd', movie)),
        ]),
      ),
    ).toBe(2.5);

    const duration = Buffer.alloc(8);
    duration.writeDoubleBE(3_250);
    const info = Buffer.concat([
      Buffer.from([0x2a, 0xd7, 0xb1, 0x83, 0x0f, 0x42, 0x40, 0x44, 0x89, 0x88]),
      duration,
    ]);
    const webm = Buffer.concat([
      Buffer.from([
        0x1a,
        0x45,
        0xdf,
        0xa3,
        0x80,
        0x18,
        0x53,
        0x80,
        0x67,
        0x01,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0x15,
        0x49,
        0xa9,
        0x66,
        0x80 + info.length,
      ]),
      info,
    ]);
    expect(audioSeconds(webm)).toBe(3.25);
  });

  it('returns null for truncated and invalid files', () => {
    for (const bytes of [
      Buffer.alloc(0),
      Buffer.from('RIFF'),
      Buffer.from('fLaC'),
      Buffer.from('OggS'),
      Buffer.from('\0\0\0\x08ftyp\0\0\0\0moov', 'latin1'),
      Buffer.from([0x1a, 0x45, 0xdf, 0xa3]),
      Buffer.from('hello'),
      Buffer.from('ID3'),
      wav(8_000, 8_000).subarray(0, 40),
      Buffer.alloc(1_000, 0xff),
      Buffer.alloc(1_000, 0),
    ]) {
      expect(audioSeconds(bytes)).toBeNull();
    }
    // Changes any byte of headers that the parsers follow.
    const seeds = [
      wav(8_000, 100),
      Buffer.concat([
        Buffer.from('\0\0\0\x10ftypM4A \0\0\0\0\0\0\0\x20moov\0\0\0\x18mvhd', 'latin1'),
        Buffer.alloc(40),
      ]),
    ];
    for (const seed of seeds) {
      for (let index = 0; index < 60; index += 1) {
        for (const value of [0, 1, 0x7f, 0x80, 0xff]) {
          const changedBytes = Buffer.from(seed);
          changedBytes[index] = value;
          const seconds = audioSeconds(changedBytes);
          expect(seconds === null || (Number.isFinite(seconds) && seconds >= 0)).toBe(true);
        }
      }
    }
  });
});
