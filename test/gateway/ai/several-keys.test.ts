// Providers with several keys or endpoints: which of them a call reaches, and what follows a failure.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/kernel/clock.ts';
import { keyOf, startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { adminToken, errorOf, startAi, testResilience, type World, type WorldOptions } from './world.ts';

const keys = [{ env: 'A_KEY' }, { env: 'B_KEY' }];
const [firstKey, secondKey] = ['the-value-of-a', 'the-value-of-b'];
const messages = [{ role: 'user', content: 'hi' }];

let provider: ScriptedProvider;
let secondProvider: ScriptedProvider;
beforeAll(async () => {
  provider = await startProvider();
  secondProvider = await startProvider();
});
afterAll(async () => {
  await provider.close();
  await secondProvider.close();
});
beforeEach(() => {
  provider.reset();
  secondProvider.reset();
});

const priceAndLimits = {
  rates: { input: 1_000_000, output: 1_000_000 },
  context_window: 1_000,
  max_output_tokens: 100,
};

/** Provider `acme` with the members, and `spare` without a key, to which its models fall back. */
function modelsFileWith(members: object): string {
  const modalities = ['text', 'stream', 'openai', 'embedding'];
  return provider.modelsFile(
    { ok: 'ok' },
    {
      provider: { api_key_env: undefined, output_limit_member: 'max_tokens', ...members },
      model: { ...priceAndLimits, fallbacks: ['spare/ok'] },
      providers: [
        { id: 'claude', kind: 'anthropic', base_url: provider.url, keys },
        { id: 'gpt', kind: 'openai', base_url: provider.url, keys },
        {
          id: 'spare',
          kind: 'openai-compatible',
          base_url: secondProvider.url,
          output_limit_member: 'max_tokens',
        },
      ],
      models: [
        { id: 'claude/ok', provider: 'claude', ...priceAndLimits },
        { id: 'gpt/ok', provider: 'gpt', ...priceAndLimits },
        { id: 'acme/alone', provider: 'acme', upstream_model: 'ok', modalities, ...priceAndLimits },
        { id: 'spare/ok', provider: 'spare', ...priceAndLimits },
        {
          id: 'spare/silent',
          provider: 'spare',
          upstream_model: 'never-headers',
          ...priceAndLimits,
          first_content_s: 1,
          fallbacks: ['acme/alone'],
        },
        ...['acme', 'spare'].map((owner) => ({
          id: `${owner}/dear`,
          provider: owner,
          upstream_model: 'ok',
          ...priceAndLimits,
          rates: { input: 2_000_000, output: 2_000_000 },
          fallbacks: ['acme/alone'],
          route_by: 'price',
        })),
      ],
    },
  );
}

/** Runs the test with its own gateway, since the cool-downs of keys would outlive the test. */
async function withWorld(
  use: (world: World) => Promise<void>,
  { members = { keys }, options = {} }: { members?: object; options?: WorldOptions } = {},
): Promise<void> {
  const world = await startAi({
    models: modelsFileWith(members),
    env: { A_KEY: firstKey, B_KEY: secondKey },
    resilience: testResilience,
    ...options,
  });
  try {
    await use(world);
  } finally {
    await world.close();
  }
}

const chat = (world: World, members: object = {}, headers: Record<string, string> = {}) =>
  world.post('/v1/ai/chat/completions', { model: 'acme/alone', messages, ...members }, { headers });
const keysOfCalls = () => provider.calls.map((call) => keyOf(call));
/** A session, whose calls all reach the same key while it is ready; a hash of the session decides which. */
const stickySession = { 'x-session-id': 'session 1' };

async function findSessionKey(world: World): Promise<string> {
  expect((await chat(world, {}, stickySession)).status).toBe(200);
  return keysOfCalls().at(-1) ?? '';
}

const otherThan = (key: string) => (key === firstKey ? secondKey : firstKey);

describe('a provider with two keys', () => {
  test.each([
    ['429', { status: 429, retryAfter: 30 }],
    ['401', { status: 401 }],
    ['402', { status: 402 }],
  ])('answers with the other key after %s and charges once', async (_name, answer) => {
    await withWorld(async (world) => {
      const usualKey = await findSessionKey(world);
      provider.reset();
      world.ledger.reset();
      provider.answerKey(usualKey, answer);
      const response = await chat(world, {}, stickySession);
      expect(response.status).toBe(200);
      expect(response.headers.get('x-townhall-attempts')).toMatch(
        /^acme\/alone;[a-z_]+, acme\/alone;answered$/,
      );
      expect((await chat(world, {}, stickySession)).status).toBe(200);
      expect(keysOfCalls()).toEqual([usualKey, otherThan(usualKey), otherThan(usualKey)]);
      // 10 input tokens and 4 output tokens for each call.
      expect(world.ledger.charges.map(({ charged }) => charged)).toEqual([14n, 14n]);
      expect(world.ledger.held()).toBe(0n);
    });
  });

  const formats: [string, (world: World) => Promise<Response>][] = [
    ['chat, whole', (world) => chat(world)],
    ['chat, streamed', (world) => chat(world, { stream: true })],
    ['chat, translated', (world) => chat(world, { model: 'claude/ok', stream: true })],
    ...[true, false].flatMap((stream): [string, (world: World) => Promise<Response>][] => [
      [
        `messages, ${stream ? 'streamed' : 'whole'}`,
        (world) => world.post('/v1/ai/messages', { model: 'claude/ok', max_tokens: 50, messages, stream }),
      ],
      [
        `messages, translated, ${stream ? 'streamed' : 'whole'}`,
        (world) => world.post('/v1/ai/messages', { model: 'acme/alone', max_tokens: 50, messages, stream }),
      ],
      [
        `responses, ${stream ? 'streamed' : 'whole'}`,
        (world) => world.post('/v1/ai/responses', { model: 'gpt/ok', input: 'hi', store: false, stream }),
      ],
      [
        `responses, translated, ${stream ? 'streamed' : 'whole'}`,
        (world) => world.post('/v1/ai/responses', { model: 'claude/ok', input: 'hi', store: false, stream }),
      ],
    ]),
    ['text', (world) => world.post('/v1/ai/text', { model: 'acme/alone', prompt: 'hi' })],
    [
      'stream',
      (world) =>
        world.post('/v1/ai/stream', {
          model: 'acme/alone',
          prompt: [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }],
        }),
    ],
    [
      'Gemini',
      (world) =>
        world.post('/v1beta/models/acme%2Falone:generateContent', {
          contents: [{ role: 'user', parts: [{ text: 'hi' }] }],
        }),
    ],
    ['embeddings', (world) => world.post('/v1/ai/embeddings', { model: 'acme/alone', input: 'hi' })],
  ];
  test.each(formats)('answers with either key: %s', async (_name, call) => {
    await withWorld(async (world) => {
      for (const limitedKey of [firstKey, secondKey]) {
        provider.reset();
        provider.answerKey(limitedKey, { status: 429, retryAfter: 0 });
        const response = await call(world);
        expect(response.status).toBe(200);
        await response.text();
        expect(keysOfCalls().at(-1)).toBe(otherThan(limitedKey));
      }
    });
  });

  test('reports the refusal when both keys are refused', async () => {
    await withWorld(async (world) => {
      provider.answerKey(firstKey, { status: 401 });
      provider.answerKey(secondKey, { status: 401 });
      const response = await chat(world);
      expect(response.status).toBe(502);
      const error = await errorOf(response);
      expect(error).toMatchObject({ code: 'provider_credentials' });
      expect(new Set(keysOfCalls())).toEqual(new Set([firstKey, secondKey]));
      expect(provider.calls).toHaveLength(2);
      expect(world.ledger.charges.map(({ charged }) => charged)).toEqual([0n]);
      for (const secret of [firstKey, secondKey])
        expect(JSON.stringify([error, world.logged])).not.toContain(secret);
    });
  });
});

describe('the cool-down of a key', () => {
  test('ends after the seconds of Retry-After', async () => {
    let skippedMs = 0;
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + skippedMs };
    await withWorld(
      async (world) => {
        const usualKey = await findSessionKey(world);
        provider.answerKey(usualKey, { status: 429, retryAfter: 100 });
        await chat(world, {}, stickySession);
        provider.answerKey(usualKey);
        skippedMs = 90_000;
        await chat(world, {}, stickySession);
        expect(keysOfCalls().at(-1)).toBe(otherThan(usualKey));
        skippedMs = 100_001;
        await chat(world, {}, stickySession);
        expect(keysOfCalls().at(-1)).toBe(usualKey);
      },
      { options: { clock } },
    );
  });

  test('of all keys sends calls to the fallback at once', async () => {
    await withWorld(async (world) => {
      provider.answerKey(firstKey, { status: 401 });
      provider.answerKey(secondKey, { status: 402 });
      expect((await chat(world, { model: 'acme/ok' })).headers.get('x-townhall-attempts')).toMatch(
        /^acme\/ok;[a-z_]+, acme\/ok;[a-z_]+, spare\/ok;answered$/,
      );
      expect((await chat(world, { model: 'acme/ok' })).headers.get('x-townhall-attempts')).toBe(
        'acme/ok;keys_cooling, spare/ok;answered',
      );
      expect(provider.calls).toHaveLength(2);
    });
  });

  test('of all keys is ignored without a fallback', async () => {
    await withWorld(async (world) => {
      provider.answerKey(firstKey, { status: 401 });
      provider.answerKey(secondKey, { status: 401 });
      expect((await chat(world)).status).toBe(502);
      provider.reset();
      expect((await chat(world)).status).toBe(200);
    });
  });
});

describe('the keys of a provider', () => {
  test('are hidden from users', async () => {
    await withWorld(async (world) => {
      expect((await world.get('/v1/ai/providers')).status).toBe(403);
    });
  });

  test('are shown with their states to an administrator', async () => {
    await withWorld(async (world) => {
      const usualKey = await findSessionKey(world);
      provider.answerKey(usualKey, { status: 429, retryAfter: 30 });
      await chat(world, {}, stickySession);
      const text = await (await world.get('/v1/ai/providers', { token: adminToken })).text();
      expect(text).not.toContain(firstKey);
      expect(text).not.toContain(secondKey);
      const { items } = JSON.parse(text) as { items: { id: string; keys: { env: string }[] }[] };
      expect(items.map(({ id }) => id)).toEqual(['acme', 'claude', 'gpt', 'spare']);
      const isUsualKey = ({ env }: { env: string }) => (env === 'A_KEY') === (usualKey === firstKey);
      const states = items[0]?.keys ?? [];
      expect(states.find(isUsualKey)).toMatchObject({
        state: 'rate_limited',
        calls: 2,
        failures: 1,
        running: 0,
      });
      expect(states.find((key) => !isUsualKey(key))).toMatchObject({
        state: 'ready',
        ready_in_seconds: 0,
        calls: 1,
        failures: 0,
        weight: 1,
        base_url: null,
      });
    });
  });

  test('need not all be set', async () => {
    await withWorld(
      async (world) => {
        expect((await chat(world)).status).toBe(200);
        expect(keysOfCalls()).toEqual([secondKey]);
        const model = (await (
          await world.get('/v1/ai/models/acme%2Falone', { token: adminToken })
        ).json()) as {
          env_requirements: object[];
        };
        expect(model.env_requirements).toMatchObject([
          { key: 'A_KEY', required: false },
          { key: 'B_KEY', required: false },
        ]);
        world.env.delete('B_KEY');
        expect((await chat(world)).status).toBe(404);
      },
      { options: { env: { B_KEY: secondKey } } },
    );
  });
});

describe('the calls of a session', () => {
  const manySessions = Array.from({ length: 12 }, (_, index) => `session ${index}`);

  test.each<[string, (session: string) => [path: string, body: object, headers?: Record<string, string>]]>([
    [
      'x-session-id',
      (session) => ['/v1/ai/text', { model: 'acme/alone', prompt: 'hi' }, { 'x-session-id': session }],
    ],
    [
      'metadata.user_id of messages',
      (session) => [
        '/v1/ai/messages',
        { model: 'claude/ok', max_tokens: 9, messages, metadata: { user_id: session } },
      ],
    ],
    [
      'prompt_cache_key of responses',
      (session) => [
        '/v1/ai/responses',
        { model: 'gpt/ok', input: 'hi', store: false, prompt_cache_key: session },
      ],
    ],
    [
      'the start of the prompt',
      (session) => [
        '/v1/ai/chat/completions',
        { model: 'acme/alone', messages: [{ role: 'user', content: session }] },
      ],
    ],
    [
      'the start of the prompt of completions',
      (session) => ['/v1/ai/completions', { model: 'acme/alone', prompt: session }],
    ],
  ])('reach the same key: %s', async (_name, callOf) => {
    await withWorld(async (world) => {
      for (const session of [...manySessions, ...manySessions]) {
        const [path, body, headers = {}] = callOf(session);
        expect((await world.post(path, body, { headers })).status).toBe(200);
      }
      const firstKeys = keysOfCalls().slice(0, manySessions.length);
      expect(keysOfCalls().slice(manySessions.length)).toEqual(firstKeys);
      expect(new Set(firstKeys).size).toBe(2);
    });
  });
});

const breaker = { consecutiveFailures: 2 };
const resilience = { ...testResilience, breaker, retry: { ...testResilience.retry, retries: 0 } };

describe('the circuit breaker of a provider with several keys', () => {
  test('stays closed when a key is limited, refused or unpaid', async () => {
    await withWorld(
      async (world) => {
        for (const status of [429, 401, 402, 402, 402]) {
          provider.answerKey(firstKey, { status });
          provider.answerKey(secondKey, { status });
          expect((await chat(world)).status).toBeGreaterThanOrEqual(400);
        }
        provider.reset();
        expect((await chat(world)).status).toBe(200);
      },
      { options: { resilience } },
    );
  });
});

describe('a provider with two endpoints', () => {
  // The random ports decide which endpoint a session reaches. With 24 sessions it is practically certain that
  // each of the two endpoints is reached at least twice.
  const sessionCount = 24;
  const endpointMembers = () => ({
    base_url: undefined,
    keys: [{ env: 'A_KEY' }],
    endpoints: [{ base_url: provider.url }, { base_url: secondProvider.url }],
  });

  /** Sends one call for each session, and returns the statuses. */
  async function callAll(world: World): Promise<number[]> {
    const statuses: number[] = [];
    for (let index = 0; index < sessionCount; index += 1)
      statuses.push((await chat(world, {}, { 'x-session-id': `${index}` })).status);
    return statuses;
  }

  test('opens the circuit breaker only of the endpoint that fails', async () => {
    await withWorld(
      async (world) => {
        provider.answerKey(firstKey, { status: 503 });
        const failures = (await callAll(world)).filter((status) => status !== 200);
        expect(failures).toHaveLength(breaker.consecutiveFailures);
        // From then on all calls go to the other endpoint.
        expect(new Set(await callAll(world))).toEqual(new Set([200]));
        expect(provider.calls).toHaveLength(breaker.consecutiveFailures);
      },
      { members: endpointMembers(), options: { resilience } },
    );
  });

  test('retries a failed call at the other endpoint', async () => {
    await withWorld(
      async (world) => {
        provider.answerKey(firstKey, { status: 503 });
        expect(new Set(await callAll(world))).toEqual(new Set([200]));
        expect(secondProvider.calls).toHaveLength(sessionCount);
        expect(provider.calls.length).toBeGreaterThan(0);
      },
      { members: endpointMembers() },
    );
  });
});

describe('a model of several providers', () => {
  // A call has 10 input tokens and 4 output tokens. A token costs 1 credit at `alone` and 2 at `dear`.
  test('is called at the cheapest provider and charged at its rates', async () => {
    await withWorld(async (world) => {
      const response = await chat(world, { model: 'acme/dear' });
      expect(response.headers.get('x-townhall-model')).toBe('acme/alone');
      expect(world.ledger.last().charged).toBe(14n);
      expect(world.ledger.held()).toBe(0n);
    });
  });

  test('is called at the next provider when the cheapest fails', async () => {
    await withWorld(async (world) => {
      for (const key of [firstKey, secondKey]) provider.answerKey(key, { status: 503 });
      const response = await chat(world, { model: 'spare/dear' });
      expect(response.headers.get('x-townhall-attempts')).toMatch(/^acme\/alone;.*, spare\/dear;answered$/);
      expect(world.ledger.last().charged).toBe(28n);
    });
  });
});

describe('a stream without content', () => {
  test.each([
    ['chat completions', '/v1/ai/chat/completions', { messages }],
    ['completions', '/v1/ai/completions', { prompt: 'hi' }],
  ])('goes to the fallback after first_content_s: %s', async (_name, path, prompt) => {
    await withWorld(async (world) => {
      const response = await world.post(path, { model: 'spare/silent', stream: true, ...prompt });
      expect(response.headers.get('x-townhall-attempts')).toBe(
        'spare/silent;upstream_timeout, acme/alone;answered',
      );
      await response.text();
      expect((await world.ledger.until(1)).charged).toBeGreaterThan(0n);
      expect(world.ledger.charges).toHaveLength(1);
      await secondProvider.until(([call]) => call?.abortedAt !== undefined);
    });
  });
});

describe('the models file', () => {
  test.each([
    [{ api_key_env: 'C_KEY', keys }, /api_key_env.*cannot be combined with `keys`/],
    [{ keys: [...keys, { env: 'A_KEY' }] }, /keys\[2\]\.env.*named twice/],
    [{ keys: [{ env: 'a' }] }, /keys\[0\]\.env/],
    [{ keys: [{ env: 'A_KEY', weight: 0 }] }, /keys\[0\]\.weight/],
    [{ keys: [] }, /keys/],
    [{ endpoints: [{ base_url: 'http://u:p@127.0.0.1' }] }, /endpoints\[0\]\.base_url/],
    [{ endpoints: [{ base_url: 'http://a.example/' }, { base_url: 'http://a.example' }] }, /named twice/],
    [
      {
        keys,
        endpoints: Array.from({ length: 16 }, (_, position) => ({ base_url: `http://${position}.example` })),
      },
      /32 combinations .* at most 30/,
    ],
  ])('is refused: %j', async (members, message) => {
    await expect(withWorld(async () => {}, { members })).rejects.toThrow(message);
  });
});
