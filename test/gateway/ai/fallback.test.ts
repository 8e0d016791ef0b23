// Retries and fallbacks through the routes, with their attempts in headers and metadata.
import { createServer } from 'node:http';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { errorOf, eventsOf, partsOf, startAi, testResilience, type World } from './world.ts';
import { listen } from '../../support/local-server.ts';

const messages = [{ role: 'user', content: 'hi' }];
const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];
const efforts = {
  efforts: [
    { id: 'low', name: 'Low' },
    { id: 'deep', name: 'Deep' },
  ],
  default_effort: 'low',
};
const picture = 'iVBORw0KGgo=';

describe('retries and fallbacks on every route', () => {
  let provider: ScriptedProvider;
  let world: World;
  beforeAll(async () => {
    provider = await startProvider();
    const entry = (id: string, script: string, overrides: object = {}) => ({
      id: `acme/${id}`,
      provider: 'acme',
      upstream_model: script,
      rates: null,
      inputs: ['text'],
      ...overrides,
    });
    const models = [
      entry('flaky', 'flaky?fails=2&code=503', { modalities: ['text', 'stream', 'openai', 'embedding'] }),
      entry('dropped', 'flaky?fails=2&code=hangup'),
      entry('broken', 'status?code=500', { fallbacks: ['nowhere/at-all', 'acme/unready', 'acme/ok'] }),
      entry('broken-thinker', 'status?code=500', { reasoning: efforts, fallbacks: ['acme/plain'] }),
      entry('broken-deep', 'status?code=502', { reasoning: efforts, fallbacks: ['acme/thinker'] }),
      entry('to-local', 'status?code=502', { fallbacks: ['local/echo'] }),
      entry('plain', 'ok'),
      entry('thinker', 'ok', { reasoning: efforts }),
      entry('blind', 'ok', { fallbacks: ['acme/seeing'] }),
      entry('seeing', 'ok', { inputs: ['text', 'image'] }),
      entry('cut', 'reset?chunks=2', { fallbacks: ['acme/ok'] }),
      entry('broken-once', 'status?code=503', { fallbacks: ['translated/ok'] }),
      { id: 'translated/ok', provider: 'translated', upstream_model: 'ok', rates: null },
      {
        id: 'translated/first',
        provider: 'translated',
        upstream_model: 'ok',
        rates: null,
        fallbacks: ['acme/ok'],
      },
      entry('refused', 'status?code=400', { fallbacks: ['acme/ok'] }),
    ];
    const providers = [
      { id: 'nowhere', kind: 'openai-compatible', base_url: 'http://127.0.0.1:9/v1' },
      { id: 'translated', kind: 'anthropic', base_url: provider.url },
      { id: 'unset', kind: 'openai-compatible', base_url: 'http://127.0.0.1:9/v1', api_key_env: 'UNSET_KEY' },
    ];
    const members = [
      { id: 'nowhere/at-all', provider: 'nowhere', rates: null },
      { id: 'acme/unready', provider: 'unset', rates: null },
    ];
    world = await startAi({
      models: provider.modelsFile({ ok: 'ok' }, { providers, models: [...models, ...members] }),
      resilience: testResilience,
    });
  });
  afterAll(async () => {
    await world.close();
    await provider.close();
  });
  beforeEach(() => provider.reset());

  const formats: [string, (model: string, members?: object) => Promise<Response>][] = [
    [
      'chat, whole',
      (model, members) => world.post('/v1/ai/chat/completions', { model, messages, ...members }),
    ],
    [
      'chat, streamed',
      (model, members) =>
        world.post('/v1/ai/chat/completions', { model, messages, stream: true, ...members }),
    ],
    ['text', (model, members) => world.post('/v1/ai/text', { model, prompt: 'hi', ...members })],
    ['stream', (model, members) => world.post('/v1/ai/stream', { model, prompt, ...members })],
    [
      'language-model, whole',
      (model, members) =>
        world.post(
          '/v1/ai/language-model',
          { model, prompt, ...members },
          { headers: { 'ai-language-model-streaming': 'false' } },
        ),
    ],
  ];

  /** The model that ran and all attempts, from the headers or the text's metadata. */
  async function readAttempts(response: Response): Promise<{ model: string; attempts: string }> {
    if (response.headers.get('x-townhall-model') !== null) {
      return {
        model: response.headers.get('x-townhall-model') ?? '',
        attempts: response.headers.get('x-townhall-attempts') ?? '',
      };
    }
    const { metadata } = (await response.json()) as {
      metadata: { model: string; attempts: { model: string; outcome: string }[] };
    };
    return {
      model: metadata.model,
      attempts: metadata.attempts.map(({ model, outcome }) => `${model};${outcome}`).join(', '),
    };
  }

  describe.each(formats)('%s', (_name, call) => {
    test.each(['acme/flaky', 'acme/dropped'])('answers after two failures of %s', async (model) => {
      const response = await call(model);
      expect(response.status).toBe(200);
      expect(await readAttempts(response)).toEqual({
        model,
        attempts: `${model};upstream_failed, ${model};upstream_failed, ${model};answered`,
      });
      expect(provider.calls).toHaveLength(3);
    });

    test('answers with the first callable fallback', async () => {
      const response = await call('acme/broken');
      expect(response.status).toBe(200);
      const { model, attempts } = await readAttempts(response.clone());
      expect(model).toBe('acme/ok');
      expect(attempts).toBe(
        [
          ...Array<string>(3).fill('acme/broken;upstream_failed'),
          ...Array<string>(3).fill('nowhere/at-all;upstream_failed'),
          'acme/ok;answered',
        ].join(', '),
      );
      // The body names the model that answered, too.
      expect(await response.text()).toContain('acme/ok');
    });

    test('answers with a model of another kind of provider', async () => {
      const response = await call('acme/to-local');
      expect(await readAttempts(response)).toMatchObject({ model: 'local/echo' });
    });

    test('refuses an effort that the fallback lacks', async () => {
      const response = await call('acme/broken-thinker', { reasoning_effort: 'deep' });
      expect(response.status).toBe(422);
      expect(await errorOf(response)).toMatchObject({
        code: 'unsupported_reasoning_effort',
        param: 'reasoning_effort',
        message: expect.stringContaining('acme/plain'),
      });
    });

    test('names the allowed efforts of the requested model', async () => {
      const response = await call('acme/broken-thinker', { reasoning_effort: 'huge' });
      expect((await errorOf(response)).message).toContain('allowed are low, deep');
      expect(provider.calls).toEqual([]);
    });

    test('keeps the requested effort on a fallback that has it', async () => {
      expect((await call('acme/broken-deep', { reasoning_effort: 'deep' })).status).toBe(200);
      expect(JSON.parse(provider.lastCall().body.toString())).toMatchObject({ reasoning_effort: 'deep' });
    });

    test('does not retry a request that the provider refused', async () => {
      expect((await call('acme/refused')).status).toBe(400);
      expect(provider.calls).toHaveLength(1);
    });
  });

  test.each<[string, () => Promise<Response>]>([
    [
      'chat',
      () =>
        world.post('/v1/ai/chat/completions', {
          model: 'acme/blind',
          messages: [
            {
              role: 'user',
              content: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${picture}` } }],
            },
          ],
        }),
    ],
    [
      'text',
      () =>
        world.post('/v1/ai/text', {
          model: 'acme/blind',
          messages: [{ role: 'user', content: [{ type: 'image', media_type: 'image/png', data: picture }] }],
        }),
    ],
    [
      'stream',
      () =>
        world.post('/v1/ai/stream', {
          model: 'acme/blind',
          prompt: [{ role: 'user', content: [{ type: 'file', mediaType: 'image/png', data: picture }] }],
        }),
    ],
  ])('sends an image to the fallback that accepts images (%s)', async (_name, call) => {
    const response = await call();
    expect(response.status).toBe(200);
    expect(await readAttempts(response)).toEqual({
      model: 'acme/seeing',
      attempts: 'acme/blind;unsupported_by_model, acme/seeing;answered',
    });
    expect(provider.calls).toHaveLength(1);
    expect(provider.lastCall().body.toString()).toContain(picture);
  });

  test('falls back when the requested model does not support a member', async () => {
    const response = await world.post('/v1/ai/chat/completions', {
      model: 'translated/first',
      messages,
      logit_bias: { 50_256: -100 },
    });
    expect(response.status).toBe(200);
    expect(await readAttempts(response)).toEqual({
      model: 'acme/ok',
      attempts: 'translated/first;unsupported_by_model, acme/ok;answered',
    });
  });

  test('returns the failure of the model when its fallback does not support a member', async () => {
    const response = await world.post('/v1/ai/chat/completions', {
      model: 'acme/broken-once',
      messages,
      logit_bias: { 50_256: -100 },
    });
    expect(response.status).toBe(502);
    expect(response.headers.get('x-townhall-attempts')).toMatch(
      /^acme\/broken-once;.*translated\/ok;unsupported_by_model$/,
    );
  });

  test('does not retry a stream after its first byte', async () => {
    const { parts, done } = await partsOf(await world.post('/v1/ai/stream', { model: 'acme/cut', prompt }));
    expect(done).toBe(true);
    expect(parts.at(-1)).toMatchObject({ finishReason: { unified: 'error' } });
    expect(provider.calls).toHaveLength(1);
  });

  test('does not retry chat completions after their first byte', async () => {
    const events = await eventsOf(
      await world.post('/v1/ai/chat/completions', { model: 'acme/cut', messages, stream: true }),
    );
    expect(events.at(-1)).toContain('upstream_truncated');
    expect(provider.calls).toHaveLength(1);
  });

  test('names every attempt in the headers of the last failure', async () => {
    const response = await world.post('/v1/ai/text', { model: 'nowhere/at-all', prompt: 'hi' });
    expect(response.status).toBe(502);
    expect(await errorOf(response)).toMatchObject({ code: 'upstream_failed' });
    expect(response.headers.get('x-townhall-attempts')).toBe(
      Array(3).fill('nowhere/at-all;upstream_failed').join(', '),
    );
  });
});

describe('the deadline of a call', () => {
  test('covers all attempts together', async () => {
    // Fails twice after 1.5 seconds and then never answers: the third attempt has the remaining time.
    const lifetimesMs: number[] = [];
    let calls = 0;
    const server = createServer((_request, response) => {
      calls += 1;
      if (calls < 3) {
        setTimeout(() => response.writeHead(503).end(), 1_500);
        return;
      }
      const receivedMs = performance.now();
      response.once('close', () => lifetimesMs.push(performance.now() - receivedMs));
    });
    const base = `${(await listen(server)).url}/v1`;
    const models = JSON.stringify({
      providers: [{ id: 'odd', kind: 'openai-compatible', base_url: base }],
      models: [{ id: 'odd/one', provider: 'odd', rates: null }],
    });
    const world = await startAi({
      models,
      timeouts: { answerMs: 6_000 },
      resilience: { retry: { firstDelayMs: 100 } },
    });
    try {
      const response = await world.post('/v1/ai/text', { model: 'odd/one', prompt: 'hi' });
      expect(response.status).toBe(504);
      expect(response.headers.get('x-townhall-attempts')).toBe(
        'odd/one;upstream_failed, odd/one;upstream_failed, odd/one;upstream_timeout',
      );
      await expect.poll(() => lifetimesMs).toHaveLength(1);
      // About 3 of the 6 seconds are left. With a deadline of its own the third attempt would have 6.
      expect(lifetimesMs[0]).toBeLessThan(4_500);
    } finally {
      await world.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  });
});
