import { describe, expect, test } from 'vitest';
import { type Attempts, createAttempts, type Task } from '../../../src/gateway/ai/attempts.ts';
import type { CatalogModel } from '../../../src/gateway/ai/catalog/catalog.ts';
import { createBreaker, defaultBreakerSettings } from '../../../src/gateway/ai/upstream/breaker.ts';
import {
  ConnectionFailure,
  problemOfErrorResponse,
} from '../../../src/gateway/ai/upstream/provider-error.ts';
import { createRetryBudget, defaultRetrySettings } from '../../../src/gateway/ai/upstream/retry.ts';
import { Problem } from '../../../src/kernel/problem.ts';

/** A clock that stands still but for its sleepers, who take no time. */
function stillClock() {
  let nowMs = 0;
  const slept: number[] = [];
  return {
    slept,
    monotonicMs: () => nowMs,
    advance: (ms: number) => void (nowMs += ms),
    async sleep(ms: number, signal?: AbortSignal) {
      signal?.throwIfAborted();
      slept.push(ms);
      nowMs += ms;
    },
  };
}

const model = (id: string, more: Partial<CatalogModel> = {}) =>
  ({
    id,
    provider: 'acme',
    upstream_model: id,
    providerEntry: { kind: 'openai-compatible' },
    ...more,
  }) as CatalogModel;
const refused = (status: number, retryAfter?: string) =>
  problemOfErrorResponse({ status, retryAfter, body: '', hide: (text) => text, now: new Date(0) });
const unreached = () =>
  new Problem('upstream_failed', 'upstream_failed', 'x', { cause: new ConnectionFailure('reset') });
const late = () => new Problem('upstream_timeout', 'upstream_timeout', 'x');

interface Run {
  chain?: CatalogModel[];
  deadlineMs?: number;
  signal?: AbortSignal;
  fits?: (tried: CatalogModel) => void;
  effort?: (tried: CatalogModel) => string | undefined;
  /** What each attempt does, in order; the last is repeated. */
  outcomes: (Problem | 'ok')[];
}

function runWith(attempts: Attempts, { outcomes, ...task }: Run) {
  let count = 0;
  const asked: string[] = [];
  const run = attempts.run({
    chain: task.chain ?? [model('acme/fast')],
    signal: task.signal ?? new AbortController().signal,
    deadlineMs: task.deadlineMs ?? 60_000,
    fits: task.fits ?? (() => {}),
    effort: task.effort ?? (() => undefined),
    prepare: (tried) => async () => {
      asked.push(tried.id);
      const outcome = outcomes[Math.min(count, outcomes.length - 1)];
      count += 1;
      if (outcome instanceof Problem) throw outcome;
      return `from ${tried.id}`;
    },
  } satisfies Task<string>);
  return { run, asked };
}

const middle = () => 0.5;

describe('a call that fails before its first byte', () => {
  test.each<[string, Problem]>([
    ['408', refused(408)],
    ['429', refused(429)],
    ['500', refused(500)],
    ['502', refused(502)],
    ['503', refused(503)],
    ['504', refused(504)],
    ['529', refused(529)],
    ['a connection that cannot be had', unreached()],
  ])(
    'is tried again twice, half a second and a second apart, less a quarter at most: %s',
    async (_name, failure) => {
      const clock = stillClock();
      const { run, asked } = runWith(createAttempts({ clock, random: middle }), {
        outcomes: [failure, failure, 'ok'],
      });
      expect(await run).toMatchObject({
        answer: 'from acme/fast',
        attempts: [{ outcome: failure.code }, { outcome: failure.code }, { outcome: 'answered' }],
      });
      expect(asked).toHaveLength(3);
      expect(clock.slept).toEqual([437.5, 875]);
    },
  );

  test.each([400, 401, 402, 403, 404, 409, 413, 418, 422, 501])(
    'is never tried again, nor elsewhere, for a status of %i',
    async (status) => {
      const { run, asked } = runWith(createAttempts({ clock: stillClock() }), {
        chain: [model('acme/fast'), model('acme/slow')],
        outcomes: [refused(status), 'ok'],
      });
      await expect(run).rejects.toBeInstanceOf(Problem);
      expect(asked).toEqual(['acme/fast']);
    },
  );

  test('is not tried again once its deadline is spent, as that was the time it had', async () => {
    const { run, asked } = runWith(createAttempts({ clock: stillClock() }), { outcomes: [late(), 'ok'] });
    await expect(run).rejects.toMatchObject({ kind: 'upstream_timeout' });
    expect(asked).toHaveLength(1);
  });

  test('waits as long as the provider asks, within the deadline', async () => {
    const clock = stillClock();
    expect(
      await runWith(createAttempts({ clock }), { outcomes: [refused(429, '7'), 'ok'] }).run,
    ).toMatchObject({ answer: 'from acme/fast' });
    expect(clock.slept).toEqual([7_000]);
    const { run, asked } = runWith(createAttempts({ clock }), {
      outcomes: [refused(429, '7'), 'ok'],
      deadlineMs: 5_000,
    });
    await expect(run).rejects.toMatchObject({ kind: 'rate_limited', headers: { 'retry-after': '7' } });
    expect(asked).toHaveLength(1);
  });

  test('goes to the fallbacks in order after its retries, and says so', async () => {
    const chain = ['acme/fast', 'acme/slow', 'acme/last'].map((id) => model(id));
    const { run, asked } = runWith(createAttempts({ clock: stillClock() }), {
      chain,
      outcomes: [...Array<Problem>(6).fill(refused(503)), 'ok'],
    });
    expect((await run).model.id).toBe('acme/last');
    expect(asked).toEqual([
      'acme/fast',
      'acme/fast',
      'acme/fast',
      'acme/slow',
      'acme/slow',
      'acme/slow',
      'acme/last',
    ]);
  });

  test('does not wait long for a model while another could answer', async () => {
    const clock = stillClock();
    const { run } = runWith(createAttempts({ clock }), {
      chain: [model('acme/fast'), model('acme/slow')],
      outcomes: [refused(429, '30'), 'ok'],
    });
    expect(await run).toMatchObject({ model: { id: 'acme/slow' } });
    expect(clock.slept).toEqual([]);
  });

  test('ends with the last failure, whose headers name all attempts', async () => {
    const { run } = runWith(createAttempts({ clock: stillClock() }), {
      chain: [model('acme/fast'), model('acme/slow')],
      outcomes: [refused(503)],
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

  test('ends at once when its caller goes away while it waits', async () => {
    const gone = new AbortController();
    const { run, asked } = runWith(
      createAttempts({
        clock: { ...stillClock(), sleep: async (_ms, signal) => (gone.abort(), signal?.throwIfAborted()) },
      }),
      {
        signal: gone.signal,
        outcomes: [refused(503), 'ok'],
      },
    );
    await expect(run).rejects.toThrow('aborted');
    expect(asked).toHaveLength(1);
  });
});

describe('a chain of models', () => {
  const unfit = (id: string) => (tried: CatalogModel) => {
    if (tried.id === id) throw new Problem('impossible', 'unsupported_by_model', 'takes no images');
  };

  test('passes over a model that does not take the media', async () => {
    const { run } = runWith(createAttempts({ clock: stillClock() }), {
      chain: [model('acme/blind'), model('acme/seeing')],
      fits: unfit('acme/blind'),
      outcomes: ['ok'],
    });
    expect(await run).toMatchObject({
      model: { id: 'acme/seeing' },
      attempts: [{ model: 'acme/blind', outcome: 'unsupported_by_model' }, { outcome: 'answered' }],
    });
  });

  test('is 422 when none takes it', async () => {
    const { run } = runWith(createAttempts({ clock: stillClock() }), {
      chain: [model('acme/blind')],
      fits: unfit('acme/blind'),
      outcomes: ['ok'],
    });
    await expect(run).rejects.toMatchObject({ status: 422, code: 'unsupported_by_model' });
  });

  test('ends with 422 at a fallback that lacks the effort, not with the error of the first model', async () => {
    const effort = (tried: CatalogModel) => {
      if (tried.id === 'acme/plain')
        throw new Problem('impossible', 'unsupported_reasoning_effort', 'allowed are low');
      return 'deep';
    };
    const { run, asked } = runWith(createAttempts({ clock: stillClock() }), {
      chain: [model('acme/thinker'), model('acme/plain'), model('acme/last')],
      effort,
      outcomes: [refused(503)],
    });
    await expect(run).rejects.toMatchObject({ status: 422, code: 'unsupported_reasoning_effort' });
    expect(new Set(asked)).toEqual(new Set(['acme/thinker']));
  });

  test('checks the effort of the requested model also where a fallback would run', async () => {
    const effort = (tried: CatalogModel) => {
      if (tried.id === 'acme/blind')
        throw new Problem('impossible', 'unsupported_reasoning_effort', 'allowed are low');
      return 'deep';
    };
    const { run, asked } = runWith(createAttempts({ clock: stillClock() }), {
      chain: [model('acme/blind'), model('acme/seeing')],
      fits: unfit('acme/blind'),
      effort,
      outcomes: ['ok'],
    });
    await expect(run).rejects.toMatchObject({ code: 'unsupported_reasoning_effort' });
    expect(asked).toEqual([]);
  });
});

describe('a model that fails again and again', () => {
  test('is left alone after five failures in a row, for 15 seconds, and then probed once', async () => {
    const clock = stillClock();
    const attempts = createAttempts({ clock, retry: { retries: 0 } });
    for (let call = 0; call < 5; call += 1)
      await expect(runWith(attempts, { outcomes: [refused(503)] }).run).rejects.toMatchObject({
        status: 502,
      });
    const heldOff = runWith(attempts, { outcomes: ['ok'] });
    await expect(heldOff.run).rejects.toMatchObject({
      status: 502,
      code: 'upstream_failed',
      headers: { 'retry-after': '15', 'x-townhall-attempts': 'acme/fast;breaker_open' },
    });
    expect(heldOff.asked).toEqual([]);
    clock.advance(15_000);
    const probe = runWith(attempts, { outcomes: [refused(503)] });
    await expect(probe.run).rejects.toMatchObject({ status: 502 });
    expect(probe.asked).toHaveLength(1);
    await expect(runWith(attempts, { outcomes: ['ok'] }).run).rejects.toMatchObject({ status: 502 });
    clock.advance(15_000);
    expect(await runWith(attempts, { outcomes: ['ok'] }).run).toMatchObject({ answer: 'from acme/fast' });
    expect(await runWith(attempts, { outcomes: ['ok'] }).run).toMatchObject({ answer: 'from acme/fast' });
  });

  test('gives way to its fallback while it is left alone', async () => {
    const attempts = createAttempts({ clock: stillClock(), retry: { retries: 0 } });
    for (let call = 0; call < 5; call += 1)
      await runWith(attempts, { outcomes: [refused(503)] }).run.catch(() => {});
    const { run, asked } = runWith(attempts, {
      chain: [model('acme/fast'), model('acme/slow')],
      outcomes: ['ok'],
    });
    expect(await run).toMatchObject({
      model: { id: 'acme/slow' },
      attempts: [{ outcome: 'breaker_open' }, { outcome: 'answered' }],
    });
    expect(asked).toEqual(['acme/slow']);
  });

  test('costs at most a fifth more calls than it gets, and few at all once it is left alone', async () => {
    const clock = stillClock();
    const attempts = createAttempts({
      clock,
      breaker: { consecutiveFailures: Number.POSITIVE_INFINITY, failureShare: 2 },
    });
    let made = 0;
    for (let call = 0; call < 1_000; call += 1) {
      const { run, asked } = runWith(attempts, { outcomes: [refused(503)] });
      await run.catch(() => {});
      made += asked.length;
      clock.advance(5);
    }
    expect(made).toBeLessThanOrEqual(1_250);

    const guarded = createAttempts({ clock });
    made = 0;
    for (let call = 0; call < 1_000; call += 1) {
      const { run, asked } = runWith(guarded, { outcomes: [refused(503)] });
      await run.catch(() => {});
      made += asked.length;
      clock.advance(5);
    }
    expect(made).toBeLessThan(10);
  });

  test('is not held against it: a limit, a refusal, a caller who went away', async () => {
    const attempts = createAttempts({ clock: stillClock(), retry: { retries: 0 } });
    const gone = AbortSignal.abort();
    for (let call = 0; call < 10; call += 1) {
      await runWith(attempts, { outcomes: [refused(429)] }).run.catch(() => {});
      await runWith(attempts, { outcomes: [refused(400)] }).run.catch(() => {});
      await runWith(attempts, { signal: gone, outcomes: [unreached()] }).run.catch(() => {});
    }
    expect(await runWith(attempts, { outcomes: ['ok'] }).run).toMatchObject({ answer: 'from acme/fast' });
  });

  test('is left alone too when half of its streams break off', async () => {
    const attempts = createAttempts({ clock: stillClock() });
    const fast = model('acme/fast');
    for (let call = 0; call < 10; call += 1) {
      await runWith(attempts, { outcomes: ['ok'] }).run;
      attempts.brokeOff(fast, new Problem('upstream_failed', 'upstream_truncated', 'x'));
    }
    await expect(runWith(attempts, { outcomes: ['ok'] }).run).rejects.toMatchObject({
      headers: { 'x-townhall-attempts': 'acme/fast;breaker_open' },
    });
  });
});

describe('the parts of it', () => {
  test('a breaker forgets failures that are older than its window', () => {
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

  test('only one probe is under way at a time, and one that says nothing leaves room for the next', () => {
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

  test('a lone caller always has a few retries; the budget fills again with time', () => {
    const clock = stillClock();
    const budget = createRetryBudget({ clock, settings: defaultRetrySettings });
    const taken = () => Array.from({ length: 20 }, () => budget.take()).filter(Boolean).length;
    expect(taken()).toBe(10);
    clock.advance(31_000);
    expect(taken()).toBe(10);
  });
});
