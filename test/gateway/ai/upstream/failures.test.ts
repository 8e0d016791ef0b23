// All ways in which a provider can fail, and what its caller receives on each route.
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { chunkOf, eventsOf, partsOf, providerKey, startAi, type World } from '../world.ts';

const messages = [{ role: 'user' as const, content: 'hi' }];
const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];

interface Outcome {
  script: string;
  /** Status and error code of a whole answer. */
  whole: [number, string];
  /** The same for a stream; `midway` is an error event in a stream that has started. */
  streamed: [number | 'midway', string];
}

const sameOutcome = (script: string, status: number, code: string): Outcome => ({
  script,
  whole: [status, code],
  streamed: [status, code],
});

const outcomes: Record<string, Outcome> = {
  never: sameOutcome('never-headers', 504, 'upstream_timeout'),
  'never-body': sameOutcome('never-body', 504, 'upstream_timeout'),
  'bad-request': sameOutcome(
    'status?code=400&message=too+long&param=messages&error_code=context_length_exceeded',
    400,
    'context_length_exceeded',
  ),
  unauthorized: sameOutcome('status?code=401', 502, 'provider_credentials'),
  forbidden: sameOutcome('status?code=403', 502, 'provider_credentials'),
  payment: sameOutcome('status?code=402', 502, 'upstream_failed'),
  missing: sameOutcome('status?code=404&error_code=model_gone', 404, 'model_gone'),
  'request-timeout': sameOutcome('status?code=408', 504, 'upstream_timeout'),
  conflict: sameOutcome('status?code=409', 502, 'upstream_failed'),
  large: sameOutcome('status?code=413', 413, 'scripted_code'),
  impossible: sameOutcome('status?code=422', 422, 'scripted_code'),
  limited: sameOutcome('status?code=429&retry_after=7', 429, 'rate_limited'),
  broken: sameOutcome('status?code=500', 502, 'upstream_failed'),
  'bad-gateway': sameOutcome('html?code=502', 502, 'upstream_failed'),
  unavailable: sameOutcome('status?code=503', 502, 'upstream_failed'),
  overloaded: sameOutcome('status?code=529', 502, 'upstream_failed'),
  'page-as-answer': sameOutcome('html?code=200', 502, 'upstream_failed'),
  'page-as-refusal': sameOutcome('html?code=400', 400, 'upstream_refused'),
  redirect: sameOutcome('redirect', 502, 'upstream_failed'),
  hangup: sameOutcome('hangup', 502, 'upstream_failed'),
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
  'error-first': sameOutcome('error-first', 502, 'upstream_failed'),
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
  'no-usage': sameOutcome('usage-none', 200, ''),
  'absurd-usage': sameOutcome('usage-absurd', 200, ''),
};

const scripts = Object.fromEntries(Object.entries(outcomes).map(([name, { script }]) => [name, script]));

describe('failures of a provider', () => {
  let provider: ScriptedProvider;
  let secondProvider: ScriptedProvider;
  let world: World;
  beforeAll(async () => {
    provider = await startProvider();
    secondProvider = await startProvider();
    const otherScripts = {
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
      models: provider.modelsFile({ ...scripts, ...otherScripts }, unreachableProvider),
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
    return [response.status, errorCodeIn(text)];
  }

  const cases = Object.entries(outcomes);
  const casesWhere = (matches: (status: number | 'midway') => boolean) =>
    cases.filter(([, { streamed }]) => matches(streamed[0]));
  const isRefused = (status: number | 'midway') => status !== 'midway' && status !== 200;

  test.concurrent.each(cases)(
    'have the expected status in chat completions: %s',
    async (name, { whole: [status, code] }) => {
      const model = `acme/${name}`;
      const response = await world.post('/v1/ai/chat/completions', { model, messages });
      if (status === 200) expect(await response.json()).toMatchObject({ model, object: 'chat.completion' });
      else expect(await problemIn(response)).toEqual([status, code]);
    },
  );

  test.concurrent.each(cases)(
    'have the expected status in text: %s',
    async (name, { whole: [status, code] }) => {
      const response = await world.post('/v1/ai/text', { model: `acme/${name}`, prompt: 'hi' });
      // The provider package cannot tell a truncated document from an invalid one.
      const textCode = name === 'truncated' || name === 'short-length' ? 'upstream_failed' : code;
      if (status === 200) expect(response.status).toBe(200);
      else expect(await problemIn(response)).toEqual([status, textCode]);
    },
  );

  describe.each([
    ['streamed chat completions', '/v1/ai/chat/completions', { messages, stream: true }],
    ['stream', '/v1/ai/stream', { prompt }],
  ])('before the first byte of %s', (_format, path, body) => {
    test.concurrent.each(casesWhere(isRefused))(
      'have the expected status: %s',
      async (name, { streamed }) => {
        const response = await world.post(path, { model: `acme/${name}`, ...body });
        expect(await problemIn(response)).toEqual(streamed);
      },
    );
  });

  const streamChat = async (name: string) =>
    eventsOf(await world.post('/v1/ai/chat/completions', { model: `acme/${name}`, messages, stream: true }));

  test.concurrent.each(casesWhere((status) => status === 'midway'))(
    'end streamed chat completions with an error: %s',
    async (name, { streamed: [, code] }) => {
      const events = await streamChat(name);
      expect(events).not.toContain('[DONE]');
      expect(events.filter((event) => chunkOf(event).error !== undefined)).toHaveLength(1);
      expect(chunkOf(events.at(-1))).toMatchObject({ error: { code, type: 'upstream_error' } });
      expect(events.join()).not.toContain('CANARY');
    },
  );

  test.concurrent.each(casesWhere((status) => status === 200))(
    'that concern only the usage leave streamed chat completions complete: %s',
    async (name) => {
      expect((await streamChat(name)).at(-1)).toBe('[DONE]');
    },
  );

  test.concurrent.each(casesWhere((status) => !isRefused(status)))(
    'end stream with a finish part: %s',
    async (name, { streamed: [status] }) => {
      const response = await world.post('/v1/ai/stream', { model: `acme/${name}`, prompt });
      const { parts, done } = await partsOf(response);
      expect(done).toBe(true);
      expect(parts.at(-1)).toMatchObject({
        type: 'finish',
        finishReason: { unified: status === 200 ? 'stop' : 'error' },
      });
    },
  );

  test.concurrent.each(cases)(
    "never end a stream of OpenAI's client silently: %s",
    async (name, { streamed: [status] }) => {
      const read = async () => {
        const body = { model: `acme/${name}`, messages, stream: true } as const;
        for await (const _chunk of await world.openai().chat.completions.create(body));
      };
      if (status === 200) await expect(read()).resolves.toBeUndefined();
      else await expect(read()).rejects.toBeInstanceOf(OpenAI.APIError);
    },
  );

  // With the default retries and breaker: the deadline also bounds scripts that never end.
  describe('a call with short deadlines', () => {
    const timeouts = { connectMs: 1_000, firstByteMs: 2_000, answerMs: 2_000, idleMs: 500, streamMs: 3_000 };
    // The longest deadline is the limit of the whole stream; the rest allows for a busy machine.
    const endMs = timeouts.streamMs + 12_000;
    let strictWorld: World;
    beforeAll(async () => {
      const kinds = ['openai', 'anthropic', 'google'];
      strictWorld = await startAi({
        models: provider.modelsFile(scripts, {
          // The scripted provider streams chat completions, which are invalid in the other formats.
          provider: { formats: ['chat', 'responses', 'messages'] },
          providers: kinds.map((kind) => ({ id: `my-${kind}`, kind, base_url: provider.url })),
          models: kinds.flatMap((kind) =>
            Object.entries(scripts).map(([name, script]) => ({
              id: `my-${kind}/${name}`,
              provider: `my-${kind}`,
              upstream_model: kind === 'google' ? script.replace('?', '~') : script,
              rates: null,
              max_output_tokens: 100,
            })),
          ),
        }),
        timeouts,
      });
    });
    afterAll(() => strictWorld.close());

    /** Makes the call, which must end in time and without an internal error. */
    async function callInTime(path: string, body: object, headers: Record<string, string> = {}) {
      const startedMs = performance.now();
      const response = await strictWorld.post(path, body, { headers });
      const text = await response.text();
      expect(performance.now() - startedMs).toBeLessThan(endMs);
      if (response.status !== 200) expect(errorCodeIn(text)).not.toBe('internal_error');
      return { status: response.status, headers: response.headers, text };
    }

    test.concurrent.each(Object.keys(scripts))('ends in time after at most two retries: %s', async (name) => {
      const model = `acme/${name}`;
      const whole = await callInTime('/v1/ai/text', { model, prompt: 'hi' });
      const streamed = await callInTime('/v1/ai/chat/completions', { model, messages, stream: true });
      for (const { headers } of [whole, streamed])
        expect((headers.get('x-townhall-attempts') ?? '').split(', ').length).toBeLessThanOrEqual(3);
      if (streamed.status === 200)
        expect(streamed.text.includes('data: [DONE]')).toBe(!streamed.text.includes('{"error":'));
    });

    const translatedOwners = ['acme', 'my-openai', 'my-anthropic', 'my-google'];

    test.concurrent.each(Object.entries(outcomes))(
      'ends in time on the route language-model: %s',
      async (name, { streamed: [streamStatus] }) => {
        const headers = {
          'ai-language-model-specification-version': '4',
          'ai-language-model-streaming': 'true',
        };
        await Promise.all(
          translatedOwners.map(async (owner) => {
            const body = { model: `${owner}/${name}`, prompt };
            const { status, text } = await callInTime('/v1/ai/language-model', body, headers);
            if (status !== 200) return;
            // Only a complete answer in the provider's own format ends without an error.
            const endsWell = streamStatus === 200 && (owner === 'acme' || owner === 'my-openai');
            const finishes = text.split('\n').filter((line) => line.includes('"type":"finish"'));
            expect(finishes, owner).toHaveLength(1);
            expect(finishes[0]?.includes('"unified":"error"'), owner).toBe(!endsWell);
            expect(text.trimEnd(), owner).toMatch(/data: \[DONE\]$/);
          }),
        );
      },
    );

    // The provider's answers are chat completions, and therefore invalid on these routes.
    test.concurrent.each(Object.keys(scripts))('ends in time in other formats: %s', async (name) => {
      const calls: [string, object][] = [
        ['/v1/ai/responses', { model: `acme/${name}`, input: 'hi', stream: true }],
        ['/v1/ai/messages', { model: `acme/${name}`, messages, max_tokens: 10, stream: true }],
        ['/v1/ai/chat/completions', { model: `my-google/${name}`, messages, stream: true }],
      ];
      await Promise.all(
        calls.map(async ([path, body]) => {
          const { status, text } = await callInTime(path, body);
          if (status !== 200) return;
          expect(text, path).not.toMatch(/"type":"(?:response\.completed|message_stop)"|\[DONE\]/);
          expect(text, path).toMatch(/"error":\{/);
        }),
      );
    });
  });

  const wholeCalls: [string, string, object][] = [
    ['chat completions', '/v1/ai/chat/completions', { messages }],
    ['text', '/v1/ai/text', { prompt: 'hi' }],
  ];

  test.each(wholeCalls)('are 502 for an answer above the size limit: %s', async (_format, path, body) => {
    // With the default timeouts, as 40 MB may take longer than the short ones allow.
    const patientWorld = await startAi({ models: provider.modelsFile({ huge: 'huge?mb=40' }) });
    try {
      const response = await patientWorld.post(path, { model: 'acme/huge', ...body });
      expect(await problemIn(response)).toEqual([502, 'upstream_failed']);
    } finally {
      await patientWorld.close();
    }
  });

  test.each(wholeCalls)('are 502 for an unreachable provider: %s', async (_format, path, body) => {
    const response = await world.post(path, { model: 'nobody/home', ...body });
    expect(await problemIn(response)).toEqual([502, 'upstream_failed']);
  });

  test('send no key to the target of a redirect', async () => {
    expect(
      await problemIn(await world.post('/v1/ai/chat/completions', { model: 'acme/to-second', messages })),
    ).toEqual([502, 'upstream_failed']);
    expect(secondProvider.calls).toHaveLength(0);
  });

  test('show neither keys nor addresses in error messages', async () => {
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
  ])('turn a Retry-After of %s into %s', async (retryAfter, expected) => {
    const response = await world.post('/v1/ai/chat/completions', {
      model: `acme/after-${retryAfter}`,
      messages,
    });
    expect(response.status).toBe(429);
    expect(response.headers.get('retry-after')).toBe(expected);
  });

  test('leave no key in the log', () => {
    expect(world.logged.length).toBeGreaterThan(100);
    expect(world.logged.join('')).not.toContain(providerKey);
  });
});

function errorCodeIn(text: string): unknown {
  return (JSON.parse(text) as { error?: { code: unknown } }).error?.code;
}
