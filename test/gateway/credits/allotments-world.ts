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
import type { Sql } from '../../../src/kernel/data/database.ts';
import { id } from '../../../src/kernel/ids.ts';
import { testDatabase, type TestDatabase } from '../../support/databases.ts';
import { callOf, facts } from './world.ts';

export interface Balance {
  posted: bigint;
  held: bigint;
  owed: bigint;
}

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
  /** Applies these credits on an allotment as the next batch of journal `gwy_a`. */
  charge(lines: readonly Partial<CoveredCharge>[], overrides?: Partial<ChargeBatch>): Promise<ApplyResult>;
  /** The row of the account, idle allotments as held. */
  account(userId: string): Promise<Balance>;
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
  await sql`insert into gateway.bureaus_records (bureau_id, name, server_url) values ('local', 'Local', 'http://127.0.0.1') on conflict do nothing`;

  return {
    place,
    sql,
    store,
    credits,
    generation,
    async user(amount) {
      const userId = id('usr');
      await sql`insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, 'local')`;
      await place.database.tx((tx) =>
        credits.post(tx, { userId, kind: 'grant', ref: id('req'), credits: amount, reason: 'for a test' }),
      );
      return userId;
    },
    async key(userId, cap) {
      const tokenId = id('tok');
      await place.database.tx((tx) => credits.openKey(tx, { tokenId, userId, cap }));
      return tokenId;
    },
    async allot(userId, need, members = {}) {
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
        ...members,
      };
      return { ...(await store.allot(request)), allotmentId: request.allotmentId };
    },
    async charge(lines, members = {}) {
      const journalId = members.journalId ?? 'gwy_a';
      const usedGeneration = members.generation ?? generation;
      await store.openJournal(journalId, usedGeneration);
      const expectedSeq = members.expectedSeq ?? (await store.appliedSeqs([journalId])).get(journalId) ?? 0;
      const charges = lines.map((line, index) => chargeOf({ seq: expectedSeq + index + 1, ...line }));
      const toSeq = charges.at(-1)?.seq ?? expectedSeq + 1;
      return store.applyCharges({
        journalId,
        generation: usedGeneration,
        expectedSeq,
        toSeq,
        charges,
        ...members,
      });
    },
    async account(userId) {
      const [row] = await sql<
        Balance[]
      >`select posted, held, owed from gateway.credits_accounts where account_id = ${userId}`;
      if (row === undefined) throw new Error('This user has no account.');
      return { ...row };
    },
    async keyRow(tokenId) {
      const [row] = await sql<
        { spent: bigint; held: bigint }[]
      >`select spent, held from gateway.credits_keys where token_id = ${tokenId}`;
      if (row === undefined) throw new Error('There is no such key.');
      return { ...row };
    },
    async advance(ms) {
      const seconds = ms / 1_000;
      await sql`update gateway.credits_allotments set lease_until = lease_until - make_interval(secs => ${seconds}), ended_at = ended_at - make_interval(secs => ${seconds})`;
      await sql`update gateway.credits_recalls set created_at = created_at - make_interval(secs => ${seconds})`;
    },
    takeBack: (userId, amount) =>
      place.database.tx((tx) =>
        credits.takeBack(tx, {
          userId,
          kind: 'refund',
          ref: id('pay'),
          credits: amount,
          reason: 'refunded',
          partial: true,
        }),
      ),
    mismatches: async () =>
      (await verifyLedger(credits, 400)).faults.map(({ fault, row }) => `${fault} ${row}`).sort(),
    close: () => place.close(),
  };
}

/**
 * Replaces the function that returns the start of the database server. The test server started less than a
 * minute ago, so no allotment could be taken back.
 */
export async function startServerAt(sql: Sql, time: string): Promise<void> {
  await sql.unsafe(
    `create or replace function gateway.credits_server_start() returns timestamptz language sql stable as $$ select ${time === 'now' ? 'now()' : `'${time}'::timestamptz`} $$`,
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
