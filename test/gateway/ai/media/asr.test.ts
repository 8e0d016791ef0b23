// Transcription of uploaded audio: forms and JSON, their limits, and slow uploads.
import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rawRequest } from '../../../support/raw-http.ts';
import { formOf, refusalOf, silence, startMedia, type MediaWorld } from './media-world.ts';

let world: MediaWorld;
beforeAll(async () => {
  world = await startMedia();
});
afterAll(() => world?.close());

async function sendForm(
  members: Record<string, string | File>,
  headers: Record<string, string> = {},
): Promise<Response> {
  const form = new FormData();
  for (const [name, value] of Object.entries(members)) form.append(name, value);
  return fetch(`${world.url}/v1/ai/asr`, {
    method: 'POST',
    headers: { authorization: `Bearer ${world.userToken}`, ...headers },
    body: form,
  });
}

const file = new File([silence], 'my "own"\nname.wav', { type: 'audio/wav' });

describe('ai.transcribeAudio', { timeout: 60_000 }, () => {
  it('sends the audio of a form unchanged to the provider', async () => {
    const response = await sendForm({ model: 'acme/whisper', file, language: 'en', prompt: 'Townhall' });
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({
      text: 'Good morning.',
      segments: [{ text: 'Good morning.', start_second: 0, end_second: 1.25 }],
      language: 'en',
      duration_seconds: 1.5,
    });
    const call = world.provider.lastCall();
    expect(call.path).toBe('/v1/audio/transcriptions');
    const form = await formOf(call);
    expect(Object.fromEntries([...form].filter(([, value]) => typeof value === 'string'))).toEqual({
      model: 'whisper',
      response_format: 'verbose_json',
      'timestamp_granularities[]': 'segment',
      language: 'en',
      prompt: 'Townhall',
    });
    const uploadedFile = form.get('file') as File;
    expect(Buffer.from(await uploadedFile.arrayBuffer())).toEqual(silence);
    // The caller's file name is replaced: it tells the provider nothing and could identify its
    // owner.
    expect([uploadedFile.name, uploadedFile.type]).toEqual(['audio.wav', 'audio/wav']);
  });

  it('reads the duration from the audio when the provider reports none', async () => {
    const answer = await world.user.ai.transcribeAudio({
      model: 'acme/listener',
      audio: silence.toString('base64'),
      media_type: 'audio/wav',
    });
    expect(answer).toEqual({ text: 'Good morning.', segments: [], language: null, duration_seconds: 0.5 });
  });

  it.each<[string, Record<string, string | File>, number, string | null]>([
    ['a form without a file', { model: 'acme/whisper' }, 400, 'file'],
    ['a form without a model', { file }, 400, 'model'],
    ['a file that is text', { model: 'acme/whisper', file: 'hello' }, 400, 'file'],
    ['a model that is a file', { model: file, file }, 400, 'model'],
    ['an unknown member', { model: 'acme/whisper', file, base_url: 'http://x' }, 400, 'base_url'],
    [
      'an empty file',
      { model: 'acme/whisper', file: new File([], 'a.wav', { type: 'audio/wav' }) },
      400,
      'file',
    ],
    ['an invalid language', { model: 'acme/whisper', file, language: '../x' }, 400, 'language'],
    ['a model that cannot transcribe', { model: 'local/flite', file }, 422, 'model'],
  ])('refuses %s', async (_name, members, status, param) => {
    const response = await sendForm(members);
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { param } });
  });

  const part = (name: string) => `--b\r\ncontent-disposition: form-data; name="${name}"\r\n\r\nx\r\n`;
  const formType = 'multipart/form-data; boundary=b';
  const manyParts = Array.from({ length: 100 }, (_, index) => part(`m${index}`)).join('');
  const send = (type: string, body: string) =>
    fetch(`${world.url}/v1/ai/asr`, {
      method: 'POST',
      headers: { authorization: `Bearer ${world.userToken}`, 'content-type': type },
      body,
    });
  it.each([
    [
      'without a boundary',
      'multipart/form-data',
      'x',
      { message: 'The Content-Type of the form must name a boundary.' },
    ],
    ['without parts', formType, 'garbage', { message: 'The body is not a valid form.' }],
    [
      'with a repeated member',
      formType,
      `${part('model')}${part('model')}--b--\r\n`,
      { code: 'duplicate_member', param: 'model' },
    ],
    [
      'with a hundred members',
      formType,
      `${manyParts}--b--\r\n`,
      { message: 'A form may have 64 parts at most.' },
    ],
    [
      'with __proto__',
      formType,
      `${part('__proto__')}${part('model')}${part('file"; filename="a.wav')}--b--\r\n`,
      { param: '__proto__' },
    ],
  ])('refuses a form %s', async (_name, type, body, error) => {
    expect(await refusalOf(await send(type, body))).toMatchObject([
      400,
      { code: 'invalid_request', ...error },
    ]);
  });

  it('refuses another media type', async () => {
    expect(await refusalOf(await send('text/plain', 'x'))).toMatchObject([
      415,
      { code: 'unsupported_media_type' },
    ]);
  });

  it('accepts 25 MiB of audio', async () => {
    const largestFile = Buffer.alloc(25 * 1024 * 1024);
    const answer = await world.user.ai.transcribeAudio({
      model: 'acme/listener',
      audio: largestFile.toString('base64'),
      media_type: 'audio/wav',
    });
    expect(answer.text).toBe('Good morning.');
    expect(world.provider.lastCall().body.length).toBeGreaterThan(largestFile.length);
  });

  it('refuses invalid base64', async () => {
    await expect(
      world.user.ai.transcribeAudio({ model: 'acme/listener', audio: 'no base64', media_type: 'audio/wav' }),
    ).rejects.toMatchObject({ status: 400, param: 'audio' });
  });

  it('refuses more than 25 MiB of audio', async () => {
    const largeFile = new File([Buffer.alloc(25 * 1024 * 1024 + 1)], 'a.wav', { type: 'audio/wav' });
    expect((await sendForm({ model: 'acme/whisper', file: largeFile })).status).toBe(413);
  });

  // A body may have 35 MiB, which is enough for 25 MiB of audio in base64.
  it('refuses a form of 36 MiB by its declared length', async () => {
    const answer = await rawRequest(world.url, 'POST', '/v1/ai/asr', [
      ['host', new URL(world.url).host],
      ['authorization', `Bearer ${world.userToken}`],
      ['content-type', 'multipart/form-data; boundary=b'],
      ['content-length', String(36 * 1024 * 1024)],
    ]);
    expect(answer.status).toBe(413);
  });

  it.each([
    ['an error', 'acme/broken'],
    // The catalog does not know what the model can do, so the call is sent; the provider returns an image.
    ['an unexpected answer', 'acme/painter'],
  ])('is 502 for %s of the provider', async (_name, model) => {
    const response = await sendForm({ model, file });
    expect(await refusalOf(response)).toMatchObject([502, { code: 'upstream_failed' }]);
  });

  it('refuses guests', async () => {
    const form = new FormData();
    form.append('model', 'acme/whisper');
    form.append('file', file);
    expect((await fetch(`${world.url}/v1/ai/asr`, { method: 'POST', body: form })).status).toBe(401);
  });
});

describe('a slow upload', { timeout: 60_000 }, () => {
  let slowWorld: MediaWorld;
  beforeAll(async () => {
    slowWorld = await startMedia({ env: { TIMEOUT_REQUEST_MS: '1000' } });
  });
  afterAll(() => slowWorld?.close());

  /** Sends the bytes in two pieces with a pause between them, or never sends the second. */
  function sendSlowly(
    path: string,
    body: Buffer,
    pauseMs: number | null,
  ): Promise<{ status: number; text: string }> {
    return new Promise((resolve, reject) => {
      const headers = {
        authorization: `Bearer ${slowWorld.userToken}`,
        'content-type': 'application/json',
        'content-length': body.length,
      };
      const upload = request(`${slowWorld.url}${path}`, { method: 'POST', headers }, (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (piece: string) => (text += piece));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      });
      upload.on('error', reject);
      upload.write(body.subarray(0, 100));
      if (pauseMs !== null) setTimeout(() => upload.end(body.subarray(100)), pauseMs);
    });
  }

  it('of audio may take longer than TIMEOUT_REQUEST_MS', async () => {
    const audioBody = Buffer.from(
      JSON.stringify({ model: 'acme/whisper', audio: silence.toString('base64'), media_type: 'audio/wav' }),
    );
    expect(await sendSlowly('/v1/ai/asr', audioBody, 3_500)).toMatchObject({
      status: 200,
      text: expect.stringContaining('Good morning.'),
    });
  });

  it('of text is refused after TIMEOUT_REQUEST_MS', async () => {
    const textBody = Buffer.from(JSON.stringify({ model: 'local/echo', prompt: 'x'.repeat(1_000) }));
    expect(await sendSlowly('/v1/ai/text', textBody, null)).toMatchObject({
      status: 400,
      text: expect.stringContaining('within 1 seconds'),
    });
  });
});
