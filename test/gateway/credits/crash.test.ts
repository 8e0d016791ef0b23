// Holds and settlements after the end of a process or the database: no credits stay held, no
// acknowledged settlement is lost, and none is charged twice.
import { existsSync } from 'node:fs';
import { open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import {
  creditsStore,
  settlementJournal,
  type Credits,
  type CreditsOptions,
  type CreditsStore,
  type Hold,
} from '../../../src/gateway/credits/index.ts';
import { Problem } from '../../../src/kernel/problem.ts';
import { callOf, facts, startLedger, type LedgerWorld } from './world.ts';
import { until } from '../../support/until.ts';

let world: LedgerWorld;
let deadReplica: Credits;
beforeEach(async () => {
  world = await startLedger();
  // A replica without background work: it renews no lease, as if it had been killed.
  deadReplica = world.replica();
});
afterEach(async () => {
  const { faults: mismatches } = await deadReplica.verify();
  await world.close();
  expect(mismatches).toEqual([]);
});

const shortTimes = {
  leaseMs: 400,
  renewEveryMs: 100,
  checkpointEveryMs: 150,
  sweepEveryMs: 50,
  verifyEveryMs: 3_600_000,
};
// A lease longer than the pauses of a busy machine, for holds that must not expire.
const longLeaseTimes = { ...shortTimes, leaseMs: 3_000 };
/** Lets the lease of one hold, or of all holds, expire. */
const expire = (holdId: string | null = null) => world.sql`
  update gateway.credits_holds set lease_until = gateway.townhall_now() - interval '1 second'
  where ${holdId}::text is null or hold_id = ${holdId}`;
const setCheckpoint = (checkpoint: number, holdId: string | null = null) => world.sql`
  update gateway.credits_holds set checkpoint = ${checkpoint}
  where ${holdId}::text is null or hold_id = ${holdId}`;
async function readStates(): Promise<[string, bigint | null][]> {
  const holds = await world.sql<{ state: string; charged: bigint | null }[]>`
    select state, charged from gateway.credits_holds order by hold_id`;
  return holds.map(({ state, charged }) => [state, charged]);
}
const readUsage = () => world.sql`
  select credits, outcome, estimated, output_tokens as output
  from gateway.usage_records order by usage_id`;

interface Outage {
  /** Whether statements fail before they run, or run and lose their answers. */
  loses: 'nothing' | 'statements' | 'answers';
}

/** A replica whose connection to the database a test can interrupt. */
function fragileReplica(options: Partial<CreditsOptions> = {}): { credits: Credits; outage: Outage } {
  const outage: Outage = { loses: 'nothing' };
  const realStore = creditsStore(world.place.database);
  const unavailableProblem = () => new Problem('unavailable', 'database_unavailable', 'away');
  const failDuringOutage =
    <Arguments extends unknown[], Result>(work: (...parameters: Arguments) => Promise<Result>) =>
    async (...parameters: Arguments): Promise<Result> => {
      if (outage.loses === 'statements') throw unavailableProblem();
      const result = await work(...parameters);
      if (outage.loses === 'answers') throw unavailableProblem();
      return result;
    };
  const store: CreditsStore = {
    ...realStore,
    apply: failDuringOutage(realStore.apply),
    renewLeases: failDuringOutage(realStore.renewLeases),
    recover: failDuringOutage(realStore.recover),
    ping: failDuringOutage(realStore.ping),
  };
  return { credits: world.replica({ store, times: longLeaseTimes, ...options }), outage };
}

describe('a hold whose process has ended', () => {
  test('is charged at its last checkpoint if sent, else released', async () => {
    const userId = await world.user(1_000n);
    const sentHold = await deadReplica.ledger.hold(callOf(userId), 100n);
    await deadReplica.ledger.hold(callOf(userId), 50n, { isSent: false });
    await setCheckpoint(30, sentHold.holdId);
    await world.sql`
      update gateway.credits_holds
      set facts = '{"tokens": {"input": 3, "output": 7}, "durationMs": 5}'
      where hold_id = ${sentHold.holdId}`;
    await expire();
    await world.replica({ times: shortTimes }).start();
    await until(async () => (await world.account(userId)).held === 0n, 'both holds are resolved');
    expect(await readStates()).toEqual([
      ['recovered', 30n],
      ['voided', 0n],
    ]);
    expect(await readUsage()).toEqual([
      { credits: 30n, outcome: 'upstream_failed', estimated: true, output: 7n },
      { credits: 0n, outcome: 'rejected', estimated: true, output: 0n },
    ]);
    expect(await world.account(userId)).toEqual({ posted: 970n, held: 0n, owed: 0n });
  });

  test('is resolved once by any number of replicas', async () => {
    const userId = await world.user(1_000n);
    const holds = await Promise.all(
      Array.from({ length: 30 }, () => deadReplica.ledger.hold(callOf(userId), 10n)),
    );
    await setCheckpoint(7);
    await expire();
    await Promise.all(Array.from({ length: 3 }, () => world.replica({ times: shortTimes }).start()));
    await until(async () => (await world.account(userId)).held === 0n, 'all holds are resolved');
    expect(await world.account(userId)).toEqual({
      posted: 1_000n - 7n * BigInt(holds.length),
      held: 0n,
      owed: 0n,
    });
  });

  test('is resolved at once if no other process has the database open', async () => {
    const userId = await world.user(1_000n);
    await deadReplica.ledger.hold(callOf(userId), 100n);
    await world.replica({ isAlone: true }).start();
    expect(await readStates()).toEqual([['recovered', 0n]]);
    expect(await world.account(userId)).toEqual({ posted: 1_000n, held: 0n, owed: 0n });
  });

  test('is kept for one lease after the start of another replica', async () => {
    const userId = await world.user(1_000n);
    const hold = await deadReplica.ledger.hold(callOf(userId), 100n);
    await expire(hold.holdId);
    await world.replica({ times: { ...shortTimes, leaseMs: 3_600_000 } }).start();
    // Ten rounds of the sweeper.
    await sleep(500);
    expect(await readStates()).toEqual([['held', null]]);
  });
});

describe('a settlement after the recovery of its hold', () => {
  /** A hold of 100 that another replica has resolved at its checkpoint. */
  async function createRecoveredHold(
    userId: string,
    { checkpoint = 0, tokenId = 'tok_test', owner = deadReplica } = {},
  ): Promise<Hold> {
    const hold = await owner.ledger.hold(callOf(userId, { tokenId }), 100n);
    await setCheckpoint(checkpoint, hold.holdId);
    await world.replica({ isAlone: true }).start();
    return hold;
  }
  const lateRows = () =>
    world.sql`
      select hold_id as id, credits, facts ->> 'outcome' as outcome
      from gateway.credits_late_settlements`;

  test.each([0, 25])('charges the whole answer once, including a checkpoint of %d', async (checkpoint) => {
    const userId = await world.user(1_000n);
    const hold = await createRecoveredHold(userId, { checkpoint });
    expect(await readUsage()).toEqual([
      { credits: BigInt(checkpoint), outcome: 'upstream_failed', estimated: true, output: 0n },
    ]);
    expect(await hold.settle(60n, facts())).toEqual({ charged: 60n });
    expect(await hold.settle(60n, facts())).toEqual({ charged: 60n });
    expect(await world.account(userId)).toEqual({ posted: 940n, held: 0n, owed: 0n });
    expect(await readUsage()).toEqual([{ credits: 60n, outcome: 'completed', estimated: false, output: 5n }]);
    expect(await readStates()).toEqual([['settled', 60n]]);
    expect(await lateRows()).toEqual([{ id: hold.holdId, credits: 60n, outcome: 'completed' }]);
    expect(deadReplica.counters()).toMatchObject({ lateSettlements: 1, overruns: 0 });
  });

  test('returns the credits that the checkpoint charged too much', async () => {
    const userId = await world.user(1_000n);
    const hold = await createRecoveredHold(userId, { checkpoint: 80 });
    expect(await hold.settle(60n, facts())).toEqual({ charged: 60n });
    expect(await world.account(userId)).toEqual({ posted: 940n, held: 0n, owed: 0n });
  });

  test('pays a debt with the credits that it returns', async () => {
    const userId = await world.user(100n);
    const hold = await createRecoveredHold(userId, { checkpoint: 80 });
    await world.place.database.tx((tx) =>
      deadReplica.balances.takeBack(tx, {
        userId,
        kind: 'refund',
        ref: 'pay_1',
        credits: 50n,
        reason: 'refunded',
        partial: true,
      }),
    );
    expect(await hold.settle(60n, facts())).toEqual({ charged: 60n });
    expect(await world.account(userId)).toEqual({ posted: 0n, held: 0n, owed: 10n });
  });

  test('charges up to the available credits and records the rest', async () => {
    const userId = await world.user(100n);
    const hold = await createRecoveredHold(userId);
    await deadReplica.ledger.hold(callOf(userId), 70n);
    expect(await hold.settle(60n, facts())).toEqual({ charged: 30n });
    expect(await world.account(userId)).toEqual({ posted: 70n, held: 70n, owed: 0n });
    expect(deadReplica.counters()).toMatchObject({ lateSettlements: 1, overruns: 1, overrunCredits: 30n });
  });

  test('stays within the cap of its key', async () => {
    const userId = await world.user(1_000n);
    await world.place.database.tx((tx) => deadReplica.openKey(tx, { tokenId: 'tok_key', userId, cap: 120n }));
    const hold = await createRecoveredHold(userId, { tokenId: 'tok_key' });
    const otherHold = await deadReplica.ledger.hold(callOf(userId, { tokenId: 'tok_key' }), 80n);
    expect(await hold.settle(60n, facts())).toEqual({ charged: 40n });
    await otherHold.settle(80n, facts());
    expect(await world.sql`select spent, held from gateway.credits_keys`).toEqual([
      { spent: 120n, held: 0n },
    ]);
  });

  test('is charged once from the journal by any number of replicas', async () => {
    const userId = await world.user(1_000n);
    const { credits, outage } = fragileReplica();
    const holds = await Promise.all(
      Array.from({ length: 10 }, () => credits.ledger.hold(callOf(userId), 50n)),
    );
    outage.loses = 'statements';
    await Promise.all(holds.map((hold) => hold.settle(30n, facts())));
    await expire(holds[0]?.holdId ?? '');
    const store = creditsStore(world.place.database);
    expect(
      (await store.recover({ isForced: true, limit: 200 })).every(({ verdict }) => verdict === 'recovered'),
    ).toBe(true);
    expect(await world.account(userId)).toMatchObject({ posted: 1_000n });
    await Promise.all(Array.from({ length: 3 }, () => world.replica().start()));
    expect(await world.account(userId)).toEqual({ posted: 700n, held: 0n, owed: 0n });
    expect(await readdir(world.journalPath)).toEqual([]);
  });

  test('charges nothing for work that another process repeats', async () => {
    const userId = await world.user(1_000n);
    const { credits, outage } = fragileReplica();
    const hold = await credits.ledger.hold(callOf(userId), 100n, { isSent: false });
    outage.loses = 'statements';
    await hold.settle(60n, facts(), { work: async () => undefined });
    // A process that does not see the journal releases the hold, so it may do the work again. Then another
    // process finds the settlement in the journal.
    await world
      .replica({ isAlone: true, journal: { ...settlementJournal(world.journalPath), list: async () => [] } })
      .start();
    await world.replica().start();
    expect(await readdir(world.journalPath)).toEqual([]);
    expect(await world.account(userId)).toEqual({ posted: 1_000n, held: 0n, owed: 0n });
    expect(await lateRows()).toHaveLength(1);
  });
});

test('every hold is kept for one lease after a database outage', async () => {
  const userId = await world.user(1_000n);
  const { credits, outage } = fragileReplica({ times: shortTimes });
  await credits.start();
  await deadReplica.ledger.hold(callOf(userId), 100n);
  outage.loses = 'statements';
  await sleep(shortTimes.leaseMs * 3);
  await expire();
  outage.loses = 'nothing';
  const returnedMs = performance.now();
  await until(async () => (await world.account(userId)).held === 0n, 'the hold is resolved');
  expect(performance.now() - returnedMs).toBeGreaterThanOrEqual(shortTimes.leaseMs);
});

describe('a hold whose process is alive', () => {
  test('is kept over many leases with its checkpoints', async () => {
    const userId = await world.user(1_000n);
    const livingReplica = world.replica({ times: longLeaseTimes });
    await Promise.all([livingReplica.start(), world.replica({ times: longLeaseTimes }).start()]);
    const hold = await livingReplica.ledger.hold(callOf(userId), 100n);
    hold.checkpoint(10n, { model: 'acme/other' }, 20);
    hold.checkpoint(
      12n,
      { tokens: { input: 1, cachedInput: 0, cacheWrite: 0, output: 2, reasoning: 0 } },
      40,
    );
    await sleep(longLeaseTimes.leaseMs * 2.5);
    expect(
      await world.sql`
        select state, checkpoint, facts -> 'tokens' ->> 'output' as output, facts ->> 'model' as model
        from gateway.credits_holds`,
    ).toEqual([{ state: 'held', checkpoint: 12n, output: '2', model: 'acme/other' }]);
    expect(await hold.settle(44n, facts())).toEqual({ charged: 44n });
    expect(await readStates()).toEqual([['settled', 44n]]);
  });

  test('is checkpointed at once after 256 output tokens', async () => {
    const userId = await world.user(1_000n);
    const livingReplica = world.replica();
    await livingReplica.start();
    const hold = await livingReplica.ledger.hold(callOf(userId), 100n);
    hold.checkpoint(1n, {}, 255);
    hold.checkpoint(2n, {}, 256);
    await expect
      .poll(() => world.sql`select checkpoint from gateway.credits_holds`)
      .toEqual([{ checkpoint: 2n }]);
  });

  test('keeps the checkpoint that arrives during the last write before its end', async () => {
    const userId = await world.user(1_000n);
    const store = creditsStore(world.place.database);
    const firstWrite = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    const livingReplica = world.replica({
      store: {
        ...store,
        async renewLeases(...parameters) {
          firstWrite.resolve();
          await release.promise;
          return store.renewLeases(...parameters);
        },
      },
    });
    await livingReplica.start();
    const hold = await livingReplica.ledger.hold(callOf(userId), 100n);
    hold.checkpoint(2n, {}, 256);
    await firstWrite.promise;
    hold.checkpoint(3n, {}, 257);
    const closing = livingReplica.close();
    // The end must have reached the loop while its write still waits.
    await sleep(100);
    release.resolve();
    await closing;
    expect(await world.sql`select checkpoint from gateway.credits_holds`).toEqual([{ checkpoint: 3n }]);
  });

  // The embedded engine runs one transaction at a time.
  test.skipIf(inject('databaseSource')?.engine !== 'postgres')(
    'keeps its checkpoint while its row is locked',
    async () => {
      const userId = await world.user(1_000n);
      const livingReplica = world.replica({ times: longLeaseTimes });
      await livingReplica.start();
      const hold = await livingReplica.ledger.hold(callOf(userId), 100n);
      await world.place.database.tx(async (tx) => {
        await tx`select 1 from gateway.credits_holds where hold_id = ${hold.holdId} for update`;
        hold.checkpoint(12n, {}, 20);
        await sleep(longLeaseTimes.checkpointEveryMs * 3);
      });
      await expect
        .poll(() => world.sql`select checkpoint from gateway.credits_holds`)
        .toEqual([{ checkpoint: 12n }]);
    },
  );

  test('is settled by the process that resumes it', async () => {
    const userId = await world.user(1_000n);
    const hold = await deadReplica.ledger.hold(callOf(userId), 100n, { isSent: false });
    const worker = world.replica();
    const resumedHold = await worker.ledger.resume(hold.holdId);
    expect(resumedHold?.amount).toBe(100n);
    expect(await world.sql`select phase from gateway.credits_holds`).toEqual([{ phase: 'sent' }]);
    expect(await resumedHold?.settle(90n, facts())).toEqual({ charged: 90n });
    expect(await worker.ledger.resume(hold.holdId)).toBeNull();
    expect(await hold.settle(100n, facts())).toEqual({ charged: 90n });
    expect(await world.account(userId)).toEqual({ posted: 910n, held: 0n, owed: 0n });
  });
});

describe('a settlement while the database is unreachable', () => {
  test.each(['statements', 'answers'] as const)(
    'is in the journal at once and charged once, after lost %s',
    async (loses) => {
      const userId = await world.user(1_000n);
      const { credits, outage } = fragileReplica();
      await credits.start();
      const holds = await Promise.all(
        Array.from({ length: 3 }, () => credits.ledger.hold(callOf(userId), 100n)),
      );
      outage.loses = loses;
      expect(await Promise.all(holds.map((hold, index) => hold.settle(BigInt(index + 1), facts())))).toEqual([
        { charged: 1n },
        { charged: 2n },
        { charged: 3n },
      ]);
      expect(await readdir(world.journalPath)).toHaveLength(3);
      await expect(credits.ledger.hold(callOf(userId), 1n)).rejects.toMatchObject({
        status: 503,
        code: 'database_unavailable',
      });
      outage.loses = 'nothing';
      await until(async () => (await readdir(world.journalPath)).length === 0, 'the journal is settled');
      expect(await world.account(userId)).toMatchObject({ posted: 994n });
      expect(credits.counters()).toMatchObject({ journaled: 3, lateSettlements: 0 });
      // A hold whose answer was lost has no owner. Recover it, so that no credits stay held.
      await world.replica({ isAlone: true }).start();
      expect(await world.account(userId)).toEqual({ posted: 994n, held: 0n, owed: 0n });
    },
  );

  test('is charged once by later processes', async () => {
    const userId = await world.user(1_000n);
    const { credits, outage } = fragileReplica();
    const hold = await credits.ledger.hold(callOf(userId), 100n);
    outage.loses = 'statements';
    expect(await hold.settle(42n, facts())).toEqual({ charged: 42n });
    await Promise.all(Array.from({ length: 3 }, () => world.replica().start()));
    expect(await readdir(world.journalPath)).toEqual([]);
    expect(await readStates()).toEqual([['settled', 42n]]);
    expect(await world.account(userId)).toEqual({ posted: 958n, held: 0n, owed: 0n });
  });

  test('is charged later when it cannot be written', async () => {
    const userId = await world.user(1_000n);
    const brokenJournal = {
      ...settlementJournal(join(world.journalPath, 'gone')),
      prepare: async () => undefined,
      list: async () => [],
    };
    const { credits, outage } = fragileReplica({ journal: brokenJournal });
    await credits.start();
    const hold = await credits.ledger.hold(callOf(userId), 100n);
    outage.loses = 'statements';
    await expect(hold.settle(9n, facts())).rejects.toMatchObject({ status: 503 });
    outage.loses = 'nothing';
    await until(async () => (await world.account(userId)).posted === 991n, 'the settlement is charged');
  });
});

describe('the journal of settlements', () => {
  test('leaves a settlement of another database alone', async () => {
    const { holdId } = await deadReplica.ledger.hold(callOf(await world.user(10n)), 5n);
    const journal = settlementJournal(world.journalPath);
    await journal.write({
      kind: 'settle',
      holdId: 'hld_of_another',
      accountId: 'usr_x',
      credits: 5n,
      facts: facts(),
      answer: null,
      isHeldOnly: false,
    });
    await world.replica({ times: shortTimes }).start();
    expect(await readdir(world.journalPath)).toEqual(['hld_of_another.settlement.json']);
    expect(await world.sql`select state from gateway.credits_holds where hold_id = ${holdId}`).toEqual([
      { state: 'held' },
    ]);
  });

  test.each([
    '',
    '{"holdId":"hld_',
    'null',
    '{"holdId":"hld_bad","accountId":"usr_x","credits":"x","facts":{}}',
    '{"holdId":"hld_other","accountId":"usr_x","credits":"1","facts":{}}',
  ])('settles the other files next to an unreadable file: %s', async (text) => {
    const userId = await world.user(1_000n);
    const { credits, outage } = fragileReplica();
    const hold = await credits.ledger.hold(callOf(userId), 100n);
    outage.loses = 'statements';
    await hold.settle(42n, facts());
    await writeFile(join(world.journalPath, 'hld_bad.settlement.json'), text);
    const nextReplica = world.replica();
    await nextReplica.start();
    expect(await world.account(userId)).toEqual({ posted: 958n, held: 0n, owed: 0n });
    expect(await readdir(world.journalPath)).toEqual(['hld_bad.settlement.json.unreadable']);
    expect(nextReplica.counters()).toMatchObject({ unreadable: 1 });
    expect(
      world.logLines.some(
        (line) => line.includes('"alarm":"unreadable_journal"') && line.includes('"level":"error"'),
      ),
    ).toBe(true);
  });

  test('syncs the file before its rename and the folder after it', async () => {
    const target = join(world.journalPath, 'hld_1.settlement.json');
    const syncs: unknown[] = [];
    const openFile: typeof open = async (path, ...parameters) => {
      const file = await open(path, ...parameters);
      const sync = file.sync.bind(file);
      return Object.assign(file, {
        async sync() {
          syncs.push([
            path,
            (await readFile(path, 'utf8').catch(() => 'folder')).slice(0, 17),
            existsSync(target),
          ]);
          await sync();
        },
      });
    };
    await settlementJournal(world.journalPath, { openFile }).write({
      kind: 'settle',
      holdId: 'hld_1',
      accountId: 'usr_x',
      credits: 5n,
      facts: facts(),
      answer: null,
      isHeldOnly: false,
    });
    expect(syncs).toEqual([
      [`${target}.partial`, '{"kind":"settle",', false],
      [world.journalPath, 'folder', true],
    ]);
    await rm(target);
  });

  test('must be writable at the start', async () => {
    await writeFile(join(world.journalPath, 'file'), '');
    await expect(
      world.replica({ journal: settlementJournal(join(world.journalPath, 'file', 'folder')) }).start(),
    ).rejects.toThrow('JOURNAL_PATH');
  });
});
