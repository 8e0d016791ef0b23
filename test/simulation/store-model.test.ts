import { describe, expect, test } from 'vitest';
import type { ChargeLine } from '../../src/gateway/credits/journal/journal.ts';
import { StoreModel } from './store-model.ts';

const owner = { gatewayId: 'gwy_1', userId: 'user', bureauId: 'bureau', tokenId: 'token' };
const request = {
  ...owner,
  allotmentId: 'alt_1',
  version: 0,
  generation: 'generation',
  need: 100n,
  want: 100n,
  leaseMs: 20_000,
};

function createStore(cap: bigint | null = null): { store: StoreModel; advance(ms: number): void } {
  let nowMs = 0;
  const store = new StoreModel({ generation: 'generation', nowMs: () => nowMs });
  store.addUser('user', [{ tokenId: 'token', cap }], 1_000n);
  return { store, advance: (ms) => void (nowMs += ms) };
}

function charge(seq: number, credits: bigint): ChargeLine {
  return {
    seq,
    usageId: `use_${seq}`,
    call: { requestId: `req_${seq}`, ...owner, action: 'stream', model: null, provider: null },
    allotmentId: 'alt_1',
    credits,
    facts: {
      action: 'stream',
      model: null,
      provider: null,
      tokens: { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 },
      units: {},
      outcome: 'completed',
      estimated: false,
      ttftMs: null,
      durationMs: 0,
    },
  };
}

describe('store model', () => {
  test('grants at most the free credits of account and key', () => {
    const { store } = createStore(150n);
    expect(store.allot({ ...request, want: 400n })).toMatchObject({
      outcome: 'granted',
      row: { amount: 150n },
    });
    expect(store.allot({ ...request, allotmentId: 'alt_2', need: 1n, want: 1n }).outcome).toBe('short');
    expect(store.accounts.get('user')).toMatchObject({ posted: 1_000n, held: 150n });
  });

  test('answers a repeated request with the row', () => {
    const { store } = createStore();
    store.allot(request);
    expect(store.allot(request)).toMatchObject({ outcome: 'stale', row: { version: 1, amount: 100n } });
  });

  test('gives back once per version', () => {
    const { store } = createStore();
    store.allot(request);
    const giveBack = { allotmentId: 'alt_1', version: 1, amount: 40n, end: false };
    expect(store.giveBack([giveBack])).toMatchObject([{ version: 2, amount: 40n }]);
    expect(store.giveBack([{ ...giveBack, amount: 0n }])).toMatchObject([{ version: 2, amount: 40n }]);
    expect(store.accounts.get('user')?.held).toBe(40n);
  });

  test('applies each line of a journal once', () => {
    const { store } = createStore();
    store.openJournal('gwy_1', 'generation');
    store.allot(request);
    const batch = {
      journalId: 'gwy_1',
      generation: 'generation',
      expectedSeq: 0,
      toSeq: 2,
      charges: [charge(2, 30n)],
    };
    expect(store.applyCharges(batch)).toMatchObject({
      outcome: 'applied',
      results: [{ charged: 30n, overrun: 0n }],
    });
    expect(store.applyCharges(batch).outcome).toBe('repeated');
    expect(store.accounts.get('user')).toMatchObject({ posted: 970n, held: 70n });
    expect(store.keys.get('token')).toMatchObject({ spent: 30n, held: 70n });
  });

  test('charges no more than the covered credits of the allotment', () => {
    const { store } = createStore(100n);
    store.openJournal('gwy_1', 'generation');
    store.allot(request);
    const charges = [{ ...charge(1, 90n), covered: 60n }];
    const batch = { journalId: 'gwy_1', generation: 'generation', expectedSeq: 0, toSeq: 1, charges };
    expect(store.applyCharges(batch).results).toMatchObject([{ charged: 60n, overrun: 30n }]);
    expect(store.allotments.get('alt_1')?.amount).toBe(40n);
  });

  test('charges late lines to the account', () => {
    const { store, advance } = createStore();
    store.openJournal('gwy_1', 'generation');
    store.allot(request);
    advance(60_000);
    expect(store.takeBackExpired(10)).toEqual([]);
    advance(1);
    expect(store.takeBackExpired(10)).toEqual([{ allotmentId: 'alt_1', amount: 100n }]);
    const batch = {
      journalId: 'gwy_1',
      generation: 'generation',
      expectedSeq: 0,
      toSeq: 1,
      charges: [charge(1, 5n)],
    };
    expect(store.applyCharges(batch).results).toMatchObject([{ charged: 5n, isLate: true }]);
    expect(store.accounts.get('user')).toMatchObject({ posted: 995n, held: 0n });
  });

  test('reserves returned credits for the oldest ticket for a second', () => {
    const { store, advance } = createStore();
    store.allot({ ...request, need: 1_000n, want: 1_000n });
    const ticket = { ...owner, gatewayId: 'gwy_2', ticket: 'tkt_1', need: 600n };
    store.recall(ticket);
    expect(store.flags('gwy_1').rows).toMatchObject([{ allotmentId: 'alt_1', isRecalled: true }]);
    store.giveBack([{ allotmentId: 'alt_1', version: 1, amount: 0n, end: false }]);
    const thirdRequest = { ...request, gatewayId: 'gwy_3', allotmentId: 'alt_3', need: 500n, want: 500n };
    expect(store.allot(thirdRequest).outcome).toBe('short');
    advance(1_000);
    expect(store.allot(thirdRequest).outcome).toBe('granted');
  });

  test('pays a debt from returned credits', () => {
    const { store } = createStore();
    store.allot({ ...request, need: 1_000n, want: 1_000n });
    expect(store.takeBack('user', 300n, true)).toBe(0n);
    expect(store.flags('gwy_1').rows).toMatchObject([{ isClosed: true }]);
    store.giveBack([{ allotmentId: 'alt_1', version: 1, amount: 500n, end: false }]);
    expect(store.accounts.get('user')).toMatchObject({ posted: 700n, held: 500n, owed: 0n });
  });

  test('restores an older copy under a new generation', () => {
    const { store } = createStore();
    const copy = store.snapshot();
    store.allot(request);
    store.restore(copy, 'generation-2');
    expect(store.accounts.get('user')?.held).toBe(0n);
    expect(store.allot(request).outcome).toBe('gone');
  });
});
