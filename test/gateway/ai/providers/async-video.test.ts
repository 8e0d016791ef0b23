// Videos of providers, through the gateway and its database: the requests of each
// format, and submissions that fail, are canceled or have their result on another host.
import { createServer, type Server } from 'node:http';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AcceptedJob, StartVideoRequest, VideoJob } from '@townhall/gateway';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startGateway, type GatewayWorld } from '../../../support/gateway.ts';
import {
  scriptedPicture,
  startProvider,
  type ProviderCall,
  type ScriptedProvider,
} from '../../../support/provider.ts';
import { scriptedFilm } from '../../../support/provider-videos.ts';
import { download, formOf, waitForVideo, videosOf } from '../media/media-world.ts';
import { listen } from '../../../support/local-server.ts';

// The scripted film lasts 4 seconds, so it costs 100 credits.
const rates = { video_second: 25 };
const maxBytes = 200_000;
const scripts = {
  film: 'film?polls=2',
  busy: 'film?failing=3',
  vanished: 'film-vanished',
  failing: 'film-failed?code=server_error&message=disk%20on%20fire',
  refused: 'film-failed',
  forever: 'film-forever',
  cut: 'film-cut',
  garbage: 'film-garbage',
  large: `film-large?bytes=${maxBytes + 1}`,
  unknown: 'status?code=400&message=no%20such%20size&error_code=invalid_size',
};

let provider: ScriptedProvider;
let world: GatewayWorld;
let folder: string;
/** A server on another origin that records its requests. */
let otherHost: { server: Server; url: string; requests: Record<string, unknown>[] };

/** The models file; `filmUrl` is the encoded address of a film on the other host. */
function videoModels(filmUrl: string): string {
  const members = { modalities: ['video'], rates };
  const google = {
    film: 'film~polls=1',
    held: 'film-held~message=not%20this',
    failing: 'film-failed~message=no%20such%20voice',
    elsewhere: `film~to=${filmUrl}`,
    forever: 'film-forever',
  };
  const xai = { film: 'film?polls=1&xai=1', held: 'film-held?xai=1', elsewhere: `film?xai=1&to=${filmUrl}` };
  const modelsOf = (owner: string, ownScripts: Record<string, string>) =>
    Object.entries(ownScripts).map(([name, script]) => ({
      id: `${owner}/${name}`,
      provider: owner,
      upstream_model: script,
      ...members,
    }));
  const acme = (name: string, script: string, overrides: object) => ({
    id: `acme/${name}`,
    provider: 'acme',
    upstream_model: script,
    ...members,
    ...overrides,
  });
  const ratesByLines = { video_second: 25, video_second_720: 40, video_second_1080: 100 };
  return provider.modelsFile(
    { ...scripts, moved: `film-elsewhere?to=${filmUrl}` },
    {
      model: members,
      providers: [
        { id: 'goog', kind: 'google', base_url: provider.url, api_key_env: 'GOOG_API_KEY' },
        {
          id: 'grok',
          kind: 'openai-compatible',
          base_url: provider.url,
          api_key_env: 'GROK_API_KEY',
          video_format: 'xai',
        },
      ],
      models: [
        ...modelsOf('goog', google),
        ...modelsOf('grok', xai),
        acme('text-only', 'film', { inputs: ['text'] }),
        acme('second', 'status?code=503&retry_after=0', { fallbacks: ['acme/film'] }),
        acme('by-lines', 'film?polls=1', { rates: ratesByLines }),
        acme('by-lines-later', 'film-forever', { rates: ratesByLines }),
        acme('unpriced', 'film', { rates: { input: 1 } }),
      ],
    },
  );
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-films-'));
  provider = await startProvider();
  otherHost = await startOtherHost();
  const modelsFile = join(folder, 'models.json');
  await writeFile(modelsFile, videoModels(encodeURIComponent(`${otherHost.url}/film.mp4`)));
  world = await startGateway({
    withAdmin: true,
    env: {
      ACME_API_KEY: 'key-of-acme',
      GOOG_API_KEY: 'key-of-goog',
      GROK_API_KEY: 'key-of-grok',
      STORAGE_PATH: join(folder, 'storage'),
      MODELS_FILE: modelsFile,
      STARTING_CREDITS: '1000000',
      VIDEO_POLL_MS: '20',
      VIDEO_MAX_BYTES: String(maxBytes),
      TIMEOUT_DRAIN_MS: '1000',
    },
  });
});
afterAll(async () => {
  await world?.close();
  await provider?.close();
  otherHost?.server.close();
  await rm(folder, { recursive: true, force: true });
});
beforeEach(() => {
  provider.reset();
  otherHost.requests.length = 0;
});

const start = async (model: string, overrides: Partial<StartVideoRequest> = {}): Promise<string> =>
  ((await world.user.ai.startVideo({ model, prompt: 'a boat', ...overrides })) as AcceptedJob).job_id;
const generate = async (model: string, overrides: Partial<StartVideoRequest> = {}): Promise<VideoJob> =>
  waitForVideo(world.user, await start(model, overrides));
const submissions = (): ProviderCall[] => provider.calls.filter(({ method }) => method === 'POST');
const heldCredits = async () => (await world.user.credits.getBalance()).held;
const listStoredFiles = () => readdir(join(folder, 'storage')).catch(() => []);

async function startOtherHost(): Promise<typeof otherHost> {
  const requests: Record<string, unknown>[] = [];
  const server = createServer((request, response) => {
    requests.push({ ...request.headers, url: request.url });
    response.end(scriptedFilm());
  });
  server.on('connection', () => requests.push({ connected: true }));
  return { server, requests, url: (await listen(server)).url };
}

describe('ai.startVideo on a provider', { timeout: 60_000 }, () => {
  const openaiVideo: Partial<StartVideoRequest> = {
    duration_seconds: 4,
    size: '1280x720',
    seed: 7,
    provider_options: { style: 'noir' },
    images: [{ data: scriptedPicture.toString('base64'), media_type: 'image/png' }],
  };

  it('generates and charges a video in OpenAI’s format', async () => {
    const postedBefore = (await world.user.credits.getBalance()).posted;
    const job = await generate('acme/film', openaiVideo);
    expect(job).toMatchObject({
      status: 'succeeded',
      progress: 1,
      videos: [{ media_type: 'video/mp4', width: 1280, height: 720, duration_seconds: 4 }],
      metadata: { model: 'acme/film', credits: 100 },
    });
    const { bytes, headers } = await download(videosOf(job)[0]?.url ?? '');
    expect(bytes).toEqual(scriptedFilm());
    expect(headers.get('content-type')).toBe('video/mp4');
    expect(provider.calls.map(({ method, path }) => `${method} ${path.replace(/video_\d+/, 'id')}`)).toEqual([
      'POST /v1/videos',
      'GET /v1/videos/id',
      'GET /v1/videos/id',
      'GET /v1/videos/id',
      'GET /v1/videos/id/content',
    ]);
    for (const { headers: sentHeaders } of provider.calls)
      expect(sentHeaders.authorization).toBe('Bearer key-of-acme');
    expect(postedBefore - (await world.user.credits.getBalance()).posted).toBe(100);
    expect(await heldCredits()).toBe(0);
  });

  it('submits a form in OpenAI’s format', async () => {
    await generate('acme/film', openaiVideo);
    const [submission] = submissions();
    if (submission === undefined) throw new Error('The provider got no submission.');
    const form = await formOf(submission);
    const picture = form.get('input_reference') as File;
    expect(Buffer.from(await picture.arrayBuffer())).toEqual(scriptedPicture);
    form.delete('input_reference');
    expect(Object.fromEntries(form)).toEqual({
      model: scripts.film,
      prompt: 'a boat',
      seconds: '4',
      size: '1280x720',
      seed: '7',
      style: 'noir',
    });
  });

  it('charges for the generated resolution, at most the requested one', async () => {
    // The scripted film has 720 lines, which cost 40 credits a second. Fewer lines cost 25.
    expect((await generate('acme/by-lines', { duration_seconds: 4 })).metadata.credits).toBe(160);
    expect(
      (await generate('acme/by-lines', { duration_seconds: 4, size: '1920x1080' })).metadata.credits,
    ).toBe(160);
    expect((await generate('acme/by-lines', { duration_seconds: 4, size: '480x854' })).metadata.credits).toBe(
      100,
    );
    expect(await heldCredits()).toBe(0);
  });

  // Four seconds at 100 credits for 1080 lines, 40 for 720 and 25 for fewer.
  it.each([
    [{}, 400],
    [{ size: '1920x1080' }, 400],
    [{ size: '720x1280' }, 160],
    [{ size: '854x480' }, 100],
  ])('holds the rate of the requested resolution or the highest: %j', async (members, credits) => {
    const job = await start('acme/by-lines-later', { duration_seconds: 4, ...members });
    expect(await heldCredits()).toBe(credits);
    await world.user.ai.startVideo({ job_id: job, cancel: true });
    await expect.poll(heldCredits).toBe(0);
  });

  it('generates a video in Google’s format', async () => {
    const job = await generate('goog/film', {
      duration_seconds: 4,
      size: '720x1280',
      seed: 3,
      provider_options: { negativePrompt: 'rain' },
      images: [{ data: scriptedPicture.toString('base64'), media_type: 'image/png' }],
    });
    expect(job).toMatchObject({
      status: 'succeeded',
      videos: [{ duration_seconds: 4 }],
      metadata: { model: 'goog/film', credits: 100 },
    });
    const [submission, ...furtherCalls] = provider.calls;
    expect(submission?.path).toBe('/v1/models/film~polls%3D1:predictLongRunning');
    expect(JSON.parse(submission?.body.toString() ?? '')).toEqual({
      instances: [
        {
          prompt: 'a boat',
          image: { bytesBase64Encoded: scriptedPicture.toString('base64'), mimeType: 'image/png' },
        },
      ],
      parameters: {
        durationSeconds: 4,
        resolution: '720p',
        aspectRatio: '9:16',
        seed: 3,
        negativePrompt: 'rain',
      },
    });
    expect(
      provider.calls.every(
        ({ headers }) => headers['x-goog-api-key'] === 'key-of-goog' && headers.authorization === undefined,
      ),
    ).toBe(true);
    expect(furtherCalls.at(-1)?.path).toMatch(/^\/v1\/files\/video_\d+:download\?alt=media$/);
  });

  it('generates a video in xAI’s format', async () => {
    const job = await generate('grok/film', { duration_seconds: 4, size: '1280x720' });
    expect(job).toMatchObject({ status: 'succeeded', metadata: { model: 'grok/film', credits: 100 } });
    expect(submissions()[0]?.path).toBe('/v1/videos/generations');
    expect(JSON.parse(submissions()[0]?.body.toString() ?? '')).toEqual({
      model: 'film?polls=1&xai=1',
      prompt: 'a boat',
      duration: 4,
      resolution: '720p',
      aspect_ratio: '16:9',
    });
  });
});

describe('the job of a video on a provider', { timeout: 60_000 }, () => {
  it('reports the progress of the provider', async () => {
    const jobId = await start('acme/forever');
    await expect
      .poll(async () => ((await world.user.ai.startVideo({ job_id: jobId })) as VideoJob).progress)
      .toBeGreaterThan(0.4);
    await world.user.ai.startVideo({ job_id: jobId, cancel: true });
  });

  it.each([
    [
      'a generation that the provider fails',
      'acme/failing',
      'upstream_failed',
      expect.not.stringContaining('fire'),
    ],
    ['a prompt that is not allowed', 'acme/refused', 'moderation_blocked', 'The prompt is not allowed.'],
    ['a request that the provider refuses', 'acme/unknown', 'invalid_size', 'no such size'],
    [
      'a file that is not a video',
      'acme/garbage',
      'upstream_failed',
      expect.stringContaining('not an MP4 video'),
    ],
    [
      'a video that is too large',
      'acme/large',
      'upstream_failed',
      expect.stringContaining('exceeds 200000 bytes'),
    ],
    [
      'a job that the provider has forgotten',
      'acme/vanished',
      'not_found',
      expect.stringMatching(/^There is no video_\d+\.$/),
    ],
    ['a video that Google filters', 'goog/held', 'content_filtered', 'not this'],
    ['a request that Google fails', 'goog/failing', 'INVALID_ARGUMENT', 'no such voice'],
    ['a video that xAI filters', 'grok/held', 'content_filtered', expect.stringContaining('content policy')],
  ])('charges nothing for %s', async (_name, model, code, message) => {
    const filesBefore = await listStoredFiles();
    const { posted } = await world.user.credits.getBalance();
    const job = await generate(model);
    expect(job).toMatchObject({ status: 'failed', error: { code, message } });
    expect(submissions()).toHaveLength(1);
    await expect.poll(heldCredits).toBe(0);
    expect((await world.user.credits.getBalance()).posted).toBe(posted);
    expect(await listStoredFiles()).toEqual(filesBefore);
  });

  it('downloads a video again after a broken connection', async () => {
    expect(await generate('acme/cut')).toMatchObject({ status: 'succeeded', metadata: { credits: 100 } });
    expect(submissions()).toHaveLength(1);
    expect(provider.calls.filter(({ path }) => path.endsWith('/content'))).toHaveLength(2);
  });

  it('keeps polling a provider that fails temporarily', async () => {
    expect(await generate('acme/busy')).toMatchObject({ status: 'succeeded', metadata: { credits: 100 } });
    expect(submissions()).toHaveLength(1);
  });

  it('falls back when the submission fails', async () => {
    expect(await generate('acme/second')).toMatchObject({ status: 'succeeded', metadata: { credits: 100 } });
    expect(submissions().at(-1)?.script).toBe(scripts.film);
  });

  it('cancels the provider’s job with the video job', async () => {
    const jobId = await start('acme/forever');
    await provider.until((calls) => calls.some(({ method }) => method === 'GET'), 20_000);
    expect(await world.user.ai.startVideo({ job_id: jobId, cancel: true })).toMatchObject({
      status: 'canceled',
    });
    await provider.until((calls) => calls.some(({ method }) => method === 'DELETE'), 20_000);
    const id = /video_\d+/.exec(provider.calls.find(({ method }) => method === 'GET')?.path ?? '')?.[0];
    expect(provider.calls.find(({ method }) => method === 'DELETE')).toMatchObject({
      path: `/v1/videos/${id}`,
      headers: { authorization: 'Bearer key-of-acme' },
    });
    await expect.poll(heldCredits).toBe(0);
  });

  it.each([
    ['a redirect', 'acme/moved'],
    ['the result of Google', 'goog/elsewhere'],
    ['the result of xAI', 'grok/elsewhere'],
  ])('sends no request to a private address in %s', async (_name, model) => {
    expect(await generate(model)).toMatchObject({
      status: 'failed',
      error: { code: 'upstream_failed', message: expect.stringContaining('not public') },
    });
    expect(otherHost.requests).toEqual([]);
  });
});

describe('an unsupported video', { timeout: 60_000 }, () => {
  it.each([
    [
      'two images',
      'acme/film',
      {
        images: [1, 2].map(() => ({
          data: scriptedPicture.toString('base64'),
          media_type: 'image/png' as const,
        })),
      },
      422,
      'images',
    ],
    [
      'images for a model that takes only text',
      'acme/text-only',
      { images: [{ data: scriptedPicture.toString('base64'), media_type: 'image/png' as const }] },
      422,
      'images',
    ],
    ['a frame rate for Google', 'goog/film', { fps: 24 }, 422, 'fps'],
    ['a size that Google does not offer', 'goog/film', { size: '640x360' }, 422, 'size'],
    ['a seed for xAI', 'grok/film', { seed: 1 }, 422, 'seed'],
    [
      'an option that sends the video to the caller’s storage',
      'goog/film',
      { provider_options: { storageUri: 'gs://x' } },
      400,
      'provider_options.storageUri',
    ],
    [
      'an option that changes the provider’s address',
      'acme/film',
      { provider_options: { base_url: 'http://x' } },
      400,
      'provider_options.base_url',
    ],
    [
      'an option that repeats a member of the request',
      'acme/film',
      { provider_options: { seconds: '12' } },
      400,
      'provider_options.seconds',
    ],
    ['a model without a price for videos', 'acme/unpriced', {}, 422, 'model'],
  ])('is refused without a submission: %s', async (_name, model, members, status, param) => {
    await expect(start(model, members)).rejects.toMatchObject({ status, param });
    expect(provider.calls).toEqual([]);
  });
});
