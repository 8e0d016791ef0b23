// The media models of the AI SDK's gateway provider, unmodified, in both versions.
import * as ai7 from 'ai';
import { createGateway as createGateway3 } from 'ai-gateway3';
import { createGateway as createGateway4 } from 'ai-gateway4';
import * as ai6 from 'ai6';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { scriptedPicture } from '../../../support/provider.ts';
import { refusalOf, silence, startMedia, type MediaWorld } from './media-world.ts';

let world: MediaWorld;
beforeAll(async () => {
  world = await startMedia();
});
afterAll(() => world?.close());

const settings = () => ({ baseURL: `${world.url}/v1/ai`, apiKey: world.userToken });
const gateway = () => createGateway4(settings());
const lastRequest = () => JSON.parse(world.provider.lastCall().body.toString()) as Record<string, unknown>;
const send = (path: string, model: string, body: object, headers: Record<string, string> = {}) =>
  world.send(`/v1/ai/${path}`, body, { headers: { 'ai-model-id': model, ...headers } });

// Both versions have the same functions with nearly the same types; the tests use the newer version's.
const versions: [string, typeof ai7, () => ReturnType<typeof createGateway4>][] = [
  ['ai 7, @ai-sdk/gateway 4', ai7, gateway],
  [
    'ai 6, @ai-sdk/gateway 3',
    {
      ...ai6,
      generateSpeech: ai6.experimental_generateSpeech,
      transcribe: ai6.experimental_transcribe,
    } as unknown as typeof ai7,
    () => createGateway3(settings()) as unknown as ReturnType<typeof createGateway4>,
  ],
];

describe.each(versions)('%s', { timeout: 60_000 }, (_name, sdk, provider) => {
  it('embeds values', async () => {
    const { embeddings, usage } = await sdk.embedMany({
      model: provider().embeddingModel('acme/vectors'),
      values: ['a', 'b'],
    });
    expect(embeddings).toEqual([
      [0.5, -0.25, 1],
      [0.5, -0.25, 1],
    ]);
    expect(usage.tokens).toBe(2);
  });

  it('reranks documents', async () => {
    const { ranking } = await sdk.rerank({
      model: provider().rerankingModel('acme/vectors'),
      query: 'What?',
      documents: ['a', 'b'],
      topN: 2,
    });
    expect(ranking.map(({ originalIndex, score }) => [originalIndex, score])).toEqual([
      [1, 1],
      [0, 0.5],
    ]);
    expect(lastRequest()).toMatchObject({ query: 'What?', documents: ['a', 'b'], top_n: 2 });
  });

  it('generates images', async () => {
    const { images } = await sdk.generateImage({
      model: provider().imageModel('acme/painter'),
      prompt: 'A boat',
      n: 2,
      providerOptions: { acme: { quality: 'hd' }, other: { style: 'x' } },
    });
    expect(images.map(({ uint8Array }) => Buffer.from(uint8Array).equals(scriptedPicture))).toEqual([
      true,
      true,
    ]);
    expect(lastRequest()).toMatchObject({ quality: 'hd' });
  });

  it('synthesizes speech', async () => {
    const { audio } = await sdk.generateSpeech({
      model: provider().speechModel('local/flite'),
      text: 'Good morning.',
      voice: 'slt',
      outputFormat: 'wav',
    });
    expect(Buffer.from(audio.uint8Array).toString('latin1', 0, 4)).toBe('RIFF');
  });

  it('transcribes audio', async () => {
    const { text, segments, language } = await sdk.transcribe({
      model: provider().transcriptionModel('acme/whisper'),
      audio: silence,
    });
    expect(text).toBe('Good morning.');
    expect(segments).toEqual([{ text: 'Good morning.', startSecond: 0, endSecond: 1.25 }]);
    expect(language).toBe('en');
  });
});

describe('ai.embedSdkValues', () => {
  it('charges the tokens of the provider', async () => {
    // The scripted provider reports 2 tokens, at one credit each.
    const answer = await send('embedding-model', 'acme/vectors', { values: ['a'] });
    expect(answer.headers.get('x-townhall-credits')).toBe('2');
  });

  it('sends options of the provider and warns about all others', async () => {
    const answer = await send('embedding-model', 'acme/vectors', {
      values: ['a'],
      dimensions: 3,
      providerOptions: { acme: { truncate: 'END' }, gateway: { order: ['x'] } },
    });
    expect(lastRequest()).toMatchObject({ truncate: 'END', dimensions: 3, input: ['a'] });
    expect(await answer.json()).toMatchObject({ warnings: [{ feature: 'providerOptions.gateway' }] });
  });

  it.each([
    ['an unknown model', 'acme/none', {}, 404, 'model_not_found'],
    ['a model without the format', 'local/echo', {}, 422, 'unsupported_by_model'],
    ['an option of unknown price', 'acme/vectors', { acme: { models: ['x'] } }, 422, 'unpriced_member'],
    ['a fixed member as an option', 'acme/vectors', { acme: { input: ['x'] } }, 400, 'invalid_request'],
  ])('refuses %s', async (_name, model, providerOptions, status, code) => {
    const answer = await send('embedding-model', model, { values: ['a'], providerOptions });
    expect(await refusalOf(answer)).toMatchObject([status, { code }]);
  });

  it('replays a repeated call', async () => {
    const key = { 'idempotency-key': 'vectors' };
    const firstAnswer = await send('embedding-model', 'acme/vectors', { values: ['a'] }, key);
    const secondAnswer = await send('embedding-model', 'acme/vectors', { values: ['a'] }, key);
    expect(secondAnswer.headers.get('idempotent-replayed')).toBe('true');
    expect(await secondAnswer.json()).toEqual(await firstAnswer.json());
  });
});

describe('an Idempotency-Key', () => {
  it.each([
    ['embedding-model', 'ai-model-id', { values: ['a'] }],
    [
      'language-model',
      'ai-language-model-id',
      { prompt: [{ role: 'user', content: [{ type: 'text', text: 'a' }] }] },
    ],
  ])('is refused for another model: %s', async (path, header, body) => {
    const ask = (model: string) =>
      world.send(`/v1/ai/${path}`, body, {
        headers: {
          [header]: model,
          'ai-language-model-streaming': 'false',
          'idempotency-key': `one ${path}`,
        },
      });
    expect((await ask(path === 'embedding-model' ? 'acme/vectors' : 'local/echo')).status).toBe(200);
    expect(await refusalOf(await ask('local/guide'))).toMatchObject([
      422,
      { code: 'idempotency_key_reused' },
    ]);
  });
});

describe('ai.rerankSdkDocuments', () => {
  it('sends objects as JSON', async () => {
    const documents = { type: 'object', values: [{ title: 'a' }] };
    await send('reranking-model', 'acme/vectors', { query: 'q', documents });
    expect(lastRequest()).toMatchObject({ documents: ['{"title":"a"}'] });
  });

  it.each([
    ['an unknown model', 'acme/none', {}, 404, 'model_not_found'],
    ['a model without the format', 'local/echo', {}, 422, 'unsupported_by_model'],
    ['an option of unknown price', 'acme/vectors', { acme: { models: ['x'] } }, 422, 'unpriced_member'],
  ])('refuses %s', async (_name, model, providerOptions, status, code) => {
    const documents = { type: 'text', values: ['a'] };
    const answer = await send('reranking-model', model, { query: 'q', documents, providerOptions });
    expect(await refusalOf(answer)).toMatchObject([status, { code }]);
  });
});

describe('ai.generateSdkImages', { timeout: 60_000 }, () => {
  it.each([
    ['an unknown model', 'acme/none', {}, 404, 'model_not_found', 'model'],
    ['a mask', 'acme/painter', { mask: { type: 'file', data: 'AAAA' } }, 422, 'unsupported_by_model', 'mask'],
    [
      'the URL of an image',
      'acme/painter',
      { files: [{ type: 'url', url: 'http://127.0.0.1:1/a.png' }] },
      422,
      'unsupported_by_model',
      'files[0]',
    ],
    [
      'an option of unknown price',
      'acme/paid',
      { providerOptions: { acme: { quality: 'high' } } },
      422,
      'unpriced_member',
      'providerOptions.acme.quality',
    ],
  ])('refuses %s', async (_name, model, members, status, code, param) => {
    const answer = await send('image-model', model, { prompt: 'A boat', ...members });
    expect(await refusalOf(answer)).toMatchObject([status, { code, param }]);
  });

  it('charges like a job', async () => {
    const answer = await send('image-model', 'acme/paid', { prompt: 'A boat' });
    expect([answer.status, answer.headers.get('x-townhall-credits')]).toEqual([200, '40000']);
  });
});

describe.each([
  ['speech-model', { text: 'a' }],
  ['transcription-model', { audio: silence.toString('base64'), mediaType: 'audio/wav' }],
])('%s', (path, body) => {
  it('is 404 for an unknown model', async () => {
    expect(await refusalOf(await send(path, 'acme/none', body))).toMatchObject([
      404,
      { code: 'model_not_found' },
    ]);
  });
});

describe('ai.synthesizeSdkSpeech', () => {
  it('warns about options, which speech models do not get', async () => {
    const answer = await send('speech-model', 'local/flite', {
      text: 'Good morning.',
      providerOptions: { acme: { tone: 'x' } },
    });
    expect(await answer.json()).toMatchObject({
      warnings: [{ feature: 'providerOptions.acme', details: 'options are not sent to this model' }],
    });
  });
});
