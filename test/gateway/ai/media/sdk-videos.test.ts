// The video models of the AI SDK's gateway provider, unmodified, in both versions.
import * as ai7 from 'ai';
import { createGateway as createGateway3 } from 'ai-gateway3';
import { createGateway as createGateway4 } from 'ai-gateway4';
import * as ai6 from 'ai6';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { scriptedPicture } from '../../../support/provider.ts';
import { refusalOf, startMedia, type MediaWorld } from './media-world.ts';

let world: MediaWorld;
beforeAll(async () => {
  world = await startMedia({ withAdmin: true, env: { VIDEO_POLL_MS: '100' } });
});
afterAll(() => world?.close());

const settings = () => ({ baseURL: `${world.url}/v1/ai`, apiKey: world.userToken });
const generateVideo = ai7.experimental_generateVideo;
const video = (id: string) => createGateway4(settings()).videoModel(id);
const request = { prompt: 'A red circle on blue.', resolution: '64x64' as const, duration: 1 };
const picture = { type: 'file', mediaType: 'image/png', data: scriptedPicture.toString('base64') };
const isFilm = (bytes: Uint8Array) => Buffer.from(bytes).toString('latin1', 4, 8) === 'ftyp';

const send = (path: string, model: string, body: object, headers: Record<string, string> = {}) =>
  world.send(`/v1/ai/video-model${path}`, body, { headers: { 'ai-model-id': model, ...headers } });
/** The only event of the stream. */
const eventOf = async (answer: Response) =>
  JSON.parse(/^data: (.*)$/m.exec(await answer.text())?.[1] ?? 'null') as Record<string, unknown>;
const statusOf = async (operation: unknown) => {
  const answer = await send('/status', 'local/storyboard', { operation });
  return (await answer.json()) as Record<string, unknown>;
};

describe('generateVideo', { timeout: 120_000 }, () => {
  it('waits for a video in ai 7', async () => {
    const { video: film, providerMetadata } = await generateVideo({
      model: video('local/storyboard'),
      ...request,
    });
    expect(isFilm(film.uint8Array)).toBe(true);
    expect(film.mediaType).toBe('video/mp4');
    expect(providerMetadata).toMatchObject({ townhall: { credits: 0 } });
  });

  it('waits for a video in ai 6', async () => {
    const model = createGateway3(settings()).videoModel('local/storyboard');
    const { video: film } = await ai6.experimental_generateVideo({ model, ...request });
    expect(isFilm(film.uint8Array)).toBe(true);
  });

  it('polls a video that it has started', async () => {
    const poll = { intervalMs: 50, timeoutMs: 60_000 };
    const { video: film } = await generateVideo({ model: video('local/storyboard'), ...request, poll });
    expect(isFilm(film.uint8Array)).toBe(true);
  });

  it('makes several videos with one call each', async () => {
    const { videos } = await generateVideo({
      model: video('local/storyboard'),
      ...request,
      n: 2,
      maxVideosPerCall: 1,
    });
    expect(videos.map(({ uint8Array }) => isFilm(uint8Array))).toEqual([true, true]);
  });

  it('throws the error of a failed job', async () => {
    const failure = generateVideo({ model: video('acme/film-failed'), prompt: 'A boat', maxRetries: 0 });
    await expect(failure).rejects.toThrow('The prompt is not allowed.');
  });
});

describe('ai.generateSdkVideo', { timeout: 120_000 }, () => {
  it.each([
    ['an unknown model', 'acme/none', {}, 404, 'model_not_found', 'model'],
    ['a model for speech', 'local/flite', {}, 422, 'unsupported_by_model', 'model'],
    ['several videos', 'acme/film-forever', { n: 2 }, 422, 'unsupported_by_model', 'n'],
    [
      'a last frame',
      'acme/film-forever',
      { frameImages: [{ image: picture, frameType: 'last_frame' }] },
      422,
      'unsupported_by_model',
      'frameImages[0]',
    ],
    [
      'two images',
      'acme/film-forever',
      { image: picture, frameImages: [{ image: picture, frameType: 'first_frame' }] },
      422,
      'unsupported_by_model',
      'frameImages',
    ],
    [
      'a reference file',
      'acme/film-forever',
      { inputReferences: [picture] },
      422,
      'unsupported_by_model',
      'inputReferences',
    ],
    [
      'the URL of an image',
      'acme/film-forever',
      { image: { type: 'url', url: 'http://127.0.0.1:1/a.png' } },
      422,
      'unsupported_by_model',
      'image',
    ],
    [
      'a file that is not an image',
      'acme/film-forever',
      { image: { type: 'file', data: 'AAAA' } },
      400,
      'invalid_request',
      'image',
    ],
    [
      'an option of unknown price',
      'acme/film-paid',
      { providerOptions: { acme: { quality: 'high' } } },
      422,
      'unpriced_member',
      'providerOptions.acme.quality',
    ],
    [
      'a size and an aspect ratio',
      'acme/film-forever',
      { resolution: '64x64', aspectRatio: '1:1' },
      400,
      'invalid_request',
      'aspectRatio',
    ],
  ])('refuses %s', async (_name, model, members, status, code, param) => {
    const answer = await send('', model, { prompt: 'A boat', ...members });
    expect(await refusalOf(answer)).toMatchObject([status, { code, param }]);
  });

  it('warns about options that have no effect', async () => {
    const answer = await send('', 'local/storyboard', {
      ...request,
      generateAudio: true,
      providerOptions: { other: { style: 'x' } },
    });
    expect(await eventOf(answer)).toMatchObject({
      type: 'result',
      warnings: [{ feature: 'generateAudio' }, { feature: 'providerOptions.other' }],
    });
  });

  it('ends with the error of a failed job', async () => {
    const answer = await send('', 'acme/film-failed', { prompt: 'A boat' });
    expect([answer.status, await eventOf(answer)]).toMatchObject([
      200,
      { type: 'error', statusCode: expect.any(Number), errorType: expect.any(String) },
    ]);
  });

  it('cancels the video when the caller disconnects', async () => {
    const disconnection = new AbortController();
    const answer = await fetch(`${world.url}/v1/ai/video-model`, {
      method: 'POST',
      signal: disconnection.signal,
      headers: {
        'content-type': 'application/json',
        authorization: `Bearer ${world.userToken}`,
        'ai-model-id': 'acme/film-forever',
      },
      body: JSON.stringify({ prompt: 'A boat' }),
    });
    expect(answer.status).toBe(200);
    const videos = async () => (await world.user.ai.listClientVideos({ limit: 1 })).data;
    expect((await videos())[0]).toMatchObject({ model: 'acme/film-forever' });
    disconnection.abort();
    await expect.poll(videos, { timeout: 10_000 }).toMatchObject([{ error: { code: 'canceled' } }]);
  });

  it('creates one job for a repeated call', async () => {
    const key = { 'idempotency-key': 'one film' };
    const firstEvent = await eventOf(await send('', 'local/storyboard', request, key));
    const secondEvent = await eventOf(await send('', 'local/storyboard', request, key));
    expect(secondEvent['providerMetadata']).toEqual(firstEvent['providerMetadata']);
    expect(secondEvent['type']).toBe('result');
  });
});

describe('ai.startSdkVideo', { timeout: 120_000 }, () => {
  it.each([
    ['an unknown model', 'acme/none', {}, 404, 'model_not_found', 'model'],
    ['a model for speech', 'local/flite', {}, 422, 'unsupported_by_model', 'model'],
    [
      'a callback URL',
      'acme/film-forever',
      { callbackUrl: 'https://example.com' },
      422,
      'unsupported_by_model',
      'callbackUrl',
    ],
    [
      'an option of unknown price',
      'acme/film-paid',
      { providerOptions: { acme: { quality: 'high' } } },
      422,
      'unpriced_member',
      'providerOptions.acme.quality',
    ],
  ])('refuses %s', async (_name, model, members, status, code, param) => {
    const answer = await send('/start', model, { prompt: 'A boat', ...members });
    expect(await refusalOf(answer)).toMatchObject([status, { code, param }]);
  });

  it('starts from the first frame', async () => {
    const frameImages = [{ image: picture, frameType: 'first_frame' }];
    const answer = await send('/start', 'acme/film-forever', { prompt: 'A boat', frameImages });
    const { operation } = (await answer.json()) as { operation: { job_id: string } };
    const hasArrived = () => world.provider.calls.some(({ body }) => body.includes(scriptedPicture));
    await expect.poll(hasArrived, { timeout: 10_000 }).toBe(true);
    await world.user.ai.removeClientVideo({ video_id: operation.job_id });
  });

  it('starts one job for a repeated call', async () => {
    const key = { 'idempotency-key': 'one start' };
    const firstAnswer = await send('/start', 'local/storyboard', request, key);
    const secondAnswer = await send('/start', 'local/storyboard', request, key);
    expect(await secondAnswer.json()).toEqual(await firstAnswer.json());
  });
});

describe('ai.getSdkVideo', { timeout: 120_000 }, () => {
  const start = async (model: string) => {
    const answer = await send('/start', model, { prompt: 'A boat' });
    return ((await answer.json()) as { operation: { job_id: string } }).operation;
  };

  it('is pending while the job runs', async () => {
    const operation = await start('acme/film-forever');
    expect(await statusOf(operation)).toEqual({ status: 'pending' });
    await world.user.ai.removeClientVideo({ video_id: operation.job_id });
  });

  it('is cancelled after a cancellation', async () => {
    const operation = await start('acme/film-forever');
    await world.user.ai.startVideo({ job_id: operation.job_id, cancel: true });
    expect(await statusOf(operation)).toEqual({ status: 'cancelled' });
  });

  it('has the error of a failed job', async () => {
    const operation = await start('acme/film-failed');
    await expect
      .poll(() => statusOf(operation), { timeout: 30_000 })
      .toEqual({ status: 'error', error: expect.any(String) });
  });

  it('is 404 for an unknown job', async () => {
    const operation = { job_id: `job_${'0'.repeat(26)}` };
    const answer = await send('/status', 'local/storyboard', { operation });
    expect(await refusalOf(answer)).toMatchObject([
      404,
      { code: 'job_not_found', param: 'operation.job_id' },
    ]);
  });

  it('is 404 for the job of another user', async () => {
    const operation = await start('acme/film-forever');
    const stranger = await world.stranger();
    await expect(stranger.ai.getSdkVideo({ operation })).rejects.toMatchObject({ status: 404 });
    await world.user.ai.removeClientVideo({ video_id: operation.job_id });
  });
});
