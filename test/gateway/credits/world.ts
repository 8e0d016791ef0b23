// A ledger for a test: a database, a journal, users with credits, and any number of replicas.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  credits,
  creditsStore,
  journalDirectory,
  settlementJournal,
  sqlAllotmentStore,
  type Credits,
  type CreditsOptions,
  type CreditsStore,
  type LedgerTimes,
  type PaidCall,
  type Reservation,
} from '../../../src/gateway/credits/index.ts';
import type { UsageFacts } from '../../../src/gateway/usage/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import type { Database, Sql } from '../../../src/kernel/data/database.ts';
import { id } from '../../../src/kernel/ids.ts';
import { createLog } from '../../../src/kernel/log.ts';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';
import { testDatabase, type TestDatabase } from '../../support/databases.ts';

export interface AccountRow {
  posted: bigint;
  held: bigint;
  owed: bigint;
}

export interface LedgerWorld {
  place: TestDatabase;
  sql: Sql;
  /** The folder of the journal of settlements, a file for each hold. */
  journalPath: string;
  /** The folder of the journals of charges. */
  chargesPath: string;
  logLines: string[];
  /** Creates another replica on the same database, without starting it. */
  replica(overrides?: Partial<CreditsOptions>): Credits;
  /** Creates a user with these credits; resolves with its id. */
  user(credits: bigint): Promise<string>;
  account(userId: string): Promise<AccountRow>;
  close(): Promise<void>;
}

/** How many days of usage records, and of resolved holds, the ledgers of tests keep. */
export const retentionDays = 400;

/** Intervals so long that no background work runs during a test. */
export const stillTimes: LedgerTimes = {
  leaseMs: 45_000,
  renewEveryMs: 3_600_000,
  checkpointEveryMs: 3_600_000,
  sweepEveryMs: 3_600_000,
  verifyEveryMs: 3_600_000,
};

export async function startLedger(): Promise<LedgerWorld> {
  const place = await testDatabase();
  const { sql } = place.database;
  const journalPath = await mkdtemp(join(tmpdir(), 'townhall-journal-'));
  const chargesPath = await mkdtemp(join(tmpdir(), 'townhall-charges-'));
  const logLines: string[] = [];
  const log = createLog({
    level: 'debug',
    redactor: createRedactor(),
    write: (line) => void logLines.push(line),
  });
  const replicas: Credits[] = [];
  await ensureLocalBureau(sql);

  function replica(overrides: Partial<CreditsOptions> = {}): Credits {
    const replicaCredits = credits({
      store: creditsStore(place.database),
      allotmentStore: sqlAllotmentStore(place.database),
      journal: settlementJournal(journalPath),
      journals: journalDirectory({ path: chargesPath, log }),
      users: { findUser: async () => ({ state: 'active' }), endedTokens: async () => [] },
      audit: { record: async () => undefined },
      usage: { total: async () => ({ credits: 0n }) },
      log,
      clock: systemClock,
      isAlone: false,
      startingCredits: 0n,
      retentionDays,
      times: stillTimes,
      ...overrides,
    });
    replicas.push(replicaCredits);
    return replicaCredits;
  }

  return {
    place,
    sql,
    journalPath,
    chargesPath,
    logLines,
    replica,
    async user(amount) {
      const { balances } = replicas[0] ?? replica();
      return createPayer(place.database, balances, amount);
    },
    account: (userId) => readAccount(sql, userId),
    async close() {
      for (const replica of replicas) await replica.close();
      await place.close();
      for (const path of [journalPath, chargesPath]) await rm(path, { recursive: true, force: true });
    },
  };
}

/** The Bureau of the users that tests create. */
export async function ensureLocalBureau(sql: Sql): Promise<void> {
  await sql`
    insert into gateway.bureaus_records (bureau_id, name, server_url)
    values ('local', 'Local', 'http://127.0.0.1') on conflict do nothing`;
}

/** Creates a user with these credits; resolves with its id. */
export async function createPayer(
  { sql, tx: transaction }: Pick<Database, 'sql' | 'tx'>,
  balances: { post(...input: Parameters<CreditsStore['post']>): Promise<unknown> },
  credits: bigint,
): Promise<string> {
  const userId = id('usr');
  await sql`insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, 'local')`;
  await transaction((tx) =>
    balances.post(tx, { userId, kind: 'grant', ref: id('req'), credits, reason: 'for a test' }),
  );
  return userId;
}

/** The row of the account, in which all credits of allotments count as held. */
export async function readAccount(sql: Sql, userId: string): Promise<AccountRow> {
  const [row] = await sql<AccountRow[]>`
    select posted, held, owed from gateway.credits_accounts where account_id = ${userId}`;
  if (row === undefined) throw new Error('This user has no account.');
  return { ...row };
}

/** Reserves, sends and settles one call; resolves with 'charged' or the code of its refusal. */
export async function payCall(
  { ledger }: Pick<Credits, 'ledger'>,
  userId: string,
  { amount, price, tokenId }: { amount: bigint; price: bigint; tokenId?: string },
): Promise<string> {
  let reservation: Reservation;
  try {
    reservation = await ledger.reserve(callOf(userId, tokenId === undefined ? {} : { tokenId }), amount);
    reservation.markSent(sentFacts);
  } catch (error) {
    return (error as { code: string }).code;
  }
  await reservation.settle(price, facts());
  return 'charged';
}

/** What a reservation records when its request is sent. */
export const sentFacts = { model: 'acme/fast', provider: 'acme', inputCredits: 1n, facts: {} };

export function callOf(userId: string, overrides: Partial<PaidCall> = {}): PaidCall {
  return {
    requestId: id('req'),
    userId,
    bureauId: 'local',
    tokenId: 'tok_test',
    action: 'text',
    model: 'acme/fast',
    provider: 'acme',
    ...overrides,
  };
}

export function facts(overrides: Partial<UsageFacts> = {}): UsageFacts {
  return {
    action: 'text',
    model: 'acme/fast',
    provider: 'acme',
    tokens: { input: 10, cachedInput: 0, cacheWrite: 0, output: 5, reasoning: 0 },
    units: {},
    outcome: 'completed',
    estimated: false,
    ttftMs: 12,
    durationMs: 34,
    ...overrides,
  };
}

/** Runs a statement with the triggers disabled that protect transactions and entries. */
export async function force(sql: Sql, statement: string): Promise<void> {
  const tables = ['credits_txs', 'credits_entries'];
  for (const table of tables) await sql.unsafe(`alter table gateway.${table} disable trigger user`);
  try {
    await sql.unsafe(statement);
  } finally {
    for (const table of tables) await sql.unsafe(`alter table gateway.${table} enable trigger user`);
  }
}
