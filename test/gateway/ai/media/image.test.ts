// Image jobs: local/shapes, models of a provider, and the states of a job.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { scriptedPicture } from '../../../support/provider.ts';
import { decodePng, regionsOf } from './png-decoder.ts';
import { download, formOf, waitForEnd, imagesOf, startMedia, type MediaWorld } from './media-world.ts';

let world: MediaWorld;
beforeAll(async () => {
  world = await startMedia({ withAdmin: true });
});
afterAll(() => world?.close());

const red = ([r = 0, g = 0, b = 0]: readonly number[]) => r > 150 && g < 110 && b < 110;

describe('ai.createImage', { timeout: 120_000 }, () => {
  it('draws the prompt at the requested size', async () => {
    const submission = await world.user.ai.createImage({
      model: 'local/shapes',
      prompt: 'Three red circles on a blue background',
      size: '640x480',
      seed: 7,
    });
    expect(submission).toMatchObject({ status: 'queued', poll_after_ms: 1_000 });
    expect(submission.job_id).toMatch(/^job_[0-9a-z]{26}$/);
    const job = await waitForEnd(world.user, submission.job_id);
    expect(job).toMatchObject({ status: 'succeeded', progress: 1, metadata: { model: 'local/shapes' } });
    expect(job).not.toHaveProperty('poll_after_ms');
    const [image] = imagesOf(job);
    expect(image).toMatchObject({ media_type: 'image/png', width: 640, height: 480 });
    const { status, headers, bytes } = await download(image?.url ?? '');
    expect(status).toBe(200);
    expect(headers.get('content-type')).toBe('image/png');
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('content-security-policy')).toContain('sandbox');
    const picture = decodePng(bytes);
    expect(picture).toMatchObject({ width: 640, height: 480 });
    expect(regionsOf(picture, red, 400)).toBe(3);
    for (const corner of [picture.pixel(2, 2), picture.pixel(637, 2), picture.pixel(2, 477)]) {
      const [r = 0, g = 0, b = 0] = corner;
      expect(b).toBeGreaterThan(Math.max(r, g) + 30);
    }
    expect(picture.texts).toMatchObject({
      Software: 'Townhall local/shapes',
      Description: 'Three red circles on a blue background',
    });
  });

  it('draws the same image for the same seed only', async () => {
    const makeImage = async (members: object) => {
      const { job_id } = await world.user.ai.createImage({
        model: 'local/shapes',
        prompt: 'quiet evening',
        size: '128x128',
        ...members,
      });
      const images = imagesOf(await waitForEnd(world.user, job_id));
      return Promise.all(images.map(async ({ url }) => (await download(url)).bytes.toString('base64')));
    };
    const [firstImage, sameSeed, otherSeed] = [
      await makeImage({ n: 2 }),
      await makeImage({ n: 2 }),
      await makeImage({ seed: 1 }),
    ];
    expect(firstImage).toHaveLength(2);
    expect(sameSeed).toEqual(firstImage);
    // The two images of one call differ, and the other seed gives a third one.
    expect(new Set([...firstImage, ...otherSeed]).size).toBe(3);
  });

  it('chooses a size for an aspect ratio', async () => {
    const { job_id } = await world.user.ai.createImage({
      model: 'local/shapes',
      prompt: 'sea',
      aspect_ratio: '16:9',
    });
    const images = imagesOf(await waitForEnd(world.user, job_id));
    const { width = 0, height = 0 } = images[0] ?? {};
    expect(width / height).toBeCloseTo(16 / 9, 1);
    expect(width * height).toBeGreaterThan(900_000);
  });
});

describe('a request of ai.createImage', { timeout: 120_000 }, () => {
  it.each([
    ['no prompt', { model: 'local/shapes' }, 400, 'invalid_request', 'prompt'],
    [
      'an unknown member',
      { model: 'local/shapes', prompt: 'x', style: 'y' },
      400,
      'invalid_request',
      'style',
    ],
    [
      'a size and an aspect ratio',
      { model: 'local/shapes', prompt: 'x', size: '64x64', aspect_ratio: '1:1' },
      400,
      'invalid_request',
      'aspect_ratio',
    ],
    ['an invalid size', { model: 'local/shapes', prompt: 'x', size: 'big' }, 400, 'invalid_request', 'size'],
    ['too many images', { model: 'local/shapes', prompt: 'x', n: 11 }, 400, 'invalid_request', 'n'],
    [
      'a size that the model does not support',
      { model: 'local/shapes', prompt: 'x', size: '4096x64' },
      422,
      'unsupported_by_model',
      'size',
    ],
    [
      'unsupported options',
      { model: 'local/shapes', prompt: 'x', provider_options: { quality: 'high' } },
      422,
      'unsupported_by_model',
      'provider_options',
    ],
    [
      'an invalid image',
      { model: 'acme/painter', prompt: 'x', images: [{ data: 'aGVsbG8=', media_type: 'image/png' }] },
      400,
      'invalid_request',
      'images[0]',
    ],
    [
      'an image that is not base64',
      { model: 'acme/painter', prompt: 'x', images: [{ data: '%%%%', media_type: 'image/png' }] },
      400,
      'invalid_request',
      'images[0].data',
    ],
    [
      'an option that changes the address of the provider',
      { model: 'acme/painter', prompt: 'x', provider_options: { base_url: 'http://x' } },
      400,
      'invalid_request',
      'provider_options.base_url',
    ],
    [
      'an option that repeats a member of the request',
      { model: 'acme/painter', prompt: 'x', provider_options: { n: 10 } },
      400,
      'invalid_request',
      'provider_options.n',
    ],
    [
      'a NUL character, which the database cannot store',
      { model: 'acme/painter', prompt: 'x', provider_options: { style: [{ of: 'a\u0000' }] } },
      400,
      'invalid_request',
      'provider_options.style[0].of',
    ],
    ['an unknown model', { model: 'local/nothing', prompt: 'x' }, 404, 'model_not_found', 'model'],
    [
      'a model that cannot generate images',
      { model: 'local/echo', prompt: 'x' },
      422,
      'unsupported_by_model',
      'model',
    ],
  ])('refuses %s', async (_name, body, status, code, param) => {
    const response = await world.send('/v1/ai/image/create', body);
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { code, param } });
  });

  it('explains that a size excludes an aspect ratio', async () => {
    const body = { model: 'local/shapes', prompt: 'x', size: '64x64', aspect_ratio: '1:1' };
    const response = await world.send('/v1/ai/image/create', body);
    expect(await response.json()).toMatchObject({
      error: { details: [{ path: 'aspect_ratio', message: 'cannot be combined with `size`' }] },
    });
  });

  it('refuses guests', async () => {
    const response = await fetch(`${world.url}/v1/ai/image/create`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'local/shapes', prompt: 'x' }),
    });
    expect(response.status).toBe(401);
  });

  it('accepts a call of an administrator', async () => {
    const { job_id } = await world.admin.ai.createImage({
      model: 'local/shapes',
      prompt: 'x',
      size: '64x64',
    });
    expect(await waitForEnd(world.admin, job_id)).toMatchObject({ status: 'succeeded' });
  });
});

describe('ai.createImage through a provider', { timeout: 120_000 }, () => {
  it('sends exactly the members of the request to the provider', async () => {
    const { job_id } = await world.user.ai.createImage({
      model: 'acme/painter',
      prompt: 'a boat',
      n: 2,
      size: '1024x1024',
      seed: 5,
      provider_options: { quality: 'high' },
    });
    const job = await waitForEnd(world.user, job_id);
    expect(job).toMatchObject({
      status: 'succeeded',
      images: [
        { width: 1, height: 1 },
        { width: 1, height: 1 },
      ],
    });
    expect((await download(imagesOf(job)[0]?.url ?? '')).bytes).toEqual(scriptedPicture);
    const call = world.provider.lastCall();
    expect(call.path).toBe('/v1/images/generations');
    expect(call.headers.authorization).toBe('Bearer key-of-acme');
    expect(JSON.parse(call.body.toString())).toEqual({
      model: 'images',
      prompt: 'a boat',
      n: 2,
      size: '1024x1024',
      seed: 5,
      quality: 'high',
      response_format: 'b64_json',
    });
  });

  it('falls back only to models that the key may use', async () => {
    const { user_token: key } = await world.user.accounts.createKey({
      name: 'one model',
      models: ['acme/with-fallback'],
    });
    const job = await world.as(key).ai.createImage({ model: 'acme/with-fallback', prompt: 'a boat' });
    expect(await waitForEnd(world.user, job.job_id)).toMatchObject({
      status: 'failed',
      error: { code: 'upstream_failed' },
    });
    const response = await world.user.ai.createImage({ model: 'acme/with-fallback', prompt: 'a boat' });
    expect(await waitForEnd(world.user, response.job_id)).toMatchObject({ status: 'succeeded' });
  });

  it('sends input images as a form', async () => {
    const images = [{ data: scriptedPicture.toString('base64'), media_type: 'image/png' as const }];
    const { job_id } = await world.user.ai.createImage({
      model: 'acme/painter',
      prompt: 'the same in green',
      images,
    });
    expect(await waitForEnd(world.user, job_id)).toMatchObject({ status: 'succeeded' });
    const call = world.provider.lastCall();
    expect(call.path).toBe('/v1/images/edits');
    const form = await formOf(call);
    expect(form.get('prompt')).toBe('the same in green');
    expect(Buffer.from(await (form.get('image[]') as File).arrayBuffer())).toEqual(scriptedPicture);
  });

  it('reports the refusal of the provider', async () => {
    const { job_id } = await world.user.ai.createImage({ model: 'acme/refusing', prompt: 'x' });
    expect(await waitForEnd(world.user, job_id)).toMatchObject({
      status: 'failed',
      error: { code: 'invalid_size', message: 'no such size' },
    });
  });

  it('fails when the provider answers with the URL of an image', async () => {
    const submission = await world.user.ai.createImage({ model: 'acme/elsewhere', prompt: 'x' });
    const job = await waitForEnd(world.user, submission.job_id);
    expect(job).toMatchObject({ status: 'failed', error: { code: 'upstream_failed' } });
    expect(job).not.toHaveProperty('images');
  });

  it('answers a repeated Idempotency-Key with the same job', async () => {
    const jobCount = await countJobs();
    const headers = { 'idempotency-key': 'one image' };
    const body = { model: 'local/shapes', prompt: 'once', size: '64x64' };
    const [firstImage, secondImage] = [
      await world.send('/v1/ai/image/create', body, { headers }),
      await world.send('/v1/ai/image/create', body, { headers }),
    ];
    expect([firstImage.status, secondImage.status]).toEqual([202, 202]);
    expect(secondImage.headers.get('idempotent-replayed')).toBe('true');
    expect(await secondImage.json()).toEqual(await firstImage.json());
    expect(await countJobs()).toBe(jobCount + 1);
  });

  it('refuses an Idempotency-Key of another request', async () => {
    const headers = { 'idempotency-key': 'two images' };
    const create = (prompt: string) =>
      world.send('/v1/ai/image/create', { model: 'local/shapes', prompt, size: '64x64' }, { headers });
    expect((await create('one')).status).toBe(202);
    const jobCount = await countJobs();
    expect((await create('two')).status).toBe(422);
    expect(await countJobs()).toBe(jobCount);
  });
});

async function countJobs(): Promise<number> {
  const [row] = await world.sql<{ count: bigint }[]>`select count(*) as count from gateway.ai_jobs`;
  return Number(row?.count);
}

describe('ai.getImage and ai.cancelImage', { timeout: 60_000 }, () => {
  it('answer 404 for jobs of other users', async () => {
    const { job_id } = await world.user.ai.createImage({
      model: 'local/shapes',
      prompt: 'mine',
      size: '64x64',
    });
    await waitForEnd(world.user, job_id);
    const stranger = await world.stranger();
    const expectNotFound = (call: Promise<unknown>) =>
      expect(call).rejects.toMatchObject({
        status: 404,
        code: 'job_not_found',
        message: 'There is no job of yours with this id.',
      });
    for (const client of [stranger, world.admin]) {
      for (const id of [job_id, 'job_00000000000000000000000000']) {
        await expectNotFound(client.ai.getImage({ job_id: id }));
        await expectNotFound(client.ai.cancelImage({ job_id: id }));
        await expectNotFound(client.ai.startVideo({ job_id: id }));
      }
    }
    // The job of an image is not found by the operations of videos, even for its owner.
    await expect(world.user.ai.startVideo({ job_id })).rejects.toMatchObject({ status: 404 });
    expect(await world.user.ai.getImage({ job_id })).toMatchObject({ status: 'succeeded' });
  });

  it('cancel the call to the provider', async () => {
    world.provider.reset();
    const { job_id } = await world.user.ai.createImage({ model: 'acme/slow', prompt: 'never' });
    await world.provider.until((calls) => calls.length === 1, 20_000);
    expect(await world.user.ai.getImage({ job_id })).toMatchObject({
      status: 'running',
      poll_after_ms: 1_000,
    });
    expect(await world.user.ai.cancelImage({ job_id })).toMatchObject({ status: 'canceled' });
    await world.provider.until(([call]) => call?.abortedAt !== undefined, 10_000);
    const secondAnswer = await world.user.ai.cancelImage({ job_id });
    expect(secondAnswer).toMatchObject({ status: 'canceled', metadata: { finished_at: expect.any(String) } });
    expect(world.provider.calls).toHaveLength(1);
  });

  it('keep a job that has ended', async () => {
    const response = await world.user.ai.createImage({
      model: 'local/shapes',
      prompt: 'done',
      size: '64x64',
    });
    await waitForEnd(world.user, response.job_id);
    expect(await world.user.ai.cancelImage({ job_id: response.job_id })).toMatchObject({
      status: 'succeeded',
      images: [{ width: 64 }],
    });
  });
});
