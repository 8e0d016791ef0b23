// OpenAI's client, unmodified, on the paths of images and audio.
import OpenAI, { toFile } from 'openai';
import type { OpenAiImageList } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { scriptedPicture } from '../../../support/provider.ts';
import { decodePng } from './png-decoder.ts';
import { download, formOf, refusalOf, silence, startMedia, type MediaWorld } from './media-world.ts';

let world: MediaWorld;
beforeAll(async () => {
  world = await startMedia({ withAdmin: true });
});
afterAll(() => world?.close());

const client = (base = '/v1') =>
  new OpenAI({ baseURL: world.url + base, apiKey: world.userToken, maxRetries: 0 });
const prompt = 'Three red circles';

describe.each(['/v1', '/v1/ai'])('images at %s', { timeout: 120_000 }, (base) => {
  it('are links and bytes by default', async () => {
    const { data, created } = await client(base).images.generate({
      model: 'local/shapes',
      prompt,
      size: '128x128' as never,
    });
    const [image] = data ?? [];
    const bytes = Buffer.from(image?.b64_json ?? '', 'base64');
    expect(decodePng(bytes)).toMatchObject({ width: 128, height: 128 });
    expect((await download(image?.url ?? '')).bytes.equals(bytes)).toBe(true);
    expect(created).toBeGreaterThan(1_700_000_000);
  });

  it.each(['url', 'b64_json'] as const)('are only %s on request', async (format) => {
    const members = { n: 2, size: '128x128', response_format: format } as object;
    const { data } = await client(base).images.generate({ model: 'local/shapes', prompt, ...members });
    expect(data?.map((image) => Object.keys(image))).toEqual([[format], [format]]);
  });

  it('start from the files of a form', async () => {
    const files = [1, 2].map((number) => toFile(scriptedPicture, `${number}.png`, { type: 'image/png' }));
    const { data } = await client(base).images.edit({
      model: 'acme/painter',
      prompt,
      image: await Promise.all(files),
      quality: 'high',
    });
    expect(data?.[0]?.b64_json?.length).toBeGreaterThan(0);
    const call = world.provider.lastCall();
    expect(call.path).toBe('/v1/images/edits');
    const form = await formOf(call);
    expect(form.getAll('image[]')).toHaveLength(2);
    expect(form.get('quality')).toBe('high');
  });
});

describe('images', { timeout: 120_000 }, () => {
  const generate = (model: string, members: object = {}) =>
    client().images.generate({ model, prompt, ...members });

  it('send output options to the provider, but not the value auto', async () => {
    await generate('acme/painter', { quality: 'hd', background: 'auto' });
    const request = JSON.parse(world.provider.lastCall().body.toString()) as object;
    expect(request).toMatchObject({ prompt, n: 1, quality: 'hd' });
    expect(request).not.toHaveProperty('background');
  });

  it.each([
    ['an unknown model', 'local/none', 404, 'model_not_found'],
    ['a model for speech', 'local/flite', 422, 'unsupported_by_model'],
    ['a refusal of the provider', 'acme/refusing', 400, 'invalid_size'],
    ['a provider that fails', 'acme/broken', 502, 'upstream_failed'],
  ])('fail for %s', async (_name, model, status, code) => {
    await expect(generate(model)).rejects.toMatchObject({ status, code });
  });

  it('refuse a mask', async () => {
    const file = await toFile(scriptedPicture, 'a.png', { type: 'image/png' });
    await expect(
      client().images.edit({ model: 'acme/painter', prompt, image: file, mask: file }),
    ).rejects.toMatchObject({ status: 422, param: 'mask' });
  });

  it('refuse a file that is not an image', async () => {
    const file = await toFile(Buffer.from('text'), 'a.png', { type: 'image/png' });
    await expect(client().images.edit({ model: 'acme/painter', prompt, image: file })).rejects.toMatchObject({
      status: 400,
      param: 'image',
    });
  });

  it('name the part of a refused file', async () => {
    const file = await toFile(scriptedPicture, 'a.png', { type: 'image/png' });
    await expect(client().images.edit({ model: 'local/shapes', prompt, image: file })).rejects.toMatchObject({
      status: 422,
      code: 'unsupported_by_model',
      param: 'image',
    });
  });

  it('name a refused priced member as the request does', async () => {
    await expect(generate('acme/paid', { quality: 'high' })).rejects.toMatchObject({
      status: 422,
      code: 'unpriced_member',
      param: 'quality',
      message: expect.stringContaining('The member quality is refused'),
    });
  });

  it('refuse a prompt with NUL', async () => {
    const answer = await world.send('/v1/images/generations', { model: 'local/shapes', prompt: 'a\0b' });
    expect(answer.status).toBe(400);
  });

  it('refuse a form with two files of one name', async () => {
    const form = new FormData();
    for (const [name, value] of Object.entries({ model: 'acme/painter', prompt })) form.set(name, value);
    for (const _ of [1, 2]) form.append('image', new Blob([scriptedPicture], { type: 'image/png' }), 'a.png');
    const answer = await fetch(`${world.url}/v1/images/edits`, {
      method: 'POST',
      headers: { authorization: `Bearer ${world.userToken}` },
      body: form,
    });
    expect(await refusalOf(answer)).toMatchObject([400, { code: 'duplicate_member' }]);
  });

  it('cancel their job when the client disconnects', async () => {
    const disconnection = new AbortController();
    const callCount = world.provider.calls.length;
    const call = client().images.generate({ model: 'acme/slow', prompt }, { signal: disconnection.signal });
    await world.provider.until((calls) => calls.length > callCount);
    disconnection.abort();
    await expect(call).rejects.toThrow('aborted');
    const readJob = () => world.sql`select status from gateway.ai_jobs order by created_at desc limit 1`;
    await expect.poll(readJob, { timeout: 10_000 }).toEqual([{ status: 'canceled' }]);
  });

  it('of a paid model are charged like jobs', async () => {
    const { available: creditsBefore } = await world.user.credits.getBalance();
    const { response } = await client().images.generate({ model: 'acme/paid', prompt }).withResponse();
    expect(response.headers.get('x-townhall-credits')).toBe('40000');
    const { available: creditsAfter } = await world.user.credits.getBalance();
    expect(creditsBefore - creditsAfter).toBe(40_000);
  });

  it('of a paid model are 402 without enough credits', async () => {
    const { available } = await world.user.credits.getBalance();
    const { user } = await world.user.accounts.getMe();
    // Leaves 30 credits, and an image costs 40,000.
    const change = { user_id: user.user_id, credits: available - 30, reason: 'a test' };
    await world.admin.credits.deductCredits(change);
    await expect(generate('acme/paid')).rejects.toMatchObject({ status: 402, code: 'insufficient_credits' });
    await world.admin.credits.grantCredits(change);
  });
});

describe('images with an Idempotency-Key', { timeout: 120_000 }, () => {
  let keys = 0;
  const newKey = () => `images ${++keys}`;
  const generate = (key: string, model: string, members: object = {}) =>
    world.send(
      '/v1/images/generations',
      { model, prompt, ...members },
      { headers: { 'idempotency-key': key } },
    );
  const balance = async () => (await world.user.credits.getBalance()).posted;
  const countJobs = async () => {
    const [row] = await world.sql<{ count: bigint }[]>`select count(*) as count from gateway.ai_jobs`;
    return Number(row?.count);
  };

  it('above 64 KiB are replayed and charged once', async () => {
    const key = newKey();
    const balanceBefore = await balance();
    const firstAnswer = await generate(key, 'acme/paid-large');
    const body = await firstAnswer.text();
    expect([firstAnswer.status, firstAnswer.headers.get('x-townhall-credits')]).toEqual([200, '40000']);
    expect(body.length).toBeGreaterThan(64 * 1024);
    const secondAnswer = await generate(key, 'acme/paid-large');
    expect([secondAnswer.status, secondAnswer.headers.get('idempotent-replayed')]).toEqual([200, 'true']);
    const images = (text: string) =>
      (JSON.parse(text) as OpenAiImageList).data.map(({ b64_json }) => b64_json);
    expect(images(await secondAnswer.text())).toEqual(images(body));
    expect(balanceBefore - (await balance())).toBe(40_000);
  });

  it('are generated once for two concurrent calls', async () => {
    const key = newKey();
    const balanceBefore = await balance();
    const jobsBefore = await countJobs();
    const callCount = world.provider.calls.length;
    const firstCall = generate(key, 'acme/paid-later');
    await world.provider.until((calls) => calls.length > callCount);
    const [firstAnswer, secondAnswer] = await Promise.all([firstCall, generate(key, 'acme/paid-later')]);
    expect([firstAnswer.status, secondAnswer.status]).toEqual([200, 200]);
    expect((await countJobs()) - jobsBefore).toBe(1);
    expect(balanceBefore - (await balance())).toBe(40_000);
  });

  it('are returned when a client that has disconnected repeats the call', async () => {
    const key = newKey();
    const balanceBefore = await balance();
    const callCount = world.provider.calls.length;
    const disconnection = new AbortController();
    const call = client().images.generate(
      { model: 'acme/paid-later', prompt },
      { signal: disconnection.signal, headers: { 'idempotency-key': key } },
    );
    await world.provider.until((calls) => calls.length > callCount);
    disconnection.abort();
    await expect(call).rejects.toThrow('aborted');
    const secondAnswer = await generate(key, 'acme/paid-later');
    expect([secondAnswer.status, world.provider.calls.length - callCount]).toEqual([200, 1]);
    expect(balanceBefore - (await balance())).toBe(40_000);
  });

  it('repeat a failure without another call of the provider', async () => {
    const key = newKey();
    const firstAnswer = await generate(key, 'acme/refusing');
    const callCount = world.provider.calls.length;
    const secondAnswer = await generate(key, 'acme/refusing');
    expect([firstAnswer.status, secondAnswer.status]).toEqual([400, 400]);
    expect(world.provider.calls.length).toBe(callCount);
  });

  it('are 422 with another size', async () => {
    const key = newKey();
    expect((await generate(key, 'local/shapes', { size: '64x64' })).status).toBe(200);
    const secondAnswer = await generate(key, 'local/shapes', { size: '128x128' });
    expect(await refusalOf(secondAnswer)).toMatchObject([422, { code: 'idempotency_key_reused' }]);
  });

  it('are 409 once their files are deleted', async () => {
    const key = newKey();
    expect((await generate(key, 'local/shapes', { size: '64x64' })).status).toBe(200);
    await world.sql`update gateway.ai_media set keep_until = gateway.townhall_now()`;
    const secondAnswer = await generate(key, 'local/shapes', { size: '64x64' });
    expect(await refusalOf(secondAnswer)).toMatchObject([409, { code: 'result_not_replayable' }]);
  });

  it('from a form are replayed although its boundary differs', async () => {
    const key = newKey();
    const edit = async () => {
      const image = await toFile(scriptedPicture, 'a.png', { type: 'image/png' });
      const options = { headers: { 'idempotency-key': key } };
      return client().images.edit({ model: 'acme/painter', prompt, image }, options).withResponse();
    };
    await edit();
    const callCount = world.provider.calls.length;
    const { response } = await edit();
    expect(response.headers.get('idempotent-replayed')).toBe('true');
    expect(world.provider.calls.length).toBe(callCount);
  });
});

describe.each(['/v1', '/v1/ai'])('audio at %s', { timeout: 60_000 }, (base) => {
  it('is synthesized by a local model', async () => {
    const answer = await client(base).audio.speech.create({
      model: 'local/flite',
      input: 'Good morning.',
      voice: undefined as never,
    });
    expect(answer.headers.get('content-type')).toBe('audio/wav');
    expect(Buffer.from(await answer.arrayBuffer()).toString('latin1', 0, 4)).toBe('RIFF');
  });

  it('is synthesized by a provider with the requested options', async () => {
    await client(base).audio.speech.create({
      model: 'acme/speaker',
      input: 'Hello',
      voice: 'alloy',
      response_format: 'opus',
      speed: 1.5,
    });
    expect(JSON.parse(world.provider.lastCall().body.toString())).toMatchObject({
      input: 'Hello',
      voice: 'alloy',
      response_format: 'opus',
      speed: 1.5,
    });
  });

  it.each([
    ['input', { input: '\u4f60\u597d' }],
    ['response_format', { input: 'Hello', response_format: 'opus' as const }],
  ])('is refused with the name of the member %s', async (param, members) => {
    await expect(
      client(base).audio.speech.create({ model: 'local/flite', voice: undefined as never, ...members }),
    ).rejects.toMatchObject({ status: 422, param });
  });

  const transcribe = async (members: object) =>
    client(base).audio.transcriptions.create({
      model: 'acme/whisper',
      file: await toFile(silence, 'a.wav', { type: 'audio/wav' }),
      ...members,
    });

  it('is transcribed as JSON', async () => {
    expect(await transcribe({ language: 'en' })).toEqual({ text: 'Good morning.' });
  });

  it('is transcribed with its segments', async () => {
    const members = { response_format: 'verbose_json', timestamp_granularities: ['segment'] };
    expect(await transcribe(members)).toEqual({
      task: 'transcribe',
      text: 'Good morning.',
      language: 'en',
      duration: 1.5,
      segments: [{ id: 0, start: 0, end: 1.25, text: 'Good morning.' }],
    });
  });

  it.each([
    ['text', 'Good morning.\n'],
    ['srt', '1\n00:00:00,000 --> 00:00:01,250\nGood morning.\n'],
    ['vtt', 'WEBVTT\n\n00:00:00.000 --> 00:00:01.250\nGood morning.\n'],
  ])('is transcribed as %s', async (format, text) => {
    expect(await transcribe({ response_format: format })).toBe(text);
  });

  it.each([
    ['temperature', { temperature: 0.5 }],
    ['timestamp_granularities[]', { timestamp_granularities: ['word'] }],
  ])('is refused with %s', async (param, members) => {
    await expect(transcribe(members)).rejects.toMatchObject({ status: 422, param });
  });
});
