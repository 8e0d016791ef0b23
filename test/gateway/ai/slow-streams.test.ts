// The slow-stream guard: a stream whose text comes slower than `min_bytes_per_s` of its model ends.
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { StreamRate } from '../../../src/gateway/ai/upstream/stream-rate.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { startAi, type World } from './world.ts';

const windowMs = 20_000;
const messages = [{ role: 'user', content: 'hi' }];
const parts = [{ type: 'text', text: 'hi' }];
const priced = {
  rates: { input: 1_000_000, output: 1_000_000 },
  context_window: 1_000,
  max_output_tokens: 100,
};
const endless = 'ok?chunks=10000&gap=5';

let provider: ScriptedProvider;
let world: World;
let skippedMs = 0;
beforeAll(async () => {
  provider = await startProvider();
  world = await startAi({
    models: provider.modelsFile(
      { slow: endless, plain: 'ok?chunks=20&gap=5' },
      {
        provider: { output_limit_member: 'max_tokens' },
        model: { ...priced, min_bytes_per_s: 10_000 },
        models: [{ id: 'acme/unguarded', provider: 'acme', upstream_model: 'ok?chunks=20&gap=5', ...priced }],
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

/** Reads the stream; after its first text the clock skips more than a window. */
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
  it.each([
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

  it('charges the text that has arrived', async () => {
    const before = world.ledger.charges.length;
    await readSlowly(await chat('acme/slow'));
    const { charged } = await world.ledger.until(before + 1);
    expect(charged).toBeGreaterThan(0n);
  });
});

describe('a model without min_bytes_per_s', () => {
  it('streams to the end at any rate', async () => {
    expect(await readSlowly(await chat('acme/unguarded'))).toContain('[DONE]');
  });
});

describe('a slow stream', () => {
  it('opens the circuit breaker like other failures', async () => {
    const guarded = await startAi({
      models: provider.modelsFile({ slow: endless }, { model: { ...priced, min_bytes_per_s: 10_000 } }),
      clock: { ...systemClock, monotonicMs: () => performance.now() + skippedMs },
      resilience: { breaker: { consecutiveFailures: 1, windowCalls: 1_000 } },
    });
    try {
      const call = () =>
        guarded.post('/v1/ai/chat/completions', { model: 'acme/slow', messages, stream: true });
      await readSlowly(await call());
      const next = await call();
      expect(next.headers.get('x-townhall-attempts')).toBe('acme/slow;breaker_open');
    } finally {
      await guarded.close();
    }
  });
});

describe('the models file', () => {
  it.each([0, 10_001, 1.5])('refuses min_bytes_per_s: %s', async (limit) => {
    const models = provider.modelsFile({ slow: endless }, { model: { ...priced, min_bytes_per_s: limit } });
    await expect(startAi({ models })).rejects.toThrow(/min_bytes_per_s/);
  });
});

describe('StreamRate', () => {
  /** The guard of a stream that waits `waitMs` for each piece, whose reader takes `readMs`. */
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

  it('does not count the time before the first text', () => {
    expect(() => receive([0, 0, 0, 5, 300], { waitMs: windowMs })).not.toThrow();
  });

  it('does not count the time of the reader', () => {
    expect(() => receive([5, 20, 20, 20], { waitMs: 1_000, readMs: windowMs })).not.toThrow();
  });

  it('counts each window anew', () => {
    expect(() => receive([1, 10_000, 100], { waitMs: windowMs })).toThrow('less than 10 bytes of text');
  });

  it('takes a stream at exactly the rate', () => {
    expect(() => receive([1, 200, 200, 200], { waitMs: windowMs })).not.toThrow();
  });
});
