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
  type LedgerTimes,
  type PaidCall,
} from '../../../src/gateway/credits/index.ts';
import type { UsageFacts } from '../../../src/gateway/usage/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import type { Sql } from '../../../src/kernel/data/database.ts';
import { id } from '../../../src/kernel/ids.ts';
import { createLog } from '../../../src/kernel/log.ts';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';
import { testDatabase, type TestDatabase } from '../../support/databases.ts';

export interface LedgerWorld {
  place: TestDatabase;
  sql: Sql;
  journalPath: string;
  /** The journals of charges. */
  chargesPath: string;
  logLines: string[];
  /** Another replica on the same database; it is not started. */
  replica(overrides?: Partial<CreditsOptions>): Credits;
  /** A user with these credits. */
  user(credits: bigint): Promise<string>;
  account(userId: string): Promise<{ posted: bigint; held: bigint; owed: bigint }>;
  close(): Promise<void>;
}

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
  await sql`insert into gateway.bureaus_records (bureau_id, name, server_url) values ('local', 'Local', 'http://127.0.0.1') on conflict do nothing`;

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
      retentionDays: 400,
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
      const userId = id('usr');
      await sql`insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, 'local')`;
      const { balances } = replicas[0] ?? replica();
      await place.database.tx((tx) =>
        balances.post(tx, { userId, kind: 'grant', ref: id('req'), credits: amount, reason: 'for a test' }),
      );
      return userId;
    },
    async account(userId) {
      const [row] = await sql<
        { posted: bigint; held: bigint; owed: bigint }[]
      >`select posted, held, owed from gateway.credits_accounts where account_id = ${userId}`;
      if (row === undefined) throw new Error('This user has no account.');
      return { ...row };
    },
    async close() {
      for (const replica of replicas) await replica.close();
      await place.close();
      for (const path of [journalPath, chargesPath]) await rm(path, { recursive: true, force: true });
    },
  };
}

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

/** Changes rows with the rights of the tables' owner, past the triggers. */
export async function force(sql: Sql, statement: string): Promise<void> {
  const tables = ['credits_txs', 'credits_entries'];
  for (const table of tables) await sql.unsafe(`alter table gateway.${table} disable trigger user`);
  await sql.unsafe(statement);
  for (const table of tables) await sql.unsafe(`alter table gateway.${table} enable trigger user`);
}
