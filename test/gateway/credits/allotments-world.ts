// A database with users, and the store of allotments on it, without a gateway.
import { sqlAllotmentStore } from '../../../src/gateway/credits/allotments/sql-store.ts';
import type {
  AllotmentStore,
  AllotRequest,
  AllotResult,
  ApplyResult,
  ChargeBatch,
  CoveredCharge,
} from '../../../src/gateway/credits/allotments/store.ts';
import { creditsStore, verifyLedger, type CreditsStore } from '../../../src/gateway/credits/index.ts';
import type { Database, Sql } from '../../../src/kernel/data/database.ts';
import { id } from '../../../src/kernel/ids.ts';
import { testDatabase, type TestDatabase } from '../../support/databases.ts';
import {
  callOf,
  createPayer,
  ensureLocalBureau,
  facts,
  readAccount,
  retentionDays,
  type AccountRow,
} from './world.ts';

export interface AllotmentsWorld {
  place: TestDatabase;
  sql: Sql;
  store: AllotmentStore;
  credits: CreditsStore;
  generation: string;
  /** Creates a user with this balance; returns its id. */
  user(credits: bigint): Promise<string>;
  key(userId: string, cap: bigint | null): Promise<string>;
  /** Opens an allotment of gateway `gwy_a` with exactly `need`, unless the overrides say otherwise. */
  allot(
    userId: string,
    need: bigint,
    overrides?: Partial<AllotRequest>,
  ): Promise<AllotResult & { allotmentId: string }>;
  /**
   * Applies these charges as the next batch of journal `gwy_a`, unless the overrides say otherwise.
   */
  charge(lines: readonly Partial<CoveredCharge>[], overrides?: Partial<ChargeBatch>): Promise<ApplyResult>;
  /** The row of the account, in which all credits of allotments count as held. */
  account(userId: string): Promise<AccountRow>;
  keyRow(tokenId: string): Promise<{ spent: bigint; held: bigint }>;
  /** Lets time pass for leases and tickets. */
  advance(ms: number): Promise<void>;
  takeBack(userId: string, credits: bigint): Promise<{ taken: bigint; owed: bigint; lacking: bigint } | null>;
  mismatches(): Promise<string[]>;
  close(): Promise<void>;
}

export async function startAllotments(): Promise<AllotmentsWorld> {
  const place = await testDatabase();
  const { sql } = place.database;
  const store = sqlAllotmentStore(place.database);
  const credits = creditsStore(place.database);
  const generation = await store.generation();
  await startServerAt(sql, '-infinity');
  await ensureLocalBureau(sql);

  return {
    place,
    sql,
    store,
    credits,
    generation,
    user: (amount) => createPayer(place.database, credits, amount),
    async key(userId, cap) {
      const tokenId = id('tok');
      await place.database.tx((tx) => credits.openKey(tx, { tokenId, userId, cap }));
      return tokenId;
    },
    async allot(userId, need, overrides = {}) {
      const request: AllotRequest = {
        allotmentId: id('alt'),
        version: 0,
        gatewayId: 'gwy_a',
        generation,
        userId,
        bureauId: 'local',
        tokenId: 'tok_test',
        need,
        want: need,
        leaseMs: 20_000,
        ...overrides,
      };
      return { ...(await store.allot(request)), allotmentId: request.allotmentId };
    },
    charge: (lines, overrides = {}) => applyNextBatch(store, lines, { generation, ...overrides }),
    account: (userId) => readAccount(sql, userId),
    async keyRow(tokenId) {
      const [row] = await sql<{ spent: bigint; held: bigint }[]>`
        select spent, held from gateway.credits_keys where token_id = ${tokenId}`;
      if (row === undefined) throw new Error('There is no such key.');
      return { ...row };
    },
    advance: (ms) => advanceTimes(sql, ms),
    takeBack: (userId, amount) => takeRefund(place.database, credits, userId, amount),
    mismatches: async () =>
      (await verifyLedger(credits, retentionDays)).faults.map(({ fault, row }) => `${fault} ${row}`).sort(),
    close: () => place.close(),
  };
}

/** Lets time pass by moving the stored times back. */
async function advanceTimes(sql: Sql, ms: number): Promise<void> {
  const seconds = ms / 1_000;
  await sql`
    update gateway.credits_allotments
    set lease_until = lease_until - make_interval(secs => ${seconds}),
      ended_at = ended_at - make_interval(secs => ${seconds})`;
  await sql`
    update gateway.credits_recalls set created_at = created_at - make_interval(secs => ${seconds})`;
}

function takeRefund(
  database: Database,
  balances: Pick<CreditsStore, 'takeBack'>,
  userId: string,
  credits: bigint,
): ReturnType<CreditsStore['takeBack']> {
  return database.tx((tx) =>
    balances.takeBack(tx, {
      userId,
      kind: 'refund',
      ref: id('pay'),
      credits,
      reason: 'refunded',
      partial: true,
    }),
  );
}

/** Applies the lines after those that the journal has applied. */
async function applyNextBatch(
  store: AllotmentStore,
  lines: readonly Partial<CoveredCharge>[],
  overrides: Partial<ChargeBatch> & { generation: string },
): Promise<ApplyResult> {
  const { journalId = 'gwy_a', generation } = overrides;
  await store.openJournal(journalId, generation);
  const expectedSeq = overrides.expectedSeq ?? (await store.appliedSeqs([journalId])).get(journalId) ?? 0;
  const charges = lines.map((line, index) => chargeOf({ seq: expectedSeq + index + 1, ...line }));
  const toSeq = charges.at(-1)?.seq ?? expectedSeq + 1;
  return store.applyCharges({ journalId, expectedSeq, toSeq, charges, ...overrides });
}

/**
 * Replaces the SQL function that returns when the database server started. The server of a test may
 * have started less than a minute ago, so no allotment would be taken back.
 */
export async function startServerAt(sql: Sql, time: 'now' | '-infinity'): Promise<void> {
  const value = time === 'now' ? 'now()' : `'${time}'::timestamptz`;
  await sql.unsafe(
    `create or replace function gateway.credits_server_start() returns timestamptz
      language sql stable as $$ select ${value} $$`,
  );
}

/** A finished call of a placeholder user; override `call.userId` to choose who pays. */
export function chargeOf(overrides: Partial<CoveredCharge>): CoveredCharge {
  return {
    seq: 1,
    usageId: id('use'),
    call: callOf('usr_nobody'),
    allotmentId: null,
    credits: 1n,
    facts: facts(),
    ...overrides,
  };
}
