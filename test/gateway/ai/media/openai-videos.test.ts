// OpenAI's client, unmodified, on the paths of videos.
/* oxlint-disable typescript/no-deprecated -- OpenAI closed its own videos; other servers keep the format. */
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { scriptedPicture } from '../../../support/provider.ts';
import { waitForVideo, startMedia, type MediaWorld } from './media-world.ts';

let world: MediaWorld;
beforeAll(async () => {
  world = await startMedia({ withAdmin: true, env: { VIDEO_POLL_MS: '100' } });
});
afterAll(() => world?.close());

const client = (base = '/v1') =>
  new OpenAI({ baseURL: world.url + base, apiKey: world.userToken, maxRetries: 0 });
const request = { model: 'local/storyboard', prompt: 'A red circle on blue.' };
const smallRequest = { ...request, seconds: '1' as never, size: '64x64' as never };
const waitingRequest = { model: 'acme/film-forever', prompt: 'A boat' };

/** Creates a video and waits for its end. */
async function makeVideo(base = '/v1'): Promise<OpenAI.Video> {
  const { id } = await client(base).videos.create(smallRequest);
  await waitForVideo(world.user, id);
  return client(base).videos.retrieve(id);
}

describe.each(['/v1', '/v1/ai'])('videos at %s', { timeout: 120_000 }, (base) => {
  it('are created, polled and downloaded', async () => {
    const queued = await client(base).videos.create(smallRequest);
    expect(queued).toMatchObject({
      object: 'video',
      model: 'local/storyboard',
      status: 'queued',
      progress: 0,
      prompt: request.prompt,
      seconds: '1',
      size: '64x64',
      completed_at: null,
      error: null,
    });
    await waitForVideo(world.user, queued.id);
    expect(await client(base).videos.retrieve(queued.id)).toMatchObject({
      id: queued.id,
      status: 'completed',
      progress: 100,
      seconds: '1',
      size: '64x64',
      created_at: expect.any(Number),
      completed_at: expect.any(Number),
    });
    const content = await client(base).videos.downloadContent(queued.id);
    expect(content.headers.get('content-type')).toBe('video/mp4');
    expect(Buffer.from(await content.arrayBuffer()).toString('latin1', 4, 8)).toBe('ftyp');
  });
});

describe('ai.createClientVideo', { timeout: 120_000 }, () => {
  const pictureHasArrived = () => world.provider.calls.some(({ body }) => body.includes(scriptedPicture));

  it('sends the file of a form to the provider', async () => {
    const file = await toFile(scriptedPicture, 'a.png', { type: 'image/png' });
    world.provider.reset();
    const { id } = await client().videos.create({ ...waitingRequest, input_reference: file });
    await expect.poll(pictureHasArrived, { timeout: 10_000 }).toBe(true);
    await client().videos.delete(id);
  });

  it('takes JSON with an image as a data URL', async () => {
    const image_url = `data:image/png;base64,${scriptedPicture.toString('base64')}`;
    world.provider.reset();
    const answer = await world.send('/v1/videos', { ...waitingRequest, input_reference: { image_url } });
    expect(answer.status).toBe(200);
    await expect.poll(pictureHasArrived, { timeout: 10_000 }).toBe(true);
    await client().videos.delete(((await answer.json()) as { id: string }).id);
  });

  it('does not download an image by its URL', async () => {
    const answer = await world.send('/v1/videos', {
      ...waitingRequest,
      input_reference: { image_url: 'http://127.0.0.1:1/a.png' },
    });
    expect([answer.status, await answer.json()]).toMatchObject([
      400,
      { error: { param: 'input_reference.image_url' } },
    ]);
  });

  it('refuses a file that is not an image', async () => {
    const file = await toFile(Buffer.from('text'), 'a.png', { type: 'image/png' });
    await expect(client().videos.create({ ...waitingRequest, input_reference: file })).rejects.toMatchObject({
      status: 400,
      param: 'input_reference',
    });
  });

  it.each([
    ['an unknown model', { model: 'acme/none' }, 404, 'model_not_found'],
    ['a model for speech', { model: 'local/flite' }, 422, 'unsupported_by_model'],
  ])('refuses %s', async (_name, members, status, code) => {
    await expect(client().videos.create({ ...request, ...members })).rejects.toMatchObject({ status, code });
  });

  it('is 402 without credits', async () => {
    const { available } = await world.user.credits.getBalance();
    const { user } = await world.user.accounts.getMe();
    const change = { user_id: user.user_id, credits: available, reason: 'a test' };
    await world.admin.credits.deductCredits(change);
    await expect(
      client().videos.create({ model: 'acme/film-paid', prompt: 'A boat', seconds: '4' }),
    ).rejects.toMatchObject({ status: 402, code: 'insufficient_credits' });
    await world.admin.credits.grantCredits(change);
  });

  it('charges the seconds of a paid video', async () => {
    const { posted: creditsBefore } = await world.user.credits.getBalance();
    const { id } = await client().videos.create({ model: 'acme/film-paid', prompt: 'A boat', seconds: '4' });
    expect(await waitForVideo(world.user, id)).toMatchObject({ status: 'succeeded' });
    const { posted: creditsAfter } = await world.user.credits.getBalance();
    expect(creditsBefore - creditsAfter).toBe(4 * 10_000);
  });

  it('returns one job for a repeated Idempotency-Key', async () => {
    const options = { headers: { 'idempotency-key': 'one video' } };
    const createVideo = async () => (await world.send('/v1/videos', smallRequest, options)).json();
    const video = (await createVideo()) as OpenAI.Video;
    expect(video.id).toMatch(/^job_/);
    expect(await createVideo()).toMatchObject({ id: video.id });
  });
});

describe('ai.getClientVideo', { timeout: 120_000 }, () => {
  it('reports the reason of a failure', async () => {
    const { id } = await client().videos.create({ model: 'acme/film-failed', prompt: 'A boat' });
    await waitForVideo(world.user, id);
    expect(await client().videos.retrieve(id)).toMatchObject({
      status: 'failed',
      error: { code: 'moderation_blocked', message: 'The prompt is not allowed.' },
    });
  });
});

describe('the video of another user', { timeout: 120_000 }, () => {
  it.each(['getClientVideo', 'getClientVideoContent', 'removeClientVideo'] as const)(
    'is 404 for ai.%s',
    async (operation) => {
      const { id } = await makeVideo();
      const stranger = await world.stranger();
      await expect(stranger.ai[operation]({ video_id: id })).rejects.toMatchObject({
        status: 404,
        code: 'job_not_found',
        param: 'video_id',
      });
      expect(await client().videos.retrieve(id)).toMatchObject({ status: 'completed' });
    },
  );

  it('is neither listed nor accepted as a cursor', async () => {
    const { id } = await client().videos.create(smallRequest);
    const stranger = await world.stranger();
    expect((await stranger.ai.listClientVideos()).data).toEqual([]);
    await expect(stranger.ai.listClientVideos({ after: id })).rejects.toMatchObject({ status: 404 });
  });
});

describe('ai.getClientVideoContent', { timeout: 120_000 }, () => {
  it('forbids caches to store the video', async () => {
    const { id } = await makeVideo();
    const content = await client().videos.downloadContent(id);
    expect(content.headers.get('cache-control')).toBe('no-store');
    await content.body?.cancel();
  });

  it('is 404 before the video is ready', async () => {
    const { id } = await client().videos.create(waitingRequest);
    await expect(client().videos.downloadContent(id)).rejects.toMatchObject({
      status: 404,
      code: 'media_not_found',
    });
    await client().videos.delete(id);
  });

  it('is 404 for an unknown video', async () => {
    await expect(client().videos.downloadContent('job_01jd6zv0c5e9fsr8m2w4x1k7qa')).rejects.toMatchObject({
      status: 404,
      code: 'job_not_found',
    });
  });
});

describe('ai.removeClientVideo', { timeout: 120_000 }, () => {
  it('deletes the video with its file and links', async () => {
    const { id } = await makeVideo();
    const job = await world.user.ai.startVideo({ job_id: id });
    const url = 'videos' in job ? job.videos[0]?.url : undefined;
    expect(await client().videos.delete(id)).toEqual({ id, object: 'video.deleted', deleted: true });
    await expect(client().videos.retrieve(id)).rejects.toMatchObject({ status: 404 });
    expect((await fetch(url ?? '')).status).toBe(404);
  });

  it('cancels a video that is not ready', async () => {
    const { id } = await client().videos.create(waitingRequest);
    await client().videos.delete(id);
    const rows = await world.sql`select status from gateway.ai_jobs where job_id = ${id}`;
    expect(rows).toEqual([{ status: 'canceled' }]);
  });

  it('is 404 the second time', async () => {
    const { id } = await client().videos.create(waitingRequest);
    await client().videos.delete(id);
    await expect(client().videos.delete(id)).rejects.toMatchObject({ status: 404, code: 'job_not_found' });
  });
});

describe('ai.listClientVideos', { timeout: 120_000 }, () => {
  it('pages through all videos of the caller', async () => {
    const ids: string[] = [];
    for (let count = 0; count < 3; count += 1) ids.push((await client().videos.create(waitingRequest)).id);
    const pages: string[] = [];
    for await (const video of client().videos.list({ limit: 2 })) pages.push(video.id);
    expect(pages.slice(0, 3)).toEqual(ids.toReversed());
    expect(new Set(pages).size).toBe(pages.length);
    const oldestIds: string[] = [];
    for await (const video of client().videos.list({ limit: 2, order: 'asc' })) oldestIds.push(video.id);
    expect(oldestIds).toEqual(pages.toReversed());
    for (const id of ids) await client().videos.delete(id);
  });

  it('omits deleted videos', async () => {
    const { id } = await client().videos.create(waitingRequest);
    await client().videos.delete(id);
    const { data } = await client().videos.list();
    expect(data.map((video) => video.id)).not.toContain(id);
  });

  it('is 404 for a cursor that is not a video of the caller', async () => {
    await expect(client().videos.list({ after: 'job_01jd6zv0c5e9fsr8m2w4x1k7qa' })).rejects.toMatchObject({
      status: 404,
      code: 'job_not_found',
      param: 'after',
    });
  });
});
