// Files of jobs: their links, their storage in a bucket, and the local models that make them.
import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createMediaLinks } from '../../../../src/gateway/ai/media/links.ts';
import { detectImage } from '../../../../src/gateway/ai/media/image-type.ts';
import { localMediaModels } from '../../../../src/gateway/ai/providers/local/media-models.ts';
import { startS3Server, type S3Server } from '../../../support/s3-server.ts';
import {
  download,
  refusalOf,
  waitForVideo,
  waitForEnd,
  imagesOf,
  startMedia,
  type MediaWorld,
} from './media-world.ts';

let world: MediaWorld;
beforeAll(async () => {
  world = await startMedia();
});
afterAll(() => world?.close());

const startDot = async ({ user }: MediaWorld): Promise<string> =>
  (await user.ai.createImage({ model: 'local/shapes', prompt: 'dot', size: '64x64' })).job_id;

async function makeDot(gateway = world): Promise<{ jobId: string; mediaId: string; url: URL }> {
  const jobId = await startDot(gateway);
  const [image] = imagesOf(await waitForEnd(gateway.user, jobId));
  return { jobId, mediaId: image?.media_id ?? '', url: new URL(image?.url ?? '') };
}

describe('ai.getMedia', { timeout: 60_000 }, () => {
  it('serves the bytes to anyone with the link', async () => {
    const { url } = await makeDot();
    expect(url.origin).toBe(world.url);
    const { status, headers, bytes } = await download(url.href);
    expect([status, headers.get('content-length'), headers.get('cache-control')]).toEqual([
      200,
      String(bytes.length),
      'private, max-age=3600, immutable',
    ]);
  });

  it('answers HEAD with the length', async () => {
    const { url } = await makeDot();
    const { bytes } = await download(url.href);
    const head = await fetch(url, { method: 'HEAD' });
    expect([head.status, head.headers.get('content-length'), (await head.arrayBuffer()).byteLength]).toEqual([
      200,
      String(bytes.length),
      0,
    ]);
  });

  it('serves links that expire after about an hour', async () => {
    const { url } = await makeDot();
    const seconds = Number(url.searchParams.get('expires')) - Date.now() / 1000;
    expect(seconds).toBeGreaterThan(3_400);
    expect(seconds).toBeLessThan(3_800);
  });

  it('answers 404 for a forged link', async () => {
    const [{ url }, { url: otherUrl }] = [await makeDot(), await makeDot()];
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
    for (const link of links)
      expect(await refusalOf(await fetch(link)), link).toMatchObject([
        404,
        { code: 'media_not_found', message: 'This link is invalid, or it or its file has expired.' },
      ]);
  });

  it('answers 400 for a link without a signature', async () => {
    const { url } = await makeDot();
    expect((await download(`${url.origin}${url.pathname}`)).status).toBe(400);
  });

  it('answers 400 for a path to another folder', async () => {
    const { url } = await makeDot();
    url.pathname = '/v1/ai/media/..%2f..%2fetc%2fpasswd';
    expect((await download(url.href)).status).toBe(400);
  });

  it('answers 404 for an expired link', async () => {
    const shortWorld = await startMedia({ env: { MEDIA_LINK_SECONDS: '5' } });
    try {
      const { jobId, url: oldUrl } = await makeDot(shortWorld);
      expect((await download(oldUrl.href)).status).toBe(200);
      const readStatus = async () => (await download(oldUrl.href)).status;
      await expect.poll(readStatus, { interval: 250, timeout: 20_000 }).toBe(404);
      const freshUrl = imagesOf(await shortWorld.user.ai.getImage({ job_id: jobId }))[0]?.url ?? '';
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

  it('stores images in the bucket and serves them under its own links', async () => {
    const { mediaId, url } = await makeDot(bucketWorld);
    expect(await server.keys()).toContain(`city/${mediaId}`);
    expect(url.href).toMatch(new RegExp(`^${bucketWorld.url}/v1/ai/media/`));
    const { status, bytes } = await download(url.href);
    expect(status).toBe(200);
    expect(detectImage(bytes)).toMatchObject({ mediaType: 'image/png', width: 64 });
  });

  it("stores a provider's film", async () => {
    const { job_id } = (await bucketWorld.user.ai.startVideo({
      model: 'acme/film-paid',
      prompt: 'dot',
    })) as { job_id: string };
    const job = await waitForVideo(bucketWorld.user, job_id);
    const [film] = job.status === 'succeeded' ? job.videos : [];
    expect(await server.keys()).toContain(`city/${film?.media_id}`);
    expect((await download(film?.url ?? '')).bytes.length).toBeGreaterThan(100);
  });
});

describe('a gateway whose bucket is unreachable', { timeout: 60_000 }, () => {
  let server: S3Server;
  let bucketWorld: MediaWorld;
  beforeEach(async () => {
    server = await startS3Server();
    bucketWorld = await startMedia({ env: server.env('') });
    return () => bucketWorld.close();
  });

  it('answers 503 for a file', async () => {
    const { url } = await makeDot(bucketWorld);
    await server.close();
    const answer = await fetch(url);
    expect(answer.status).toBe(503);
    expect(await answer.json()).toMatchObject({ error: { code: 'storage_unavailable' } });
  });

  it('fails a job that it cannot store', async () => {
    await server.close();
    const jobId = await startDot(bucketWorld);
    expect(await waitForEnd(bucketWorld.user, jobId)).toMatchObject({ status: 'failed' });
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
    const [oldKey, newKey, unknownKey] = [Buffer.alloc(32, 1), Buffer.alloc(32, 2), Buffer.alloc(32, 3)];
    const makeLinks = (keys: Buffer[]) =>
      createMediaLinks({ keys, baseUrl: () => 'http://127.0.0.1:1', linkSeconds: 60 });
    const oldParts = partsOf(makeLinks([oldKey]).urlFor('med_1', now));
    expect(oldParts[1]).toBe(now.getTime() / 1000 + 60);
    expect(makeLinks([newKey, oldKey]).verify(...oldParts)).toBe(true);
    expect(makeLinks([newKey]).verify(...oldParts)).toBe(false);
    expect(makeLinks([newKey, oldKey]).verify(...partsOf(makeLinks([unknownKey]).urlFor('med_1', now)))).toBe(
      false,
    );
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
