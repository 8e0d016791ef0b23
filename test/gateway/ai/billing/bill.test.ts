// The bill of one call: reservation, checkpoints and charge, across retries and outcomes.
import { describe, expect, test } from 'vitest';
import type { Bill } from '../../../../src/gateway/ai/billing/bill.ts';
import { createBilling } from '../../../../src/gateway/ai/billing/billing.ts';
import { followParts } from '../../../../src/gateway/ai/billing/model-answer.ts';
import { callModel } from '../../../../src/gateway/ai/calls/call.ts';
import type { StreamPart } from '../../../../src/gateway/ai/hub/language-model.ts';
import { sizeOf } from '../../../../src/gateway/ai/metering/measure.ts';
import { noTokens, type Units } from '../../../../src/gateway/ai/metering/price.ts';
import { createModelHealth } from '../../../../src/gateway/ai/upstream/model-health.ts';
import { nextTurn } from '../../../../src/kernel/async.ts';
import type { Remember } from '../../../../src/kernel/data/idempotency.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { Problem } from '../../../../src/kernel/problem.ts';
import { silentLog } from '../../../support/template.ts';
import { catalogModel } from '../catalog-model.ts';
import { memoryLedger, type MemoryLedger } from '../memory-ledger.ts';

const model = catalogModel();
/** The attempts that the usage record will name; no test here reads them. */
const attemptCount = 1;
const failure = () =>
  new Problem('upstream_failed', 'upstream_failed', 'The provider failed.', { cause: { status: 503 } });

interface BillSettings {
  unitsIfDisconnected?: Units;
  ledger?: MemoryLedger;
  clock?: Pick<typeof systemClock, 'monotonicMs'>;
  signal?: AbortSignal;
  remember?: Remember;
  limit?: number;
  billing?: ReturnType<typeof createBilling>;
}

function openBill(settings: BillSettings = {}): Bill {
  const { ledger = memoryLedger(), clock = systemClock, limit, remember } = settings;
  const { billing = createBilling({ ledger, clock }) } = settings;
  return billing.open({
    requestId: 'req_a',
    identity: { kind: 'user', userId: 'usr_a', bureauId: 'local', tokenId: 'tok_a' },
    action: 'ai.generateText',
    signal: settings.signal ?? new AbortController().signal,
    log: silentLog,
    demand: {
      size: sizeOf({ model: 'acme/fast', prompt: 'Good morning' }, 'text'),
      ...(limit === undefined ? {} : { limit: { tokens: limit, member: 'max_tokens' } }),
    },
    unitsIfDisconnected: settings.unitsIfDisconnected,
    ...(remember === undefined ? {} : { remember }),
  });
}

/** Opens a bill whose caller disconnects after a complete answer. */
async function openDisconnectedBill(settings: BillSettings): Promise<Bill> {
  const caller = new AbortController();
  const bill = openBill({ ...settings, signal: caller.signal });
  await bill.reserve(model, []);
  bill.markSent();
  bill.follow(attemptCount);
  bill.markComplete();
  caller.abort();
  return bill;
}

/** The ledger with reservations that wait for `gate` before they settle. */
function gateSettlements(ledger: MemoryLedger, gate: () => Promise<void>): MemoryLedger {
  return {
    ...ledger,
    async reserve(...parameters) {
      const reservation = await ledger.reserve(...parameters);
      return { ...reservation, settle: (...charge) => gate().then(() => reservation.settle(...charge)) };
    },
  };
}

/** Makes a call with these attempts in order, of which the last one answers. Returns its charge. */
async function chargeOf(attempts: readonly ((bill: Bill) => void)[]) {
  const ledger = memoryLedger();
  const bill = openBill({ ledger });
  const clock = { ...systemClock, sleep: async () => {} };
  let count = 0;
  await callModel(
    {
      chain: [model],
      signal: new AbortController().signal,
      deadlineMs: 60_000,
      check: () => {},
      async send() {
        const attempt = attempts[count] as (bill: Bill) => void;
        count += 1;
        attempt(bill);
        if (count < attempts.length) throw failure();
      },
    },
    { health: createModelHealth({ clock }), clock, bill },
  );
  await bill.settle('completed');
  expect(ledger.held()).toBe(0n);
  return ledger.last();
}

describe('a stream whose charge cannot be stored', () => {
  test('is closed when its reader stops at an error', async () => {
    const ledger = gateSettlements(memoryLedger(), () => Promise.reject(failure()));
    const bill = openBill({ ledger });
    await bill.reserve(model, []);
    bill.markSent();
    bill.follow(attemptCount);
    let isClosed = false;
    async function* parts(): AsyncGenerator<StreamPart> {
      try {
        yield { type: 'error', error: failure() };
      } finally {
        isClosed = true;
      }
    }
    const stream = followParts(parts(), { bill, signal: new AbortController().signal });
    expect((await stream.next()).value).toMatchObject({ type: 'error' });
    await expect(stream.return(undefined)).rejects.toThrow('The provider failed.');
    expect(isClosed).toBe(true);
  });
});

describe('a retried call', () => {
  const answers = (bill: Bill): void => bill.countText('output', 40);

  test('costs nothing for the usage that a failed attempt reported', async () => {
    const usualCharge = await chargeOf([answers]);
    const retriedCharge = await chargeOf([
      (bill) => bill.recordUsage({ tokens: { ...noTokens, input: 900, output: 900 }, isFinal: true }),
      answers,
    ]);
    expect(retriedCharge.charged).toBe(usualCharge.charged);
    expect(retriedCharge.facts).toMatchObject({ tokens: usualCharge.facts.tokens, estimated: true });
  });

  test('costs nothing for the text and units of a failed attempt', async () => {
    const usualCharge = await chargeOf([answers]);
    const retriedCharge = await chargeOf([
      (bill) => {
        bill.countText('reasoning', 4_000);
        bill.recordUnits({ image: 2 });
      },
      answers,
    ]);
    expect(retriedCharge.charged).toBe(usualCharge.charged);
    expect(retriedCharge.facts).toMatchObject({ tokens: usualCharge.facts.tokens, units: {} });
  });
});

describe('a bill', () => {
  test('goes through its phases', async () => {
    const bill = openBill();
    const phases: string[] = [bill.phase];
    await bill.reserve(model, []);
    phases.push(bill.phase);
    bill.markSent();
    phases.push(bill.phase);
    bill.failAttempt();
    phases.push(bill.phase);
    bill.markSent();
    bill.follow(attemptCount);
    phases.push(bill.phase);
    await bill.settle('completed');
    phases.push(bill.phase);
    expect(phases).toEqual(['open', 'reserved', 'sent', 'reserved', 'streaming', 'settled']);
  });

  test('refuses a transition out of order', async () => {
    const bill = openBill();
    expect(() => bill.markSent()).toThrow('phase open');
    expect(() => bill.settle('completed')).toThrow('phase open');
    await bill.close(new Error('failed'), attemptCount);
    await expect(bill.reserve(model, [])).rejects.toThrow('phase released');
  });

  test('marks each attempt as sent with the price of its input', async () => {
    const ledger = memoryLedger();
    const bill = openBill({ ledger });
    await bill.reserve(model, []);
    bill.markSent();
    bill.failAttempt();
    bill.markSent();
    expect(ledger.sent).toHaveLength(2);
    expect(ledger.sent[0]).toMatchObject({ model: 'acme/fast', provider: 'acme' });
    bill.follow(attemptCount);
    const { charged } = await bill.settle('client_closed').then(() => ledger.last());
    expect(ledger.sent[0]?.inputCredits).toBe(charged);
  });

  test('releases an unsent reservation without a usage record', async () => {
    const ledger = memoryLedger();
    const bill = openBill({ ledger });
    await bill.reserve(model, []);
    expect(ledger.held()).toBeGreaterThan(0n);
    await bill.close(new Error('failed'), attemptCount);
    expect(bill.phase).toBe('released');
    expect([ledger.held(), ledger.charges.length]).toEqual([0n, 0]);
  });

  test('charges once', async () => {
    const ledger = memoryLedger();
    const bill = openBill({ ledger });
    await bill.reserve(model, []);
    bill.markSent();
    bill.follow(attemptCount);
    bill.countText('output', 40);
    const [firstSettlement, secondSettlement] = await Promise.all([
      bill.settle('completed'),
      bill.settle('client_closed'),
    ]);
    expect(secondSettlement).toBe(firstSettlement);
    expect(ledger.charges).toHaveLength(1);
  });

  test('charges the input when the caller disconnects before the first byte', async () => {
    const ledger = memoryLedger();
    const caller = new AbortController();
    const bill = openBill({ ledger, signal: caller.signal });
    await bill.reserve(model, []);
    bill.markSent();
    caller.abort();
    expect(bill.signal.aborted).toBe(true);
    const { facts } = await ledger.until(1);
    expect(facts).toMatchObject({ outcome: 'client_closed', estimated: true, tokens: { output: 0 } });
    expect(facts.tokens.input).toBeGreaterThan(0);
  });

  // A model starts after 1 second and then reasons at 64 tokens per second.
  test.each([
    ['by the time until the caller disconnects', 'high', null, 11_000, 640],
    ['by the time until the first text', 'high', 3_000, 11_000, 128],
    ['at most to the output limit', 'high', null, 900_000, 1_000],
    ['not for an effort without reasoning', 'none', null, 11_000, 0],
    ['at the default effort if no effort is requested', undefined, null, 11_000, 640],
  ])('charges hidden reasoning %s', async (_how, effort, firstTextMs, disconnectMs, reasoning) => {
    const ledger = memoryLedger();
    let nowMs = 0;
    const disconnection = new AbortController();
    const bill = openBill({ ledger, clock: { monotonicMs: () => nowMs }, signal: disconnection.signal });
    const efforts = ['none', 'high'].map((id) => ({ id, name: id }));
    await bill.reserve(catalogModel({ reasoning: { efforts, default_effort: 'high' } }), []);
    bill.markSent(effort);
    bill.follow(attemptCount);
    if (firstTextMs !== null) {
      nowMs = firstTextMs;
      bill.countText('output', 16);
    }
    nowMs = disconnectMs;
    disconnection.abort();
    await bill.close(new Error('failed'), attemptCount);
    expect(ledger.last().facts).toMatchObject({
      outcome: 'client_closed',
      estimated: true,
      tokens: { reasoning },
    });
  });

  test('charges the units of a call whose caller disconnects', async () => {
    const ledger = memoryLedger();
    const disconnection = new AbortController();
    const bill = openBill({ ledger, signal: disconnection.signal, unitsIfDisconnected: { audioSecond: 90 } });
    await bill.reserve(model, []);
    bill.markSent();
    disconnection.abort();
    await bill.close(new Error('failed'), attemptCount);
    expect(ledger.last().facts).toMatchObject({ outcome: 'client_closed', units: { audioSecond: 90 } });
  });

  test('charges no units of a call that failed at the provider', async () => {
    const ledger = memoryLedger();
    const bill = openBill({ ledger, unitsIfDisconnected: { audioSecond: 90 } });
    await bill.reserve(model, []);
    bill.markSent();
    bill.failAttempt();
    await bill.close(new Error('failed'), attemptCount);
    expect(ledger.last().facts).toMatchObject({ outcome: 'upstream_failed', units: {} });
  });

  test('charges no hidden reasoning for a whole answer', async () => {
    const ledger = memoryLedger();
    let nowMs = 0;
    const bill = openBill({ ledger, clock: { monotonicMs: () => nowMs } });
    const efforts = [{ id: 'high', name: 'high' }];
    await bill.reserve(catalogModel({ reasoning: { efforts, default_effort: 'high' } }), []);
    bill.markSent('high');
    bill.follow(attemptCount);
    nowMs = 60_000;
    bill.countText('output', 16);
    await bill.settle('completed');
    expect(ledger.last().facts.tokens.reasoning).toBe(0);
  });

  test('waits for the usage when the caller disconnects after a complete answer', async () => {
    const ledger = memoryLedger();
    const bill = await openDisconnectedBill({ ledger });
    expect([bill.awaitsUsage, bill.signal.aborted]).toEqual([true, false]);
    bill.recordUsage({ tokens: { ...noTokens, input: 5, output: 3 }, isFinal: true });
    expect(bill.awaitsUsage).toBe(false);
    // 5 input tokens at 1 credit and 3 output tokens at 2.
    expect(await bill.settle('completed')).toBe(11);
    expect(ledger.last().facts).toMatchObject({ outcome: 'client_closed', estimated: false });
    expect(bill.signal.aborted).toBe(true);
  });

  test('is settled before its service closes although the caller has left', async () => {
    const gate = Promise.withResolvers<void>();
    const ledger = memoryLedger();
    const billing = createBilling({
      ledger: gateSettlements(ledger, () => gate.promise),
      clock: systemClock,
    });
    const bill = await openDisconnectedBill({ billing });
    let isSettled = false;
    const closing = billing.untilSettled().then(() => (isSettled = true));
    void bill.settle('completed');
    await nextTurn();
    expect(isSettled).toBe(false);
    gate.resolve();
    await closing;
    expect(ledger.last().facts.outcome).toBe('client_closed');
  });

  test('uses a hold of the database for a call with an Idempotency-Key', async () => {
    const ledger = memoryLedger();
    const answer = { scope: 'a', run: 'b', status: null, body: null };
    const remember: Remember = Object.assign(async () => {}, {
      bind: async () => true,
      inSettlement: () => () => answer,
    });
    const kinds: string[] = [];
    const { hold, reserve } = ledger;
    ledger.hold = (...parameters) => (kinds.push('hold'), hold(...parameters));
    ledger.reserve = (...parameters) => (kinds.push('reserve'), reserve(...parameters));
    for (const settings of [{ ledger }, { ledger, remember }]) {
      const bill = openBill(settings);
      await bill.reserve(model, []);
      await bill.close(new Error('failed'), attemptCount);
    }
    expect(kinds).toEqual(['reserve', 'hold']);
  });
});

describe('the output limit of a bill', () => {
  test("is the model's longest answer if the credits cover it", async () => {
    const bill = openBill();
    await bill.reserve(model, []);
    expect(bill.outputLimit).toBe(1_000);
  });

  test('is not added if the caller sent a limit', async () => {
    const bill = openBill({ limit: 50 });
    await bill.reserve(model, []);
    expect(bill.outputLimit).toBeUndefined();
  });

  test('is what the reserved credits cover', async () => {
    const ledger = memoryLedger(300n);
    const bill = openBill({ ledger });
    await bill.reserve(model, []);
    const limit = bill.outputLimit ?? 0;
    // An output token costs 2 credits, so that 300 credits cover fewer than 150 tokens after the input.
    expect(limit).toBeGreaterThan(100);
    expect(limit).toBeLessThan(150);
    expect(ledger.held()).toBeLessThanOrEqual(300n);
  });

  test('is lowered for a more expensive fallback', async () => {
    const ledger = memoryLedger(300n);
    const expensiveModel = catalogModel({
      id: 'acme/expensive',
      rates: { input: 2_000_000, output: 4_000_000 },
    });
    const bill = openBill({ ledger });
    await bill.reserve(model, []);
    const limit = bill.outputLimit ?? 0;
    bill.markSent();
    bill.failAttempt();
    await bill.reserve(expensiveModel, []);
    expect(bill.outputLimit).toBeLessThan(limit / 2);
    expect(bill.outputLimit).toBeGreaterThanOrEqual(16);
    expect(ledger.held()).toBeLessThanOrEqual(300n);
  });

  test('leaves half of the credits while another call of the user runs', async () => {
    const ledger = memoryLedger(1_000n);
    const billing = createBilling({ ledger, clock: systemClock });
    const otherBill = openBill({ billing, limit: 100 });
    await otherBill.reserve(model, []);
    const otherCredits = ledger.held();
    const remainingCredits = 1_000n - otherCredits;
    await openBill({ billing }).reserve(model, []);
    const reservedCredits = ledger.held() - otherCredits;
    expect(reservedCredits).toBeLessThanOrEqual(remainingCredits / 2n);
    // An output token costs 2 credits, so the reservation may be slightly below the half.
    expect(reservedCredits).toBeGreaterThan(remainingCredits / 2n - 3n);
  });

  test('uses all credits once the other call of the user has ended', async () => {
    const ledger = memoryLedger(1_000n);
    const billing = createBilling({ ledger, clock: systemClock });
    const otherBill = openBill({ billing, limit: 100 });
    await otherBill.reserve(model, []);
    await otherBill.close(new Error('failed'), attemptCount);
    await openBill({ billing }).reserve(model, []);
    // An output token costs 2 credits, so a remainder may be left.
    expect(ledger.held()).toBeGreaterThan(997n);
  });

  test('is 16 tokens if half of the credits covers less', async () => {
    const ledger = memoryLedger(300n);
    const billing = createBilling({ ledger, clock: systemClock });
    // The other call reserves 150 credits for its answer, so that half of the rest hardly covers the input.
    await openBill({ billing, limit: 75 }).reserve(model, []);
    const bill = openBill({ billing });
    await bill.reserve(model, []);
    expect(bill.outputLimit).toBe(16);
  });

  test('below 16 tokens is a 402', async () => {
    const bill = openBill({ ledger: memoryLedger(50n) });
    await expect(bill.reserve(model, [])).rejects.toMatchObject({ status: 402 });
  });
});

describe('checkpoints', () => {
  test('come with the first piece, then every 256 bytes or 250 ms', async () => {
    const ledger = memoryLedger();
    let nowMs = 0;
    const bill = openBill({ ledger, clock: { monotonicMs: () => nowMs } });
    await bill.reserve(model, []);
    bill.markSent();
    bill.follow(attemptCount);
    const countAfter = (bytes: number, atMs: number): number => {
      nowMs = atMs;
      bill.countText('output', bytes);
      return ledger.checkpoints.length;
    };
    expect([
      countAfter(40, 0),
      countAfter(40, 10),
      countAfter(200, 20),
      countAfter(56, 30),
      countAfter(4, 269),
      countAfter(4, 280),
    ]).toEqual([1, 1, 1, 2, 2, 3]);
    // One token for 4 bytes: 40, 336 and 344 bytes.
    expect(ledger.checkpoints.map(({ outputTokens }) => outputTokens)).toEqual([10, 84, 86]);
    const credits = ledger.checkpoints.map((checkpoint) => checkpoint.credits);
    expect(credits[0]).toBeGreaterThan(0n);
    expect(credits[1]).toBeGreaterThan(credits[0] ?? 0n);
  });
});
