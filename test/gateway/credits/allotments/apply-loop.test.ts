// The loop that writes charges to the database, on a database that refuses a batch and loses commits.
import { expect, test } from 'vitest';
import { ApplyLoop } from '../../../../src/gateway/credits/allotments/apply-loop.ts';
import { AllotmentPool } from '../../../../src/gateway/credits/allotments/pool.ts';
import type { ApplyResult, ChargeBatch } from '../../../../src/gateway/credits/allotments/store.ts';
import type { ChargeLine } from '../../../../src/gateway/credits/journal/journal.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { id } from '../../../../src/kernel/ids.ts';
import { Problem } from '../../../../src/kernel/problem.ts';
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
class LedgerDouble {
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

/** A loop on the ledger. `answer` may throw, or change the ledger, before the ledger gets a batch. */
function startLoop(ledger: LedgerDouble, answer: (batch: ChargeBatch) => void) {
  const counters = { overruns: 0, overrunCredits: 0n, lateCharges: 0, linesPutAside: 0 };
  let lastSeq = 0;
  const loop = new ApplyLoop({
    store: {
      async applyCharges(batch) {
        answer(batch);
        return ledger.apply(batch);
      },
      openJournal: async () => {},
      read: async () => [],
    },
    journal: {
      journalId: 'gwy_a',
      async *charges(afterSeq) {
        for (let seq = afterSeq + 1; seq <= lastSeq; seq += 2)
          yield [seq, seq + 1].filter((next) => next <= lastSeq).map(lineOf);
      },
    },
    generation: 'generation',
    pool: new AllotmentPool(id),
    clock: systemClock,
    log: silentLog,
    times: { applyEveryMs: 1, retryMs: 1 },
    counters,
    onOtherGeneration() {},
    onDatabaseAnswer() {},
    onDatabaseError() {},
  });
  return {
    counters,
    /** Adds the charges and waits until they are applied. */
    async apply(...seqs: number[]) {
      for (const seq of seqs) {
        lastSeq = seq;
        loop.add({ line: lineOf(seq), allotment: null, covered: 0n, addedAtMs: systemClock.monotonicMs() });
      }
      await loop.flush();
    },
  };
}

const appliedSeqs = ({ seqs }: LedgerDouble) => [...seqs].toSorted((a, b) => a - b);

/** Throws for a batch with this line, as a ledger that refuses its charge. */
function refuse(seq: number) {
  return ({ charges }: ChargeBatch): void => {
    if (charges.some((charge) => charge.seq === seq)) throw new Error('a value is out of range');
  };
}

test('a charge is applied although the database loses commits while a refused batch is halved', async () => {
  const ledger = new LedgerDouble();
  let losesCommits = false;
  const loop = startLoop(ledger, () => {
    if (!losesCommits) return;
    losesCommits = false;
    ledger.goBackTo(1);
    throw new Error('a value is out of range');
  });
  await loop.apply(1, 2);
  losesCommits = true;
  await loop.apply(3, 4);
  expect(appliedSeqs(ledger)).toEqual([1, 2, 3, 4]);
});

test('only the refused charge is missing when the database goes back past it', async () => {
  const ledger = new LedgerDouble();
  const loop = startLoop(ledger, refuse(2));
  await loop.apply(1, 2, 3, 4);
  ledger.goBackTo(1);
  await loop.apply(5, 6);
  expect(appliedSeqs(ledger)).toEqual([1, 3, 4, 5, 6]);
});

test('the database may go back before a refused charge is put aside', async () => {
  const ledger = new LedgerDouble();
  const refuseFourth = refuse(4);
  let hasLostCommits = false;
  const loop = startLoop(ledger, (batch) => {
    if (batch.toSeq === 4 && batch.charges.length === 0 && !hasLostCommits) {
      hasLostCommits = true;
      ledger.goBackTo(1);
    }
    refuseFourth(batch);
  });
  await loop.apply(1, 2, 3);
  await loop.apply(4, 5);
  expect(appliedSeqs(ledger)).toEqual([1, 2, 3, 5]);
  expect(loop.counters.linesPutAside).toBe(1);
});

test('lost charges are sent again although the database fails meanwhile', async () => {
  const ledger = new LedgerDouble();
  let isAway = false;
  const loop = startLoop(ledger, ({ toSeq }) => {
    // The second batch of lost charges.
    if (!isAway || toSeq !== 4) return;
    isAway = false;
    throw new Problem('unavailable', 'database_unavailable', 'The database is away.');
  });
  await loop.apply(1, 2);
  await loop.apply(3, 4);
  ledger.goBackTo(0);
  isAway = true;
  // A caller that waits gets the failure; the loop goes on.
  await loop.apply(5).catch(() => undefined);
  await loop.apply(6);
  expect(appliedSeqs(ledger)).toEqual([1, 2, 3, 4, 5, 6]);
});
