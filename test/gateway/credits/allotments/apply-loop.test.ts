// The loop that writes charges to the database, on a database that refuses a batch and loses commits.
import { expect, test } from 'vitest';
import { ApplyLoop } from '../../../../src/gateway/credits/allotments/apply-loop.ts';
import { AllotmentPool } from '../../../../src/gateway/credits/allotments/pool.ts';
import type { ApplyResult, ChargeBatch } from '../../../../src/gateway/credits/allotments/store.ts';
import type { ChargeLine } from '../../../../src/gateway/credits/journal/journal.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { id } from '../../../../src/kernel/ids.ts';
import { silentLog } from '../../../support/databases.ts';
import { facts } from '../world.ts';

const lineOf = (seq: number): ChargeLine => ({
  seq,
  usageId: `use_${seq}`,
  call: {
    requestId: `req_${seq}`,
    userId: 'usr_1',
    bureauId: 'local',
    tokenId: 'tok_1',
    action: 'text',
    model: null,
    provider: null,
  },
  allotmentId: null,
  credits: 1n,
  facts: facts(),
});

/** The ledger's compare-and-set of `applied_seq`. */
class MemoryLedger {
  appliedSeq = 0;
  readonly seqs = new Set<number>();

  apply({ expectedSeq, toSeq, charges }: ChargeBatch): ApplyResult {
    if (this.appliedSeq !== expectedSeq)
      return { outcome: 'mismatch', appliedSeq: this.appliedSeq, results: [], rows: [] };
    this.appliedSeq = toSeq;
    for (const { seq } of charges) this.seqs.add(seq);
    return { outcome: 'applied', appliedSeq: toSeq, results: [], rows: [] };
  }

  /** Loses the last commits, as a promoted standby does. */
  goBackTo(seq: number): void {
    this.appliedSeq = seq;
    for (const applied of this.seqs) if (applied > seq) this.seqs.delete(applied);
  }
}

test('a charge is applied although the database loses commits while a refused batch is halved', async () => {
  const ledger = new MemoryLedger();
  let isRefused = false;
  const loop = new ApplyLoop({
    store: {
      async applyCharges(batch) {
        if (isRefused) {
          isRefused = false;
          ledger.goBackTo(1);
          throw new Error('a value is out of range');
        }
        return ledger.apply(batch);
      },
      openJournal: async () => {},
      read: async () => [],
    },
    journal: {
      journalId: 'gwy_a',
      async *charges(afterSeq) {
        yield [1, 2, 3, 4].filter((seq) => seq > afterSeq).map(lineOf);
      },
    },
    generation: 'generation',
    pool: new AllotmentPool(id),
    clock: systemClock,
    log: silentLog,
    times: { applyEveryMs: 1, retryMs: 1 },
    counters: { overruns: 0, overrunCredits: 0n, lateCharges: 0, linesPutAside: 0 },
    onOtherGeneration() {},
    onDatabaseAnswer() {},
    onDatabaseError() {},
  });
  const add = (seq: number) =>
    loop.add({ line: lineOf(seq), allotment: null, covered: 0n, addedAtMs: systemClock.monotonicMs() });
  for (const seq of [1, 2]) add(seq);
  await loop.flush();
  isRefused = true;
  for (const seq of [3, 4]) add(seq);
  await loop.flush();
  expect([...ledger.seqs].toSorted((a, b) => a - b)).toEqual([1, 2, 3, 4]);
});
