// `townhall ledger show` and `townhall ledger journal` with a running gateway.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { journalDirectory, sqlAllotmentStore } from '../../src/gateway/credits/index.ts';
import { databaseEnv, makeDatabase, silentLog, type DatabasePlace } from '../support/databases.ts';
import { startGateway, type GatewayWorld } from '../support/gateway.ts';
import { finalLine } from '../gateway/credits/journal/sample-lines.ts';
import { runInProcess } from './in-process.ts';

let folder: string;
let place: DatabasePlace;
let world: GatewayWorld;
let env: Record<string, string>;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-ledger-'));
  place = await makeDatabase();
  env = {
    JOURNAL_PATH: join(folder, 'journal'),
    ...databaseEnv(place.options),
  };
  world = await startGateway({ place });
});
afterAll(async () => {
  await world?.close();
  await place?.remove();
  await rm(folder, { recursive: true, force: true });
});

/** Opens an allotment of 300 credits for a new key of the local user; returns the user's id. */
async function openAllotment(): Promise<string> {
  const store = sqlAllotmentStore(world.database);
  const [user] = await world.sql<{ userId: string; bureauId: string }[]>`
    select account_id as "userId", bureau_id as "bureauId" from gateway.credits_accounts limit 1`;
  if (user === undefined) throw new Error('There is no account.');
  await world.sql`update gateway.credits_accounts set posted = 1000 where account_id = ${user.userId}`;
  const request = { allotmentId: 'alt_1', gatewayId: 'gwy_1', tokenId: 'tok_1', version: 0, leaseMs: 20_000 };
  const { outcome } = await store.allot({
    ...request,
    ...user,
    generation: await store.generation(),
    need: 300n,
    want: 300n,
  });
  expect(outcome).toBe('granted');
  await store.renew('gwy_1', [{ allotmentId: 'alt_1', reserved: 40n, unapplied: 20n }], 20_000);
  return user.userId;
}

/** Puts a journal of another ledger aside; returns its name. */
async function putJournalAside(): Promise<string> {
  const directory = journalDirectory({ path: join(folder, 'journal'), log: silentLog });
  const journal = await directory.open('gen-former');
  await journal.sync(journal.append(finalLine('use_1', 46n)));
  await journal.close();
  for (const abandonedJournal of await directory.takeAbandoned())
    if (abandonedJournal.journalId === journal.journalId) await abandonedJournal.putAside('other_generation');
    else abandonedJournal.unlock();
  return journal.journalId;
}

describe('townhall ledger show', () => {
  test('prints an account and its allotments', async () => {
    const userId = await openAllotment();
    const { code, output } = await runInProcess(['ledger', 'show', userId], env);
    expect(code).toBe(0);
    expect(output).toEqual([
      `${userId}: 1,000 posted, 60 held, 0 owed.`,
      'allotment  key    gateway  amount  reserved  unapplied  age  reported  lease      state',
      expect.stringMatching(/^alt_1 +tok_1 +gwy_1 +300 +40 +20 +\d+ s +\d+ s ago +\d+ s left +open$/),
    ]);
    const json = await runInProcess(['ledger', 'show', userId, '--json'], env);
    expect(JSON.parse(json.output.join(''))).toMatchObject({
      user_id: userId,
      held: 60,
      allotments: [{ allotment_id: 'alt_1', amount: 300, reserved: 40, unapplied: 20, is_closed: false }],
    });
  });

  test('refuses an unknown user', async () => {
    await expect(runInProcess(['ledger', 'show', 'usr_x'], env)).rejects.toThrow('no user usr_x');
  });
});

describe('townhall ledger journal', () => {
  test('lists the journals that were put aside', async () => {
    expect((await runInProcess(['ledger', 'journal', 'list'], env)).output).toEqual([
      'No journal was put aside.',
    ]);
    const name = await putJournalAside();
    const { output } = await runInProcess(['ledger', 'journal', 'list'], env);
    expect(output[1]).toMatch(new RegExp(`^${name} +1 +46 +0 +of another ledger +20\\d\\d-`));
    const json = await runInProcess(['ledger', 'journal', 'list', '--json'], env);
    expect(JSON.parse(json.output.join(''))).toMatchObject({
      journals: [{ name, reason: 'other_generation', generation: 'gen-former', charges: 1, credits: 46 }],
    });
  });

  test('applies a journal to the current ledger', async () => {
    const name = await putJournalAside();
    const { output } = await runInProcess(['ledger', 'journal', 'apply', name, '--json'], env);
    const { journal: journalId } = JSON.parse(output.join('')) as { journal: string };
    const directory = journalDirectory({ path: join(folder, 'journal'), log: silentLog });
    const [journal] = await directory.takeAbandoned();
    journal?.unlock();
    const generation = await sqlAllotmentStore(world.database).generation();
    expect(journal).toMatchObject({ journalId, generation });
  });

  test('discards a journal only with --yes', async () => {
    const name = await putJournalAside();
    await expect(runInProcess(['ledger', 'journal', 'discard', name], env)).rejects.toThrow('--yes');
    await runInProcess(['ledger', 'journal', 'discard', name, '--yes'], env);
    await expect(runInProcess(['ledger', 'journal', 'discard', name, '--yes'], env)).rejects.toThrow(
      `No journal named ${name}`,
    );
  });
});
