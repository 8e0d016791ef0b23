// What one call costs when it took several tries: each try begins its count anew.
import { describe, expect, test } from 'vitest';
import { createAttempts } from '../../../src/gateway/ai/attempts.ts';
import { sizeOf } from '../../../src/gateway/ai/metering/measure.ts';
import { createMetering, type Meter } from '../../../src/gateway/ai/metering/meter.ts';
import { noTokens } from '../../../src/gateway/ai/metering/price.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { Problem } from '../../../src/kernel/problem.ts';
import { silentLog } from '../../support/template.ts';
import { catalogModel } from './catalog-model.ts';
import { memoryLedger } from './memory-ledger.ts';

const model = catalogModel();
const failure = () =>
  new Problem('upstream_failed', 'upstream_failed', 'The provider failed.', { cause: { status: 503 } });

/** Makes a call whose tries are these, in their order; what the last one returns has come. */
async function callOf(tries: readonly ((meter: Meter) => void)[]) {
  const ledger = memoryLedger();
  const identity = { kind: 'user' as const, userId: 'usr_a', bureauId: 'local', tokenId: 'tok_a' };
  const demand = { size: sizeOf({ model: 'acme/fast', prompt: 'Good morning' }, 'text') };
  const meter = createMetering({ ledger, clock: systemClock }).open({
    requestId: 'req_a',
    identity,
    action: 'ai.generateText',
    signal: new AbortController().signal,
    log: silentLog,
    demand,
  });
  const attempts = createAttempts({ clock: { ...systemClock, sleep: async () => {} } });
  let count = 0;
  const attempt = async (): Promise<void> => {
    const one = tries[count] as (meter: Meter) => void;
    count += 1;
    one(meter);
    if (count < tries.length) throw failure();
  };
  await meter.run(attempts, {
    chain: [model],
    signal: new AbortController().signal,
    deadlineMs: 60_000,
    fits: () => {},
    effort: () => undefined,
    prepare: () => attempt,
  });
  await meter.settle('completed');
  expect(ledger.held()).toBe(0n);
  return ledger.last();
}

describe('a call that was tried again', () => {
  const answers = (meter: Meter): void => meter.produced('output', 40);

  test('costs nothing of what the failed try had said of its usage', async () => {
    const usual = await callOf([answers]);
    const claimed = await callOf([
      (meter) => meter.claims({ tokens: { ...noTokens, input: 900, output: 900 }, isFinal: true }),
      answers,
    ]);
    expect(claimed.charged).toBe(usual.charged);
    expect(claimed.facts).toMatchObject({ tokens: usual.facts.tokens, estimated: true });
  });

  test('costs nothing of what the failed try had made, in words and in units', async () => {
    const usual = await callOf([answers]);
    const reasoningAndImages = await callOf([
      (meter) => {
        meter.produced('reasoning', 4_000);
        meter.uses({ image: 2 });
      },
      answers,
    ]);
    expect(reasoningAndImages.charged).toBe(usual.charged);
    expect(reasoningAndImages.facts).toMatchObject({ tokens: usual.facts.tokens, units: {} });
  });
});
