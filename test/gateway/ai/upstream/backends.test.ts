// How the backends of a provider, its keys and endpoints, are chosen and cool down.
import { beforeEach, describe, expect, test } from 'vitest';
import type { ProviderEntry } from '../../../../src/gateway/ai/catalog/models-file.ts';
import { keyEnvs, keysAtEndpoints } from '../../../../src/gateway/ai/catalog/provider-keys.ts';
import {
  createBackends,
  type Backend,
  type BackendPool,
} from '../../../../src/gateway/ai/upstream/backends.ts';
import { problemOfErrorResponse } from '../../../../src/gateway/ai/upstream/provider-error.ts';
import { sessionHash } from '../../../../src/gateway/ai/upstream/session-hash.ts';
import { hashText } from '../../../../src/kernel/hash-text.ts';

let nowMs = 0;
let env: Map<string, string>;
beforeEach(() => {
  nowMs = 0;
  env = new Map(['A_KEY', 'B_KEY', 'C_KEY'].map((name) => [name, `value of ${name}`]));
});

function poolOf(entry: Partial<ProviderEntry>): BackendPool {
  const backends = createBackends({ env, clock: { monotonicMs: () => nowMs } });
  return backends.poolOf({ id: 'acme', kind: 'openai-compatible', ...entry } as ProviderEntry);
}

const failure = (status: number, retryAfter?: string) =>
  problemOfErrorResponse({ status, retryAfter, body: '', hide: (text) => text, now: new Date(0) });

const namesOf = (backends: readonly (Backend | undefined)[]) => backends.map((backend) => backend?.keyEnv);

/** Makes calls that end at once, or never; returns the number of calls with each key. */
function countKeys(
  pool: BackendPool,
  calls: number,
  { endsCalls = true, session }: { endsCalls?: boolean; session?: (index: number) => number } = {},
): Record<string, number> {
  const counts: Record<string, number> = {};
  for (let index = 0; index < calls; index += 1) {
    const backend = pool.choose(session?.(index), 0) as Backend;
    backend.occupy();
    if (endsCalls) backend.release();
    counts[backend.keyEnv ?? ''] = (counts[backend.keyEnv ?? ''] ?? 0) + 1;
  }
  return counts;
}

describe('calls without a session', () => {
  const keys = [{ env: 'A_KEY', weight: 3 }, { env: 'B_KEY' }];

  test('are shared by weight', () => {
    expect(countKeys(poolOf({ keys }), 400)).toEqual({ A_KEY: 300, B_KEY: 100 });
  });

  test('are shared by weight while they run', () => {
    expect(countKeys(poolOf({ keys }), 40, { endsCalls: false })).toEqual({ A_KEY: 30, B_KEY: 10 });
  });

  test('go to the key with the fewest outstanding calls', () => {
    const pool = poolOf({ keys: [{ env: 'A_KEY' }, { env: 'B_KEY' }] });
    const [firstBackend] = pool.backends as [Backend];
    firstBackend.occupy();
    firstBackend.occupy();
    expect(namesOf([pool.choose(undefined, 0), pool.choose(undefined, 0)])).toEqual(['B_KEY', 'B_KEY']);
    firstBackend.release();
    firstBackend.release();
    expect(countKeys(pool, 10)).toEqual({ A_KEY: 5, B_KEY: 5 });
  });

  test('go to keys that are set', () => {
    env.delete('A_KEY');
    expect(countKeys(poolOf({ keys }), 10)).toEqual({ B_KEY: 10 });
  });
});

describe('calls of a session', () => {
  const keys = [{ env: 'A_KEY' }, { env: 'B_KEY' }, { env: 'C_KEY' }];

  test('reach the same key in every process', () => {
    const sessions = Array.from({ length: 50 }, (_, index) => hashText(`session ${index}`));
    const firstPool = poolOf({ keys });
    const secondPool = poolOf({ keys: keys.toReversed() });
    const keysOf = (pool: BackendPool) => namesOf(sessions.map((session) => pool.choose(session, 0)));
    expect(keysOf(secondPool)).toEqual(keysOf(firstPool));
    expect(keysOf(firstPool)).toEqual(keysOf(firstPool));
  });

  test('are shared by weight over many sessions', () => {
    const pool = poolOf({ keys: [{ env: 'A_KEY', weight: 3 }, { env: 'B_KEY' }] });
    const counts = countKeys(pool, 4_000, { session: (index) => hashText(`session ${index}`) });
    expect((counts['A_KEY'] ?? 0) / 4_000).toBeCloseTo(0.75, 1);
  });

  test('keep their key, or move to a key that was added', () => {
    const poolBefore = poolOf({ keys: keys.slice(0, 2) });
    const poolAfter = poolOf({ keys });
    const movedSessions = Array.from({ length: 300 }, (_, index) => hashText(`session ${index}`))
      .map((session) => [poolBefore.choose(session, 0)?.keyEnv, poolAfter.choose(session, 0)?.keyEnv])
      .filter(([from, to]) => from !== to);
    expect(movedSessions.every(([, to]) => to === 'C_KEY')).toBe(true);
    // About a third of the 300 sessions moves to the third key.
    expect(movedSessions.length).toBeGreaterThan(60);
    expect(movedSessions.length).toBeLessThan(140);
  });

  test('leave a key that has far more than its share', () => {
    const counts = countKeys(poolOf({ keys }), 60, {
      endsCalls: false,
      session: () => hashText('one session'),
    });
    // A key may have 1.25 times its share of 20 calls, which is 25; one more allows for rounding.
    expect(Math.max(...Object.values(counts))).toBeLessThanOrEqual(26);
    expect(Object.keys(counts)).toHaveLength(3);
  });

  test('return to their key after its cool-down', () => {
    const pool = poolOf({ keys });
    const session = hashText('one session');
    const chosenBackend = pool.choose(session, 0) as Backend;
    pool.recordFailure(chosenBackend, failure(429, '7'));
    expect(pool.choose(session, 0)).not.toBe(chosenBackend);
    nowMs = 7_000;
    expect(pool.choose(session, 0)).toBe(chosenBackend);
  });
});

describe('a cool-down', () => {
  const keys = [{ env: 'A_KEY' }, { env: 'B_KEY' }];

  function coolingOf(pool: BackendPool) {
    return pool.reports()[0]?.cooling;
  }

  test.each([
    ['429 with Retry-After', 429, '7', { reason: 'rate_limited', restMs: 7_000 }],
    ['429 that requests a day', 429, '86400', { reason: 'rate_limited', restMs: 300_000 }],
    ['429 with Retry-After 0', 429, '0', { reason: 'rate_limited', restMs: 1_000 }],
    ['429 alone', 429, undefined, { reason: 'rate_limited', restMs: 1_000 }],
    ['401', 401, undefined, { reason: 'key_refused', restMs: 60_000 }],
    ['402', 402, undefined, { reason: 'payment_required', restMs: 60_000 }],
    ['403', 403, undefined, undefined],
    ['503', 503, '7', undefined],
  ])('follows %s', (_name, status, retryAfter, cooling) => {
    const pool = poolOf({ keys });
    pool.recordFailure(pool.backends[0] as Backend, failure(status, retryAfter));
    expect(coolingOf(pool)).toEqual(cooling);
  });

  test('doubles with each failure in a row up to a minute', () => {
    const pool = poolOf({ keys });
    const restsMs: number[] = [];
    for (let count = 0; count < 8; count += 1) {
      pool.recordFailure(pool.backends[0] as Backend, failure(429));
      restsMs.push(coolingOf(pool)?.restMs ?? 0);
    }
    expect(restsMs).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
    pool.recordSuccess(pool.backends[0] as Backend);
    expect(coolingOf(pool)).toBeUndefined();
  });

  test('counts failures of calls that were sent before it as one', () => {
    const pool = poolOf({ keys });
    const [backend] = pool.backends as [Backend];
    nowMs = 100;
    for (let call = 0; call < 5; call += 1) {
      pool.recordFailure(backend, failure(429), 0);
      nowMs += 10;
    }
    // The last failure, at 140 ms, extends the cool-down of one second without doubling it. Now it is 150 ms.
    expect(coolingOf(pool)?.restMs).toBe(990);
    pool.recordFailure(backend, failure(429), nowMs);
    expect(coolingOf(pool)?.restMs).toBe(2_000);
  });

  test('is not shortened by an earlier call that fails later', () => {
    const pool = poolOf({ keys });
    const [backend] = pool.backends as [Backend];
    nowMs = 100;
    pool.recordFailure(backend, failure(429, '30'), 0);
    pool.recordFailure(backend, failure(429), 50);
    expect(coolingOf(pool)?.restMs).toBe(30_000);
  });

  test('is not ended by the answer to an earlier call', () => {
    const pool = poolOf({ keys });
    const [backend] = pool.backends as [Backend];
    nowMs = 100;
    pool.recordFailure(backend, failure(429, '9'), 50);
    pool.recordSuccess(backend, 60);
    expect(coolingOf(pool)?.restMs).toBe(9_000);
    pool.recordSuccess(backend, 100);
    expect(coolingOf(pool)).toBeUndefined();
  });

  test('ends when the variable has another key', () => {
    const pool = poolOf({ keys });
    pool.recordFailure(pool.backends[0] as Backend, failure(401));
    env.set('A_KEY', 'a new value');
    expect(coolingOf(pool)).toBeUndefined();
  });

  test('outlives a change of the models file', () => {
    const backends = createBackends({ env, clock: { monotonicMs: () => nowMs } });
    const entry = { id: 'acme', kind: 'openai-compatible', keys } as ProviderEntry;
    const pool = backends.poolOf(entry);
    pool.recordFailure(pool.backends[0] as Backend, failure(401));
    expect(coolingOf(backends.poolOf({ ...entry }))).toMatchObject({ reason: 'key_refused' });
  });

  const endpoints = [{ base_url: 'https://a.example' }, { base_url: 'https://b.example' }];
  /** The reasons of all cool-downs after a failure of the first backend. */
  function reasonsAfter(status: number, entry: Partial<ProviderEntry>) {
    const pool = poolOf(entry);
    pool.recordFailure(pool.backends[0] as Backend, failure(status));
    return pool.reports().map(({ cooling }) => cooling?.reason);
  }

  test('of a limited key applies to one endpoint', () => {
    expect(reasonsAfter(429, { keys, endpoints })).toEqual(['rate_limited', undefined, undefined, undefined]);
  });

  test('of a refused key applies to every endpoint', () => {
    expect(reasonsAfter(401, { keys, endpoints })).toEqual([
      'key_refused',
      undefined,
      'key_refused',
      undefined,
    ]);
  });

  test('of an endpoint without a key applies only to this endpoint', () => {
    expect(reasonsAfter(401, { endpoints })).toEqual(['key_refused', undefined]);
  });

  test('does not start for the only key of a provider', () => {
    const pool = poolOf({ api_key_env: 'A_KEY' });
    pool.recordFailure(pool.backends[0] as Backend, failure(429, '60'));
    expect(coolingOf(pool)).toBeUndefined();
  });

  test('of all keys leaves the key whose cool-down ends first', () => {
    const pool = poolOf({ keys });
    pool.recordFailure(pool.backends[0] as Backend, failure(401));
    pool.recordFailure(pool.backends[1] as Backend, failure(429, '5'));
    expect(pool.choose(undefined, 0)).toBeUndefined();
    expect(pool.soonest(0)?.keyEnv).toBe('B_KEY');
    expect(pool.restMs()).toBe(5_000);
  });
});

describe('the endpoints of a provider', () => {
  test('use the keys of the provider unless they have a key of their own', () => {
    const entry = {
      keys: [{ env: 'A_KEY', weight: 2 }, { env: 'B_KEY' }],
      endpoints: [
        { base_url: 'https://a.example', weight: 3 },
        { base_url: 'https://b.example', api_key_env: 'C_KEY' },
      ],
    };
    expect(keysAtEndpoints(entry)).toEqual([
      { keyEnv: 'A_KEY', envs: ['A_KEY'], baseUrl: 'https://a.example', weight: 6 },
      { keyEnv: 'B_KEY', envs: ['B_KEY'], baseUrl: 'https://a.example', weight: 3 },
      { keyEnv: 'C_KEY', envs: ['C_KEY'], baseUrl: 'https://b.example', weight: 1 },
    ]);
    expect(keyEnvs(entry)).toEqual(['A_KEY', 'B_KEY', 'C_KEY']);
  });
});

describe('the session of a call', () => {
  const conversation = (firstText: string, ...laterTexts: string[]) => ({
    messages: [
      { role: 'system', content: 'Answer briefly.' },
      { role: 'user', content: firstText },
      ...laterTexts.map((content, index) => ({ role: index % 2 === 0 ? 'assistant' : 'user', content })),
    ],
  });

  test('is the same in every turn of a conversation', () => {
    const firstHash = sessionHash({ body: conversation('Hello') });
    expect(firstHash).toEqual(expect.any(Number));
    expect(sessionHash({ body: conversation('Hello', 'Hi.', 'How are you?') })).toBe(firstHash);
    expect(sessionHash({ body: conversation('Good evening') })).not.toBe(firstHash);
  });

  test.each([
    ['chat completions', { messages: [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }] }],
    ['messages', { system: [{ type: 'text', text: 'Hello' }], messages: [] }],
    ['responses', { instructions: 'Hello', input: [] }],
    ['responses with a string', { input: 'Hello' }],
    ['text', { prompt: 'Hello' }],
    ['stream', { prompt: [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }] }],
  ])('comes from the prompt of %s', (_name, body) => {
    expect(sessionHash({ body })).toEqual(expect.any(Number));
    const otherBody = JSON.parse(JSON.stringify(body).replace('Hello', 'Good evening')) as object;
    expect(sessionHash({ body: otherBody })).not.toBe(sessionHash({ body }));
  });

  test.each<[string, Parameters<typeof sessionHash>[0]]>([
    ['the header x-session-id', { headers: { 'x-session-id': 's-1' }, body: {} }],
    ['prompt_cache_key', { body: { prompt_cache_key: 's-1' } }],
    ['metadata.user_id', { body: { metadata: { user_id: 's-1' } } }],
  ])('is %s if the call has it', (_name, { headers, body }) => {
    const withPrompt = (content: string) =>
      sessionHash({ headers, body: { ...body, ...conversation(content) } });
    expect(withPrompt('Hello')).toBe(hashText('s-1'));
    expect(withPrompt('Good evening')).toBe(hashText('s-1'));
  });

  test('is absent without a session id and a prompt', () => {
    expect(sessionHash({ headers: {}, body: {} })).toBeUndefined();
    expect(sessionHash({ body: { messages: 7, metadata: 'x', prompt: [null, 3] } })).toBeUndefined();
  });
});
