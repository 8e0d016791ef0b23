import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { chunkOf, eventsOf, partsOf, providerKey, startAi, type World } from '../world.ts';

const messages = [{ role: 'user' as const, content: 'hi' }];
const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];

// The expected outcome of each script: a status before the first byte, or `midway` for a stream
// that has started.
const scripts: Record<
  string,
  { script: string; whole: [number, string]; streamed: [number | 'midway', string] }
> = {
  never: { script: 'never-headers', whole: [504, 'upstream_timeout'], streamed: [504, 'upstream_timeout'] },
  'never-body': {
    script: 'never-body',
    whole: [504, 'upstream_timeout'],
    streamed: [504, 'upstream_timeout'],
  },
  'bad-request': {
    script: 'status?code=400&message=too+long&param=messages&error_code=context_length_exceeded',
    whole: [400, 'context_length_exceeded'],
    streamed: [400, 'context_length_exceeded'],
  },
  unauthorized: {
    script: 'status?code=401',
    whole: [502, 'provider_credentials'],
    streamed: [502, 'provider_credentials'],
  },
  forbidden: {
    script: 'status?code=403',
    whole: [502, 'provider_credentials'],
    streamed: [502, 'provider_credentials'],
  },
  payment: { script: 'status?code=402', whole: [502, 'upstream_failed'], streamed: [502, 'upstream_failed'] },
  missing: {
    script: 'status?code=404&error_code=model_gone',
    whole: [404, 'model_gone'],
    streamed: [404, 'model_gone'],
  },
  'request-timeout': {
    script: 'status?code=408',
    whole: [504, 'upstream_timeout'],
    streamed: [504, 'upstream_timeout'],
  },
  conflict: {
    script: 'status?code=409',
    whole: [502, 'upstream_failed'],
    streamed: [502, 'upstream_failed'],
  },
  large: { script: 'status?code=413', whole: [413, 'scripted_code'], streamed: [413, 'scripted_code'] },
  impossible: { script: 'status?code=422', whole: [422, 'scripted_code'], streamed: [422, 'scripted_code'] },
  limited: {
    script: 'status?code=429&retry_after=7',
    whole: [429, 'rate_limited'],
    streamed: [429, 'rate_limited'],
  },
  broken: { script: 'status?code=500', whole: [502, 'upstream_failed'], streamed: [502, 'upstream_failed'] },
  'bad-gateway': {
    script: 'html?code=502',
    whole: [502, 'upstream_failed'],
    streamed: [502, 'upstream_failed'],
  },
  unavailable: {
    script: 'status?code=503',
    whole: [502, 'upstream_failed'],
    streamed: [502, 'upstream_failed'],
  },
  overloaded: {
    script: 'status?code=529',
    whole: [502, 'upstream_failed'],
    streamed: [502, 'upstream_failed'],
  },
  'page-as-answer': {
    script: 'html?code=200',
    whole: [502, 'upstream_failed'],
    streamed: [502, 'upstream_failed'],
  },
  'page-as-refusal': {
    script: 'html?code=400',
    whole: [400, 'upstream_refused'],
    streamed: [400, 'upstream_refused'],
  },
  redirect: { script: 'redirect', whole: [502, 'upstream_failed'], streamed: [502, 'upstream_failed'] },
  hangup: { script: 'hangup', whole: [502, 'upstream_failed'], streamed: [502, 'upstream_failed'] },
  truncated: {
    script: 'truncated-json',
    whole: [502, 'upstream_truncated'],
    streamed: [502, 'upstream_failed'],
  },
  'short-length': {
    script: 'short-length',
    whole: [502, 'upstream_truncated'],
    streamed: [502, 'upstream_failed'],
  },
  'long-length': {
    script: 'long-length',
    whole: [502, 'upstream_truncated'],
    streamed: [502, 'upstream_failed'],
  },
  empty: { script: 'empty', whole: [502, 'upstream_failed'], streamed: [502, 'upstream_truncated'] },
  'error-first': {
    script: 'error-first',
    whole: [502, 'upstream_failed'],
    streamed: [502, 'upstream_failed'],
  },
  'error-event': {
    script: 'error-event',
    whole: [502, 'upstream_failed'],
    streamed: ['midway', 'upstream_failed'],
  },
  reset: {
    script: 'reset?chunks=3',
    whole: [502, 'upstream_failed'],
    streamed: ['midway', 'upstream_truncated'],
  },
  'no-done': { script: 'no-done', whole: [200, ''], streamed: ['midway', 'upstream_truncated'] },
  'no-finish': { script: 'no-finish', whole: [200, ''], streamed: ['midway', 'upstream_truncated'] },
  silence: {
    script: 'silence?chunks=2',
    whole: [504, 'upstream_timeout'],
    streamed: ['midway', 'upstream_timeout'],
  },
  comments: { script: 'comments?gap=20', whole: [200, ''], streamed: [504, 'upstream_timeout'] },
  drip: { script: 'drip?gap=50', whole: [200, ''], streamed: [504, 'upstream_timeout'] },
  endless: { script: 'endless?mb=50', whole: [200, ''], streamed: [502, 'upstream_failed'] },
  'invalid-utf8': {
    script: 'invalid-utf8',
    whole: [502, 'upstream_failed'],
    streamed: ['midway', 'upstream_failed'],
  },
  'not-json': { script: 'not-json', whole: [200, ''], streamed: ['midway', 'upstream_failed'] },
  'no-stream': { script: 'no-stream', whole: [200, ''], streamed: [502, 'upstream_failed'] },
  'no-usage': { script: 'usage-none', whole: [200, ''], streamed: [200, ''] },
  'absurd-usage': { script: 'usage-absurd', whole: [200, ''], streamed: [200, ''] },
};

describe('failures of a provider', () => {
  let provider: ScriptedProvider;
  let secondProvider: ScriptedProvider;
  let world: World;
  beforeAll(async () => {
    provider = await startProvider();
    secondProvider = await startProvider();
    const scriptsByName = Object.fromEntries(
      Object.entries(scripts).map(([name, { script }]) => [name, script]),
    );
    const members = {
      'to-second': `redirect?to=${encodeURIComponent(`${secondProvider.url}/chat/completions`)}`,
      'key-echo': 'key-echo',
      ...Object.fromEntries(
        ['1', '-5', '1000000000', 'soon', '2.2'].map((retryAfter) => [
          `after-${retryAfter}`,
          `status?code=429&retry_after=${retryAfter}`,
        ]),
      ),
      'after-absent': 'status?code=429',
    };
    const unreachableProvider = {
      providers: [{ id: 'nobody', kind: 'openai-compatible', base_url: 'http://127.0.0.1:9/v1' }],
      models: [{ id: 'nobody/home', provider: 'nobody', rates: null }],
    };
    world = await startAi({
      models: provider.modelsFile({ ...scriptsByName, ...members }, unreachableProvider),
      // Long enough for a valid answer on a busy machine.
      timeouts: { connectMs: 5_000, firstByteMs: 2_000, answerMs: 2_000, idleMs: 1_500, streamMs: 6_000 },
      // Each script is called several times, which must not open the breaker.
      resilience: {
        retry: { firstDelayMs: 10, budgetFloor: 10_000 },
        breaker: { consecutiveFailures: 10_000, windowCalls: 10_000 },
      },
    });
  });
  afterAll(async () => {
    await world.close();
    await provider.close();
    await secondProvider.close();
  });

  /**
   * Status and code of an error answer, which must not contain internals of the gateway or the
   * provider.
   */
  async function problemIn(response: Response): Promise<[number, unknown]> {
    const text = await response.text();
    expect(response.headers.get('content-type')).toContain('application/json');
    expect(text).not.toMatch(/CANARY|html|db01|127\.0\.0\.1/);
    return [response.status, (JSON.parse(text) as { error?: { code: unknown } }).error?.code];
  }

  describe.each(Object.entries(scripts))(
    '%s',
    (name, { whole: [wholeStatus, wholeCode], streamed: [streamStatus, streamCode] }) => {
      const model = `acme/${name}`;

      test.concurrent('chat, whole', async () => {
        const response = await world.post('/v1/ai/chat/completions', { model, messages });
        if (wholeStatus === 200)
          expect(await response.json()).toMatchObject({ model, object: 'chat.completion' });
        else expect(await problemIn(response)).toEqual([wholeStatus, wholeCode]);
      });

      test.concurrent('chat, streamed', async () => {
        const response = await world.post('/v1/ai/chat/completions', { model, messages, stream: true });
        if (typeof streamStatus === 'number' && streamStatus !== 200) {
          expect(await problemIn(response)).toEqual([streamStatus, streamCode]);
          return;
        }
        const events = await eventsOf(response);
        if (streamStatus === 200) {
          expect(events.at(-1)).toBe('[DONE]');
          return;
        }
        expect(events.filter((event) => event === '[DONE]')).toHaveLength(0);
        expect(events.filter((event) => chunkOf(event).error !== undefined)).toHaveLength(1);
        expect(JSON.parse(events.at(-1) ?? '')).toMatchObject({
          error: { code: streamCode, type: 'upstream_error' },
        });
        expect(events.join()).not.toContain('CANARY');
      });

      test.concurrent('text', async () => {
        const response = await world.post('/v1/ai/text', { model, prompt: 'hi' });
        if (wholeStatus === 200) expect(response.status).toBe(200);
        // The provider package cannot tell a truncated document from an invalid one.
        else
          expect(await problemIn(response)).toEqual([
            wholeStatus,
            name === 'truncated' || name === 'short-length' ? 'upstream_failed' : wholeCode,
          ]);
      });

      test.concurrent('stream', async () => {
        const response = await world.post('/v1/ai/stream', { model, prompt });
        if (typeof streamStatus === 'number' && streamStatus !== 200) {
          expect(await problemIn(response)).toEqual([streamStatus, streamCode]);
          return;
        }
        const { parts, done } = await partsOf(response);
        expect(done).toBe(true);
        expect(parts.at(-1)).toMatchObject({
          type: 'finish',
          finishReason: { unified: streamStatus === 200 ? 'stop' : 'error' },
        });
      });

      test.concurrent("OpenAI's client gets a typed error and never a silent end", async () => {
        const client = world.openai();
        const read = async () => {
          const stream = await client.chat.completions.create({ model, messages, stream: true });
          for await (const _chunk of stream);
        };
        if (streamStatus === 200) await expect(read()).resolves.toBeUndefined();
        else await expect(read()).rejects.toBeInstanceOf(OpenAI.APIError);
      });
    },
  );

  // With the default retries and breaker: the deadline also bounds scripts that never end.
  describe('within the deadline and a second, including retries', () => {
    const deadlines = { connectMs: 1_000, firstByteMs: 2_000, answerMs: 2_000, idleMs: 500, streamMs: 3_000 };
    let impatientWorld: World;
    beforeAll(async () => {
      const scriptsByName = Object.entries(scripts).map(([name, { script }]) => [name, script] as const);
      const kinds = ['openai', 'anthropic', 'google'];
      impatientWorld = await startAi({
        models: provider.modelsFile(Object.fromEntries(scriptsByName), {
          // Its streams in these formats are chat completions, and therefore invalid.
          provider: { formats: ['chat', 'responses', 'messages'] },
          providers: kinds.map((kind) => ({ id: `my-${kind}`, kind, base_url: provider.url })),
          models: kinds.flatMap((kind) =>
            scriptsByName.map(([name, script]) => ({
              id: `my-${kind}/${name}`,
              provider: `my-${kind}`,
              upstream_model: kind === 'google' ? script.replace('?', '~') : script,
              rates: null,
              max_output_tokens: 100,
            })),
          ),
        }),
        timeouts: deadlines,
      });
    });
    afterAll(() => impatientWorld.close());

    test.concurrent.each(Object.keys(scripts))('%s', async (name) => {
      const model = `acme/${name}`;
      for (const [path, body] of [
        ['/v1/ai/text', { model, prompt: 'hi' }],
        ['/v1/ai/chat/completions', { model, messages, stream: true }],
      ] as const) {
        const startedMs = performance.now();
        const response = await impatientWorld.post(path, body);
        const text = await response.text();
        expect((response.headers.get('x-townhall-attempts') ?? '').split(', ').length).toBeLessThanOrEqual(3);
        // The longest deadline is that of a whole stream; the extra seconds allow for a busy
        // machine.
        expect(performance.now() - startedMs).toBeLessThan(deadlines.streamMs + 12_000);
        if (response.status === 200 && path.endsWith('completions'))
          expect(text.includes('data: [DONE]')).toBe(!text.includes('{"error":'));
        else if (response.status !== 200)
          expect((JSON.parse(text) as { error: { code: string } }).error.code).not.toBe('internal_error');
      }
    });

    const languageModel = {
      'ai-language-model-specification-version': '4',
      'ai-language-model-streaming': 'true',
    };
    const routes = (name: string): [string, object, Record<string, string>][] => [
      ['/v1/ai/responses', { model: `acme/${name}`, input: 'hi', stream: true }, {}],
      ['/v1/ai/messages', { model: `acme/${name}`, messages, max_tokens: 10, stream: true }, {}],
      ...['acme', 'my-openai', 'my-anthropic', 'my-google'].map(
        (owner): [string, object, Record<string, string>] => [
          '/v1/ai/language-model',
          { model: `${owner}/${name}`, prompt },
          languageModel,
        ],
      ),
      ['/v1/ai/chat/completions', { model: `my-google/${name}`, messages, stream: true }, {}],
    ];

    test.concurrent.each(Object.entries(scripts))(
      'on every other route that streams: %s',
      async (name, { streamed: [expectedStatus] }) => {
        await Promise.all(
          routes(name).map(async ([path, body, headers]) => {
            const startedMs = performance.now();
            const response = await impatientWorld.post(path, body, headers);
            const text = await response.text();
            const { model } = body as { model: string };
            expect(performance.now() - startedMs, `${path} ${model}`).toBeLessThan(
              deadlines.streamMs + 12_000,
            );
            if (response.status !== 200) {
              const { code } = (JSON.parse(text) as { error: { code: string } }).error;
              expect([path, model, code]).not.toEqual([path, model, 'internal_error']);
              return;
            }
            // Only a complete answer in the provider's own format ends without an error.
            const mayEndWell =
              expectedStatus === 200 && (model.startsWith('acme/') || model.startsWith('my-openai/'));
            if (path.endsWith('language-model')) {
              const finishes = text.split('\n').filter((line) => line.includes('"type":"finish"'));
              expect([path, model, finishes.length, finishes[0]?.includes('"unified":"error"')]).toEqual([
                path,
                model,
                1,
                !mayEndWell,
              ]);
              expect(text.trimEnd()).toMatch(/data: \[DONE\]$/);
            } else {
              expect([
                path,
                model,
                /"type":"(?:response\.completed|message_stop)"|\[DONE\]/.test(text),
              ]).toEqual([path, model, false]);
              expect([path, model, /"error":\{/.test(text)]).toEqual([path, model, true]);
            }
          }),
        );
      },
    );
  });

  test('answers 502 for an answer above the size limit', async () => {
    const slowWorld = await startAi({ models: provider.modelsFile({ huge: 'huge?mb=40' }) });
    try {
      expect(
        await problemIn(await slowWorld.post('/v1/ai/chat/completions', { model: 'acme/huge', messages })),
      ).toEqual([502, 'upstream_failed']);
      expect(
        await problemIn(await slowWorld.post('/v1/ai/text', { model: 'acme/huge', prompt: 'hi' })),
      ).toEqual([502, 'upstream_failed']);
    } finally {
      await slowWorld.close();
    }
  });

  test('answers 502 for an unreachable provider', async () => {
    expect(await problemIn(await world.post('/v1/ai/text', { model: 'nobody/home', prompt: 'x' }))).toEqual([
      502,
      'upstream_failed',
    ]);
    expect(
      await problemIn(await world.post('/v1/ai/chat/completions', { model: 'nobody/home', messages })),
    ).toEqual([502, 'upstream_failed']);
  });

  test('follows no redirect, which would send the key to another host', async () => {
    expect(
      await problemIn(await world.post('/v1/ai/chat/completions', { model: 'acme/to-second', messages })),
    ).toEqual([502, 'upstream_failed']);
    expect(secondProvider.calls).toHaveLength(0);
  });

  test("redacts keys and addresses in a provider's error message", async () => {
    const response = await world.post('/v1/ai/chat/completions', { model: 'acme/key-echo', messages });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      error: {
        type: 'invalid_request_error',
        code: 'context_length_exceeded',
        param: 'messages',
        message: 'Bad request with Bearer [redacted] at [redacted] ([redacted])',
      },
    });
  });

  test.each([
    ['1', '1'],
    ['-5', '0'],
    ['1000000000', '60'],
    ['soon', '1'],
    ['2.2', '3'],
    ['absent', '1'],
  ])('turns a Retry-After of %s into %s', async (retryAfter, expected) => {
    const response = await world.post('/v1/ai/chat/completions', {
      model: `acme/after-${retryAfter}`,
      messages,
    });
    expect(response.status).toBe(429);
    expect(response.headers.get('retry-after')).toBe(expected);
  });

  test('logs no key', () => {
    expect(world.logged.length).toBeGreaterThan(100);
    expect(world.logged.join('')).not.toContain(providerKey);
  });
});
