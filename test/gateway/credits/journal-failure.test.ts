// A disk that fails: paid calls are refused until it works again. A database that fails while a journal is
// opened: no journal is left.
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { journalDirectory, sqlAllotmentStore, type Credits } from '../../../src/gateway/credits/index.ts';
import { silentLog } from '../../support/databases.ts';
import { failingFiles, ioError, noSpace } from './journal/failing-files.ts';
import { manualClock } from './journal/world.ts';
import { callOf, facts, sentFacts, startLedger, type LedgerWorld } from './world.ts';

let world: LedgerWorld;
let path: string;
beforeAll(async () => {
  world = await startLedger();
  path = await mkdtemp(join(tmpdir(), 'townhall-failing-'));
});
afterAll(async () => {
  await world?.close();
  await rm(path, { recursive: true, force: true });
});

function failingReplica() {
  const { files, errors } = failingFiles();
  const clock = manualClock();
  const credits = world.replica({ journals: journalDirectory({ path, log: silentLog, clock, files }) });
  return { credits, errors, clock };
}

async function call({ ledger }: Credits, userId: string): Promise<bigint> {
  const reservation = await ledger.reserve(callOf(userId), 20n);
  try {
    reservation.markSent(sentFacts);
  } catch (error) {
    reservation.release();
    throw error;
  }
  return (await reservation.settle(20n, facts())).charged;
}

test('a running call is charged in the database when the disk fails', async () => {
  const { credits, errors } = failingReplica();
  const userId = await world.user(500n);
  const reservation = await credits.ledger.reserve(callOf(userId), 20n);
  reservation.markSent(sentFacts);
  Object.assign(errors, { write: ioError, create: noSpace });
  expect(await reservation.settle(20n, facts())).toEqual({ charged: 20n });
  await credits.report(userId);
  expect(await world.account(userId)).toMatchObject({ posted: 480n });
});

test('paid calls and readiness are 503 until the disk works', async () => {
  const { credits, errors, clock } = failingReplica();
  const userId = await world.user(500n);
  await call(credits, userId);
  expect(() => credits.requireJournal()).not.toThrow();
  Object.assign(errors, { write: ioError, create: noSpace });
  await call(credits, userId);
  expect(() => credits.requireJournal()).toThrow('Charges cannot be recorded');
  await expect(call(credits, userId)).rejects.toMatchObject({ status: 503, code: 'journal_unavailable' });
  Object.assign(errors, { write: null, create: null });
  await vi.waitFor(() => {
    clock.advance(5_000);
    expect(() => credits.requireJournal()).not.toThrow();
  });
  expect(await call(credits, userId)).toBe(20n);
});

test('a journal that the database does not register is removed', async () => {
  const folder = join(path, 'unregistered');
  await mkdir(folder);
  const credits = world.replica({
    journals: journalDirectory({ path: folder, log: silentLog }),
    allotmentStore: {
      ...sqlAllotmentStore(world.place.database),
      openJournal: () => Promise.reject(new Error('away')),
    },
  });
  await expect(credits.ledger.reserve(callOf('usr_nobody'), 20n)).rejects.toThrow('away');
  expect(await readdir(folder)).toEqual([]);
});
