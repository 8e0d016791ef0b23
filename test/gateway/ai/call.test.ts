// Retries, fallbacks and circuit breakers of a call, on a clock without waits.
import { describe, expect, test } from 'vitest';
import { callModel } from '../../../src/gateway/ai/calls/call.ts';
import type { CatalogModel } from '../../../src/gateway/ai/catalog/catalog.ts';
import { createBreaker, defaultBreakerSettings } from '../../../src/gateway/ai/upstream/breaker.ts';
import {
  createModelHealth,
  type ModelHealth,
  type ModelHealthOptions,
} from '../../../src/gateway/ai/upstream/model-health.ts';
import {
  ConnectionFailure,
  problemOfErrorResponse,
} from '../../../src/gateway/ai/upstream/provider-error.ts';
import { createRetryBudget, defaultRetrySettings } from '../../../src/gateway/ai/upstream/retry.ts';
import { Problem } from '../../../src/kernel/problem.ts';

/** A clock on which every sleep ends at once. */
function stillClock() {
  let nowMs = 0;
  const sleepsMs: number[] = [];
  return {
    sleepsMs,
    monotonicMs: () => nowMs,
    advance: (ms: number) => void (nowMs += ms),
    async sleep(ms: number, signal?: AbortSignal) {
      signal?.throwIfAborted();
      sleepsMs.push(ms);
      nowMs += ms;
    },
  };
}

const model = (id: string, overrides: Partial<CatalogModel> = {}) =>
  ({
    id,
    provider: 'acme',
    upstream_model: id,
    providerEntry: { kind: 'openai-compatible' },
    ...overrides,
  }) as CatalogModel;
const errorResponse = (status: number, retryAfter?: string) =>
  problemOfErrorResponse({ status, retryAfter, body: '', hide: (text) => text, now: new Date(0) });
const unreachedProblem = () =>
  new Problem('upstream_failed', 'upstream_failed', 'x', { cause: new ConnectionFailure('reset') });
const timeoutProblem = () => new Problem('upstream_timeout', 'upstream_timeout', 'x');

interface Run {
  chain?: CatalogModel[];
  deadlineMs?: number;
  signal?: AbortSignal;
  check?: (model: CatalogModel) => void;
  effort?: (model: CatalogModel) => string | undefined;
  content?: (model: CatalogModel) => undefined;
  /** Outcomes of the attempts, in order; the last is repeated. */
  outcomes: (Problem | 'ok')[];
}

/** Calls of one gateway: their models share breakers and retry budgets. */
function createCalls(options: ModelHealthOptions): {
  health: ModelHealth;
  clock: ModelHealthOptions['clock'];
} {
  return { health: createModelHealth(options), clock: options.clock };
}

/** Starts the call; `calledModels` are the models of its attempts. */
function runWith(calls: ReturnType<typeof createCalls>, { outcomes, ...request }: Run) {
  let count = 0;
  const calledModels: string[] = [];
  const run = callModel(
    {
      chain: request.chain ?? [model('acme/fast')],
      signal: request.signal ?? new AbortController().signal,
      deadlineMs: request.deadlineMs ?? 60_000,
      check: request.check ?? (() => {}),
      effort: request.effort ?? (() => undefined),
      content: request.content ?? (() => undefined),
      send: async (attempt) => {
        calledModels.push(attempt.model.id);
        const outcome = outcomes[Math.min(count, outcomes.length - 1)];
        count += 1;
        if (outcome instanceof Problem) throw outcome;
        return `from ${attempt.model.id}`;
      },
    },
    calls,
  );
  return { run, calledModels };
}

/** Runs a call that fails. Resolves to the models of its attempts. */
async function runToFailure(calls: ReturnType<typeof createCalls>, options: Run): Promise<string[]> {
  const { run, calledModels } = runWith(calls, options);
  await expect(run).rejects.toBeInstanceOf(Error);
  return calledModels;
}

const fixedRandom = () => 0.5;

describe('a call that fails before its first byte', () => {
  test.each<[string, Problem]>([
    ['408', errorResponse(408)],
    ['429', errorResponse(429)],
    ['500', errorResponse(500)],
    ['502', errorResponse(502)],
    ['503', errorResponse(503)],
    ['504', errorResponse(504)],
    ['529', errorResponse(529)],
    ['a connection that fails', unreachedProblem()],
  ])('is retried after 0.5 and 1 second less jitter: %s', async (_name, failure) => {
    const clock = stillClock();
    const { run, calledModels } = runWith(createCalls({ clock, random: fixedRandom }), {
      outcomes: [failure, failure, 'ok'],
    });
    expect(await run).toMatchObject({
      answer: 'from acme/fast',
      attempts: [{ outcome: failure.code }, { outcome: failure.code }, { outcome: 'answered' }],
    });
    expect(calledModels).toHaveLength(3);
    // The jitter shortens a delay by up to 25 percent, and by 12.5 percent at the fixed random number.
    expect(clock.sleepsMs).toEqual([437.5, 875]);
  });

  test.each([400, 401, 402, 403, 404, 409, 413, 418, 422, 501])(
    'is not retried and has no fallback for status %i',
    async (status) => {
      const { run, calledModels } = runWith(createCalls({ clock: stillClock() }), {
        chain: [model('acme/fast'), model('acme/slow')],
        outcomes: [errorResponse(status), 'ok'],
      });
      await expect(run).rejects.toBeInstanceOf(Problem);
      expect(calledModels).toEqual(['acme/fast']);
    },
  );

  test('is not retried after its deadline', async () => {
    const { run, calledModels } = runWith(createCalls({ clock: stillClock() }), {
      outcomes: [timeoutProblem(), 'ok'],
    });
    await expect(run).rejects.toMatchObject({ kind: 'upstream_timeout' });
    expect(calledModels).toHaveLength(1);
  });

  test('waits for a Retry-After within the deadline', async () => {
    const clock = stillClock();
    expect(
      await runWith(createCalls({ clock }), { outcomes: [errorResponse(429, '7'), 'ok'] }).run,
    ).toMatchObject({ answer: 'from acme/fast' });
    expect(clock.sleepsMs).toEqual([7_000]);
  });

  test('is not retried when the Retry-After exceeds the deadline', async () => {
    const { run, calledModels } = runWith(createCalls({ clock: stillClock() }), {
      outcomes: [errorResponse(429, '7'), 'ok'],
      deadlineMs: 5_000,
    });
    await expect(run).rejects.toMatchObject({ kind: 'rate_limited', headers: { 'retry-after': '7' } });
    expect(calledModels).toHaveLength(1);
  });

  test('goes to the fallbacks in order after its retries', async () => {
    const chain = ['acme/fast', 'acme/slow', 'acme/last'].map((id) => model(id));
    const { run, calledModels } = runWith(createCalls({ clock: stillClock() }), {
      chain,
      outcomes: [...Array<Problem>(6).fill(errorResponse(503)), 'ok'],
    });
    expect((await run).model.id).toBe('acme/last');
    expect(calledModels).toEqual([
      'acme/fast',
      'acme/fast',
      'acme/fast',
      'acme/slow',
      'acme/slow',
      'acme/slow',
      'acme/last',
    ]);
  });

  test('does not wait long for a model that has a fallback', async () => {
    const clock = stillClock();
    const { run } = runWith(createCalls({ clock }), {
      chain: [model('acme/fast'), model('acme/slow')],
      outcomes: [errorResponse(429, '30'), 'ok'],
    });
    expect(await run).toMatchObject({ model: { id: 'acme/slow' } });
    expect(clock.sleepsMs).toEqual([]);
  });

  test('throws the last failure with all attempts in its headers', async () => {
    const { run } = runWith(createCalls({ clock: stillClock() }), {
      chain: [model('acme/fast'), model('acme/slow')],
      outcomes: [errorResponse(503)],
    });
    const attempts = [
      ...Array<string>(3).fill('acme/fast;upstream_failed'),
      ...Array<string>(3).fill('acme/slow;upstream_failed'),
    ].join(', ');
    await expect(run).rejects.toMatchObject({
      status: 502,
      code: 'upstream_failed',
      headers: { 'x-townhall-attempts': attempts },
    });
  });

  test('ends at once when the caller disconnects during a wait', async () => {
    const caller = new AbortController();
    const { run, calledModels } = runWith(
      createCalls({
        clock: { ...stillClock(), sleep: async (_ms, signal) => (caller.abort(), signal?.throwIfAborted()) },
      }),
      {
        signal: caller.signal,
        outcomes: [errorResponse(503), 'ok'],
      },
    );
    await expect(run).rejects.toThrow('aborted');
    expect(calledModels).toHaveLength(1);
  });
});

describe('a chain of models', () => {
  const refuseModel = (id: string) => (model: CatalogModel) => {
    if (model.id === id) throw new Problem('impossible', 'unsupported_by_model', 'takes no images');
  };

  test('skips a model that does not accept the media', async () => {
    const { run } = runWith(createCalls({ clock: stillClock() }), {
      chain: [model('acme/blind'), model('acme/seeing')],
      check: refuseModel('acme/blind'),
      outcomes: ['ok'],
    });
    expect(await run).toMatchObject({
      model: { id: 'acme/seeing' },
      attempts: [{ model: 'acme/blind', outcome: 'unsupported_by_model' }, { outcome: 'answered' }],
    });
  });

  test('throws a 422 when no model accepts the media', async () => {
    const { run } = runWith(createCalls({ clock: stillClock() }), {
      chain: [model('acme/blind')],
      check: refuseModel('acme/blind'),
      outcomes: ['ok'],
    });
    await expect(run).rejects.toMatchObject({ status: 422, code: 'unsupported_by_model' });
  });

  test('throws a 422 for a fallback that lacks the effort', async () => {
    const effort = (model: CatalogModel) => {
      if (model.id === 'acme/plain')
        throw new Problem('impossible', 'unsupported_reasoning_effort', 'allowed are low');
      return 'deep';
    };
    const { run, calledModels } = runWith(createCalls({ clock: stillClock() }), {
      chain: [model('acme/thinker'), model('acme/plain'), model('acme/last')],
      effort,
      outcomes: [errorResponse(503)],
    });
    await expect(run).rejects.toMatchObject({ status: 422, code: 'unsupported_reasoning_effort' });
    expect(new Set(calledModels)).toEqual(new Set(['acme/thinker']));
  });

  test('checks the effort of the requested model even if a fallback runs', async () => {
    const effort = (model: CatalogModel) => {
      if (model.id === 'acme/blind')
        throw new Problem('impossible', 'unsupported_reasoning_effort', 'allowed are low');
      return 'deep';
    };
    const { run, calledModels } = runWith(createCalls({ clock: stillClock() }), {
      chain: [model('acme/blind'), model('acme/seeing')],
      check: refuseModel('acme/blind'),
      effort,
      outcomes: ['ok'],
    });
    await expect(run).rejects.toMatchObject({ code: 'unsupported_reasoning_effort' });
    expect(calledModels).toEqual([]);
  });

  const chain = [model('acme/first'), model('acme/second')];
  const untranslatableProblem = () => new Problem('impossible', 'unsupported_by_model', 'takes no choices');
  const untranslatableFor = (id: string) => (candidate: CatalogModel) => {
    if (candidate.id === id) throw untranslatableProblem();
    return undefined;
  };

  test('tries the fallback when the call cannot be translated for the first model', async () => {
    const { run } = runWith(createCalls({ clock: stillClock() }), {
      chain,
      content: untranslatableFor('acme/first'),
      outcomes: ['ok'],
    });
    expect(await run).toMatchObject({ answer: 'from acme/second' });
  });

  test('tries the fallback when the first model refuses the call while it is sent', async () => {
    const { run } = runWith(createCalls({ clock: stillClock() }), {
      chain,
      outcomes: [untranslatableProblem(), 'ok'],
    });
    expect(await run).toMatchObject({
      answer: 'from acme/second',
      attempts: [{ model: 'acme/first', outcome: 'unsupported_by_model' }, { outcome: 'answered' }],
    });
  });

  test.each<[string, Partial<Run> & Pick<Run, 'outcomes'>]>([
    ['before it is sent', { content: untranslatableFor('acme/second'), outcomes: [errorResponse(503)] }],
    ['while it is sent', { outcomes: [errorResponse(503), untranslatableProblem()] }],
  ])(
    'throws the failure of the first model when the fallback refuses the call %s',
    async (_when, members) => {
      const calls = createCalls({ clock: stillClock(), retry: { retries: 0 } });
      const { run } = runWith(calls, { chain, ...members });
      await expect(run).rejects.toMatchObject({
        status: 502,
        headers: {
          'x-townhall-attempts': 'acme/first;upstream_failed, acme/second;unsupported_by_model',
        },
      });
    },
  );
});

describe('a model that keeps failing', () => {
  test('is probed once 15 seconds after its fifth failure in a row', async () => {
    const clock = stillClock();
    const calls = createCalls({ clock, retry: { retries: 0 } });
    for (let call = 0; call < 5; call += 1)
      await expect(runWith(calls, { outcomes: [errorResponse(503)] }).run).rejects.toMatchObject({
        status: 502,
      });
    const openBreaker = runWith(calls, { outcomes: ['ok'] });
    await expect(openBreaker.run).rejects.toMatchObject({
      status: 502,
      code: 'upstream_failed',
      headers: { 'retry-after': '15', 'x-townhall-attempts': 'acme/fast;breaker_open' },
    });
    expect(openBreaker.calledModels).toEqual([]);
    clock.advance(15_000);
    const probe = runWith(calls, { outcomes: [errorResponse(503)] });
    await expect(probe.run).rejects.toMatchObject({ status: 502 });
    expect(probe.calledModels).toHaveLength(1);
    await expect(runWith(calls, { outcomes: ['ok'] }).run).rejects.toMatchObject({ status: 502 });
    clock.advance(15_000);
    expect(await runWith(calls, { outcomes: ['ok'] }).run).toMatchObject({ answer: 'from acme/fast' });
    expect(await runWith(calls, { outcomes: ['ok'] }).run).toMatchObject({ answer: 'from acme/fast' });
  });

  test('is replaced by its fallback while its breaker is open', async () => {
    const calls = createCalls({ clock: stillClock(), retry: { retries: 0 } });
    for (let call = 0; call < 5; call += 1) await runToFailure(calls, { outcomes: [errorResponse(503)] });
    const { run, calledModels } = runWith(calls, {
      chain: [model('acme/fast'), model('acme/slow')],
      outcomes: ['ok'],
    });
    expect(await run).toMatchObject({
      model: { id: 'acme/slow' },
      attempts: [{ outcome: 'breaker_open' }, { outcome: 'answered' }],
    });
    expect(calledModels).toEqual(['acme/slow']);
  });

  /**
   * Counts the attempts of 1,000 calls, including retries. The calls are 5 ms apart, and the waits before retries
   * also advance the clock.
   */
  async function countAttempts(options: Partial<ModelHealthOptions>): Promise<number> {
    const clock = stillClock();
    const calls = createCalls({ clock, random: fixedRandom, ...options });
    let attempts = 0;
    for (let call = 0; call < 1_000; call += 1) {
      attempts += (await runToFailure(calls, { outcomes: [errorResponse(503)] })).length;
      clock.advance(5);
    }
    return attempts;
  }

  test('receives about a fifth more calls through retries', async () => {
    const breaker = { consecutiveFailures: Number.POSITIVE_INFINITY, failureShare: 2 };
    const attempts = await countAttempts({ breaker });
    // A fifth of 1,000, and the few retries that are always allowed.
    expect(attempts).toBeGreaterThan(1_150);
    expect(attempts).toBeLessThanOrEqual(1_250);
  });

  test('receives almost no calls while its breaker is open', async () => {
    expect(await countAttempts({})).toBeLessThan(10);
  });

  test('opens no breaker for rate limits, refusals or aborts', async () => {
    const calls = createCalls({ clock: stillClock(), retry: { retries: 0 } });
    const caller = AbortSignal.abort();
    for (let call = 0; call < 10; call += 1) {
      await runToFailure(calls, { outcomes: [errorResponse(429)] });
      await runToFailure(calls, { outcomes: [errorResponse(400)] });
      await runToFailure(calls, { signal: caller, outcomes: [unreachedProblem()] });
    }
    expect(await runWith(calls, { outcomes: ['ok'] }).run).toMatchObject({ answer: 'from acme/fast' });
  });

  test('opens its breaker when half of its streams break off', async () => {
    const calls = createCalls({ clock: stillClock() });
    const fastModel = model('acme/fast');
    // Each round counts as a successful call and as a failure. 20 calls are the fewest that are judged by
    // their share of failures.
    for (let call = 0; call < 10; call += 1) {
      await runWith(calls, { outcomes: ['ok'] }).run;
      calls.health.recordStreamFailure(
        { model: fastModel },
        new Problem('upstream_failed', 'upstream_truncated', 'x'),
      );
    }
    await expect(runWith(calls, { outcomes: ['ok'] }).run).rejects.toMatchObject({
      headers: { 'x-townhall-attempts': 'acme/fast;breaker_open' },
    });
  });
});

describe('createBreaker', () => {
  test('forgets failures that are older than the window', () => {
    const clock = stillClock();
    const breaker = createBreaker({
      clock,
      settings: { ...defaultBreakerSettings, consecutiveFailures: 1_000 },
    });
    for (let call = 0; call < 19; call += 1) breaker.tryAcquire()?.recordFailure();
    clock.advance(31_000);
    for (let call = 0; call < 19; call += 1) breaker.tryAcquire()?.recordSuccess();
    breaker.tryAcquire()?.recordFailure();
    expect(breaker.waitMs()).toBe(0);
  });

  test('allows one probe at a time and another after its release', () => {
    const clock = stillClock();
    const breaker = createBreaker({ clock, settings: defaultBreakerSettings });
    for (let call = 0; call < 5; call += 1) breaker.tryAcquire()?.recordFailure();
    clock.advance(15_000);
    const probe = breaker.tryAcquire();
    expect(probe).toBeDefined();
    expect(breaker.tryAcquire()).toBeUndefined();
    probe?.release();
    expect(breaker.tryAcquire()).toBeDefined();
  });

  test('stays closed when a probe is released after another process has closed it', () => {
    const clock = stillClock();
    const breaker = createBreaker({ clock, settings: defaultBreakerSettings });
    for (let call = 0; call < 5; call += 1) breaker.tryAcquire()?.recordFailure();
    clock.advance(15_000);
    const probe = breaker.tryAcquire();
    breaker.follow(false);
    probe?.release();
    expect(breaker.waitMs()).toBe(0);
  });
});

describe('createRetryBudget', () => {
  test('allows ten retries, and ten more as time passes', () => {
    const clock = stillClock();
    const budget = createRetryBudget({ clock, settings: defaultRetrySettings });
    const takeAll = () => Array.from({ length: 20 }, () => budget.take()).filter(Boolean).length;
    expect(takeAll()).toBe(10);
    clock.advance(31_000);
    expect(takeAll()).toBe(10);
  });
});

describe('a call with two endpoints', () => {
  const addresses = ['https://a.example', 'https://b.example'];
  const entry = { kind: 'openai-compatible', endpoints: addresses.map((base_url) => ({ base_url })) };
  const modelWithEntry = (overrides: Partial<CatalogModel> = {}) =>
    model('acme/fast', { providerEntry: entry as CatalogModel['providerEntry'], ...overrides });

  /** Calls of a provider whose first endpoint has failed, so that its breaker is open. */
  async function callBesideOpenBreaker(clock: ReturnType<typeof stillClock>) {
    const calls = createCalls({ clock, random: fixedRandom, breaker: { consecutiveFailures: 1 } });
    await runWith(calls, { chain: [modelWithEntry()], outcomes: [errorResponse(503), 'ok'] }).run;
    return calls;
  }

  test('waits for a rate limit while the other breaker is open', async () => {
    const clock = stillClock();
    const calls = await callBesideOpenBreaker(clock);
    clock.sleepsMs.length = 0;
    const { run, calledModels } = runWith(calls, {
      chain: [modelWithEntry()],
      deadlineMs: 10_000,
      outcomes: [...Array<Problem>(20).fill(errorResponse(429, '1')), 'ok'],
    });
    await expect(run).rejects.toMatchObject({ code: 'rate_limited' });
    expect(calledModels).toHaveLength(3);
    expect(clock.sleepsMs).toEqual([1_000, 1_000]);
  });

  test('has no time limit for its first content while the other breaker is open', async () => {
    const calls = await callBesideOpenBreaker(stillClock());
    const limits: unknown[] = [];
    await callModel(
      {
        chain: [modelWithEntry({ first_content_s: 1 })],
        signal: new AbortController().signal,
        deadlineMs: 60_000,
        streams: true,
        check: () => {},
        send: async ({ firstContentMs }) => void limits.push(firstContentMs),
      },
      calls,
    );
    expect(limits).toEqual([undefined]);
  });
});
