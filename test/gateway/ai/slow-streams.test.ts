// The slow-stream guard: it ends a stream whose text arrives slower than `min_bytes_per_s` of its model.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { StreamRate } from '../../../src/gateway/ai/upstream/stream-rate.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { startAi, type World } from './world.ts';

/** The time of one measurement, `windowMs` of stream-rate.ts. */
const windowMs = 20_000;
const messages = [{ role: 'user', content: 'hi' }];
const parts = [{ type: 'text', text: 'hi' }];
const priceAndLimits = {
  rates: { input: 1_000_000, output: 1_000_000 },
  context_window: 1_000,
  max_output_tokens: 100,
};
const endlessScript = 'ok?chunks=10000&gap=5';

let provider: ScriptedProvider;
let world: World;
let skippedMs = 0;
beforeAll(async () => {
  provider = await startProvider();
  world = await startAi({
    models: provider.modelsFile(
      { slow: endlessScript, plain: 'ok?chunks=20&gap=5' },
      {
        provider: { output_limit_member: 'max_tokens' },
        model: { ...priceAndLimits, min_bytes_per_s: 10_000 },
        models: [
          { id: 'acme/unguarded', provider: 'acme', upstream_model: 'ok?chunks=20&gap=5', ...priceAndLimits },
        ],
      },
    ),
    clock: { ...systemClock, monotonicMs: () => performance.now() + skippedMs },
    resilience: { breaker: { consecutiveFailures: 1_000, windowCalls: 1_000 } },
  });
});
afterAll(async () => {
  await world?.close();
  await provider?.close();
});
afterEach(() => provider.reset());

/** Reads the stream; at its first text the clock skips more than a window. */
async function readSlowly(response: Response): Promise<string> {
  let text = '';
  let hasSkipped = false;
  for await (const piece of response.body ?? []) {
    text += Buffer.from(piece).toString();
    if (hasSkipped || !text.includes('tok0')) continue;
    hasSkipped = true;
    skippedMs += windowMs + 1_000;
  }
  return text;
}

const chat = (model: string) => world.post('/v1/ai/chat/completions', { model, messages, stream: true });

describe('a stream below min_bytes_per_s', () => {
  test.each([
    ['chat completions', '/v1/ai/chat/completions', { messages, stream: true }],
    ['messages', '/v1/ai/messages', { messages, stream: true, max_tokens: 50 }],
    ['responses', '/v1/ai/responses', { input: 'hi', stream: true }],
    ['the language-model format', '/v1/ai/stream', { prompt: [{ role: 'user', content: parts }] }],
    ['useChat', '/v1/ai/ui', { messages: [{ id: 'a', role: 'user', parts }] }],
  ])('ends with an error: %s', async (_name, path, body) => {
    const response = await world.post(path, { model: 'acme/slow', ...body });
    expect(response.status).toBe(200);
    expect(await readSlowly(response)).toContain('less than 10000 bytes of text a second');
    await provider.until(([call]) => call?.abortedAt !== undefined);
  });

  test('charges the text that has arrived', async () => {
    const countBefore = world.ledger.charges.length;
    await readSlowly(await chat('acme/slow'));
    const { charged } = await world.ledger.until(countBefore + 1);
    expect(charged).toBeGreaterThan(0n);
  });
});

describe('a model without min_bytes_per_s', () => {
  test('streams to the end at any rate', async () => {
    expect(await readSlowly(await chat('acme/unguarded'))).toContain('[DONE]');
  });
});

describe('a slow stream', () => {
  test('opens the circuit breaker like other failures', async () => {
    const strictWorld = await startAi({
      models: provider.modelsFile(
        { slow: endlessScript },
        { model: { ...priceAndLimits, min_bytes_per_s: 10_000 } },
      ),
      clock: { ...systemClock, monotonicMs: () => performance.now() + skippedMs },
      resilience: { breaker: { consecutiveFailures: 1, windowCalls: 1_000 } },
    });
    try {
      const call = () =>
        strictWorld.post('/v1/ai/chat/completions', { model: 'acme/slow', messages, stream: true });
      await readSlowly(await call());
      const next = await call();
      expect(next.headers.get('x-townhall-attempts')).toBe('acme/slow;breaker_open');
    } finally {
      await strictWorld.close();
    }
  });
});

describe('the models file', () => {
  test.each([0, 10_001, 1.5])('refuses min_bytes_per_s: %s', async (limit) => {
    const models = provider.modelsFile(
      { slow: endlessScript },
      { model: { ...priceAndLimits, min_bytes_per_s: limit } },
    );
    await expect(startAi({ models })).rejects.toThrow(/min_bytes_per_s/);
  });
});

describe('StreamRate', () => {
  /** Receives the pieces of a stream. Each piece takes `waitMs` to arrive, and `readMs` to be read. */
  function receive(pieces: number[], { waitMs, readMs = 0 }: { waitMs: number; readMs?: number }): void {
    let nowMs = 0;
    const text = { textBytes: 0 };
    const rate = new StreamRate(10, text, { monotonicMs: () => nowMs });
    for (const bytes of pieces) {
      nowMs += readMs;
      rate.startWait();
      nowMs += waitMs;
      rate.endWait();
      text.textBytes += bytes;
      rate.check();
    }
  }

  test('does not count the time before the first text', () => {
    expect(() => receive([0, 0, 0, 5, 300], { waitMs: windowMs })).not.toThrow();
  });

  test('does not count the time of the reader', () => {
    expect(() => receive([5, 20, 20, 20], { waitMs: 1_000, readMs: windowMs })).not.toThrow();
  });

  test('counts each window separately', () => {
    expect(() => receive([1, 10_000, 100], { waitMs: windowMs })).toThrow('less than 10 bytes of text');
  });

  test('accepts a stream at exactly the rate', () => {
    // 200 bytes in 20 seconds.
    expect(() => receive([1, 200, 200, 200], { waitMs: windowMs })).not.toThrow();
  });
});
