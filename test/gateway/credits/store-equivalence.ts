// Runs the same random operations on the real SQL statements and on the model of the allotment
// store with which the simulation tests the ledger. After each operation, the answers and all rows
// must be the same, so that what the simulation shows is true for the statements too. `npm test`
// runs 300 operations, `npm run test:long` 10,000.
import { expect } from 'vitest';
import { sqlAllotmentStore } from '../../../src/gateway/credits/allotments/sql-store.ts';
import type {
  AllotmentStore,
  AllotRequest,
  AllotResult,
  AllotmentReport,
  ChargeBatch,
  GiveBackRequest,
  RecallRequest,
} from '../../../src/gateway/credits/allotments/store.ts';
import { creditsStore, verifyLedger, type CreditsStore } from '../../../src/gateway/credits/index.ts';
import type { Database, Sql } from '../../../src/kernel/data/database.ts';
import { testDatabase } from '../../support/databases.ts';
import { seededRandom, type Random } from '../../simulation/random.ts';
import { StoreModel, type StoredAllotment } from '../../simulation/store-model.ts';
import { chargeOf, startServerAt } from './allotments-world.ts';
import { callOf, ensureLocalBureau, facts, retentionDays } from './world.ts';

const epochMs = Date.UTC(2026, 0, 1);
// Without effect: no operation here recovers holds whose lease has expired.
const holdLeaseMs = 3_600_000;
const gateways = ['gwy_a', 'gwy_b', 'gwy_c'];
const users = ['usr_a', 'usr_b', 'usr_c'];
const tokens = users.flatMap((userId) => [
  { userId, tokenId: `tok_${userId}_free`, cap: null },
  { userId, tokenId: `tok_${userId}_key`, cap: 600n },
  { userId, tokenId: `tok_${userId}_small`, cap: 90n },
]);

/** The model and the real store, on which the same operations run. */
interface Pair {
  model: StoreModel;
  store: AllotmentStore;
  credits: CreditsStore;
  database: Database;
  random: Random;
  /** The next unique number for an id. */
  next(): string;
  advance(ms: number): Promise<void>;
}

/**
 * Runs this many random operations on a new model and a new database; resolves with what `verify` finds
 * at the end. Set EQUIVALENCE_SEED to repeat a failure.
 */
export async function compareStores(operations: number): Promise<string[]> {
  const place = await testDatabase();
  const seed = Number(process.env['EQUIVALENCE_SEED'] ?? Date.now() % 1_000_000);
  const pair = await startPair(place.database, seed);
  try {
    for (let step = 0; step < operations; step += 1) {
      const operation = pair.random.pick(weightedOperations);
      const label = `seed ${seed}, step ${step}, ${operation.name}`;
      const [expected, actual] = await operation(pair);
      expect(actual, label).toEqual(expected);
      expect(await readRows(place.database.sql), label).toEqual(modelRows(pair.model));
    }
    return (await verifyLedger(pair.credits, retentionDays)).faults.map(
      ({ fault, row }) => `${fault} ${row}`,
    );
  } finally {
    await restoreClock(place.database.sql);
    await place.close();
  }
}

async function startPair(database: Database, seed: number): Promise<Pair> {
  const { sql } = database;
  const [store, credits] = [sqlAllotmentStore(database), creditsStore(database)];
  let nowMs = 0;
  let count = 0;
  await sql.unsafe(`
    create table gateway.credits_test_clock (now timestamptz not null);
    insert into gateway.credits_test_clock values (to_timestamp(${epochMs / 1_000}));
    alter function gateway.credits_clock() rename to credits_real_clock;
    create function gateway.credits_clock() returns timestamptz
      language sql volatile as $$ select now from gateway.credits_test_clock $$`);
  await startServerAt(sql, '-infinity');
  const model = new StoreModel({ generation: await store.generation(), nowMs: () => nowMs });
  await ensureLocalBureau(sql);
  for (const userId of users) {
    model.addUser(
      userId,
      tokens.filter((token) => token.userId === userId),
      1_000n,
    );
    await sql`insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, 'local')`;
    await post({ database, credits }, userId, 1_000n, 'start');
  }
  for (const token of tokens) await database.tx((tx) => credits.openKey(tx, token));
  for (const gatewayId of gateways) {
    model.openJournal(gatewayId, model.generationId);
    await store.openJournal(gatewayId, model.generationId);
  }
  return {
    model,
    store,
    credits,
    database,
    random: seededRandom(seed),
    next: () => String((count += 1)).padStart(6, '0'),
    async advance(ms) {
      nowMs += ms;
      await sql`update gateway.credits_test_clock set now = now + make_interval(secs => ${ms / 1_000})`;
    },
  };
}

/** With the embedded engine, the next test uses the same database. */
async function restoreClock(sql: Sql): Promise<void> {
  await sql.unsafe(`
    drop function gateway.credits_clock();
    alter function gateway.credits_real_clock() rename to credits_clock;
    drop table gateway.credits_test_clock`);
}

function post(
  { database, credits }: Pick<Pair, 'database' | 'credits'>,
  userId: string,
  amount: bigint,
  ref: string,
): Promise<boolean | null> {
  return database.tx((tx) =>
    credits.post(tx, { userId, kind: 'grant', ref: `${userId} ${ref}`, credits: amount, reason: '' }),
  );
}

/** Runs on the model and on the real store; returns both answers. */
type Operation = (pair: Pair) => Promise<[expected: unknown, actual: unknown]>;

// Frequent operations are listed several times.
const weightedOperations: readonly Operation[] = [
  allot,
  allot,
  allot,
  allot,
  giveBack,
  giveBack,
  giveBack,
  renew,
  recall,
  recall,
  flags,
  report,
  askReports,
  close,
  compareAffordable,
  applyCharges,
  applyCharges,
  applyCharges,
  repeatCharges,
  takeBackExpired,
  addCredits,
  takeCredits,
  hold,
  settleHold,
  read,
  balance,
  wait,
];

async function allot(pair: Pair): Promise<[unknown, unknown]> {
  const request = allotRequest(pair);
  const answer = normalizeAllot(pair.model.allot(request));
  return [answer, normalizeAllot(await pair.store.allot(request))];
}

function allotRequest({ model, random, next }: Pair): AllotRequest {
  const { userId, tokenId } = random.pick(tokens);
  const need = BigInt(random.between(0, random.chance(0.2) ? 700 : 80));
  const base = {
    generation: random.chance(0.02) ? '00000000-0000-4000-8000-000000000000' : model.generationId,
    bureauId: 'local',
    need,
    want: need + BigInt(random.between(0, 100)),
    leaseMs: random.between(5_000, 20_000),
  };
  const openAllotments = [...model.allotments.values()];
  const endedIds = [...model.endedIds].slice(-20);
  if (endedIds.length > 0 && random.chance(0.03))
    return { ...base, allotmentId: random.pick(endedIds), version: 0, gatewayId: 'gwy_a', userId, tokenId };
  if (openAllotments.length > 0 && random.chance(0.5)) {
    const row = random.pick(openAllotments);
    return {
      ...base,
      allotmentId: row.allotmentId,
      version: row.version + (random.chance(0.1) ? -1 : 0),
      gatewayId: random.chance(0.03) ? random.pick(gateways) : row.gatewayId,
      userId: row.userId,
      tokenId: row.tokenId,
      ticket: ticketOf(model, random, row),
    };
  }
  const requester = { gatewayId: random.pick(gateways), userId, tokenId };
  return {
    ...base,
    ...requester,
    allotmentId: `alt_${next()}`,
    version: random.chance(0.03) ? 2 : 0,
    ticket: ticketOf(model, random, requester),
  };
}

function ticketOf(
  model: StoreModel,
  random: Random,
  { gatewayId, tokenId }: Pick<RecallRequest, 'gatewayId' | 'tokenId'>,
): string | undefined {
  const ownTickets = [...model.tickets.values()].filter(
    (ticket) => ticket.gatewayId === gatewayId && ticket.tokenId === tokenId,
  );
  return ownTickets.length > 0 && random.chance(0.7) ? random.pick(ownTickets).ticket : undefined;
}

/** Omits the numbers of an answer `gone`, which its receivers ignore. */
function normalizeAllot(result: AllotResult): Partial<AllotResult> {
  return result.outcome === 'gone' ? { outcome: 'gone', row: result.row } : result;
}

async function giveBack({ model, store, random }: Pair): Promise<[unknown, unknown]> {
  const rows = [...model.allotments.values()].filter(() => random.chance(0.3));
  const requests: GiveBackRequest[] = rows.map(({ allotmentId, version, amount, charged, recall }) => ({
    allotmentId,
    version: version - (random.chance(0.1) ? 1 : 0),
    amount: BigInt(random.between(0, Number(amount) + 10)),
    ...(random.chance(0.7) && { charged: charged - BigInt(random.between(0, 8)) }),
    ...(random.chance(0.7) && { recall: recall - BigInt(random.between(0, 1)) }),
    end: random.chance(0.3),
  }));
  const endedIds = [...model.endedIds].slice(-1);
  requests.push(...endedIds.map((allotmentId) => ({ allotmentId, version: 1, amount: 0n, end: true })));
  return [model.giveBack(requests), await store.giveBack(requests)];
}

async function renew({ model, store, random }: Pair): Promise<[unknown, unknown]> {
  const gatewayId = random.pick(gateways);
  const reports = [...model.allotments.values()]
    .filter(() => random.chance(0.7))
    .map((row) => reportOf(row, random));
  const leaseMs = random.between(5_000, 20_000);
  const byId = (rows: readonly { allotmentId: string }[]) =>
    rows.toSorted((a, b) => a.allotmentId.localeCompare(b.allotmentId));
  return [
    byId(model.renew(gatewayId, reports, leaseMs)),
    byId(await store.renew(gatewayId, reports, leaseMs)),
  ];
}

function reportOf(
  { allotmentId, amount, charged, report: number }: StoredAllotment,
  random: Random,
): AllotmentReport {
  return {
    allotmentId,
    reserved: BigInt(random.between(0, Number(amount) + 5)),
    unapplied: BigInt(random.between(0, Number(amount))),
    ...(random.chance(0.7) && { charged: charged - BigInt(random.between(0, 8)) }),
    ...(random.chance(0.7) && { number: number + BigInt(random.between(-1, 2)) }),
  };
}

async function report({ model, store, random }: Pair): Promise<[unknown, unknown]> {
  const gatewayId = random.pick(gateways);
  const reports = [...model.allotments.values()]
    .filter(() => random.chance(0.3))
    .map((row) => reportOf(row, random));
  const answerNumber = random.chance(0.5) ? random.between(0, 5) : null;
  return [
    model.report(gatewayId, reports, answerNumber),
    await store.report(gatewayId, reports, answerNumber),
  ];
}

async function askReports({ model, store, random }: Pair): Promise<[unknown, unknown]> {
  const gatewayId = random.chance(0.9) ? random.pick(gateways) : null;
  const userId = random.chance(0.7) ? random.pick(users) : null;
  const expected = [model.askReports(gatewayId, userId), model.answeredReports(gateways)];
  return [expected, [await store.askReports(gatewayId, userId), await store.answeredReports(gateways)]];
}

async function recall({ model, store, random, next }: Pair): Promise<[unknown, unknown]> {
  const { userId, tokenId } = random.pick(tokens);
  const openTickets = [...model.tickets.values()];
  const request: RecallRequest =
    openTickets.length > 0 && random.chance(0.1)
      ? random.pick(openTickets)
      : {
          ticket: `tkt_${next()}`,
          gatewayId: random.pick(gateways),
          userId,
          tokenId,
          need: BigInt(random.between(0, 400)),
        };
  return [model.recall(request), await store.recall(request)];
}

async function flags({ model, store, random }: Pair): Promise<[unknown, unknown]> {
  const gatewayId = random.pick(gateways);
  const { rows, reportAsked } = model.flags(gatewayId);
  const expected = { rows: rows.toSorted((a, b) => (a.allotmentId < b.allotmentId ? -1 : 1)), reportAsked };
  return [expected, await store.flags(gatewayId)];
}

async function close({ model, store, random }: Pair): Promise<[unknown, unknown]> {
  const { userId, tokenId } = random.pick(tokens);
  const drawWiderScope = () => (random.chance(0.9) ? { userId } : { bureauId: 'local' });
  const scope = random.chance(0.5) ? { tokenId } : drawWiderScope();
  return [model.close(scope), await store.close(scope)];
}

async function compareAffordable({ model, store, random }: Pair): Promise<[unknown, unknown]> {
  const { userId, tokenId } = random.pick(tokens);
  const request = { gatewayId: random.pick(gateways), userId, tokenId };
  return [model.affordable(request), await store.affordable(request)];
}

async function applyCharges(pair: Pair): Promise<[unknown, unknown]> {
  const batch = chargeBatch(pair);
  return [sortRows(pair.model.applyCharges(batch)), sortRows(await pair.store.applyCharges(batch))];
}

/** Applies a batch twice, and then one of its usage ids again in a later batch. */
async function repeatCharges(pair: Pair): Promise<[unknown, unknown]> {
  const batch = chargeBatch(pair);
  const [line] = batch.charges;
  const laterBatch = {
    ...batch,
    expectedSeq: batch.toSeq,
    toSeq: batch.toSeq + 1,
    charges: line === undefined ? [] : [{ ...line, seq: batch.toSeq + 1 }],
  };
  const batches = [batch, batch, laterBatch];
  const expected = batches.map((batch) => sortRows(pair.model.applyCharges(batch)));
  const actual = [];
  for (const batch of batches) actual.push(sortRows(await pair.store.applyCharges(batch)));
  return [expected, actual];
}

function sortRows<T extends { rows: readonly { allotmentId: string }[] }>(result: T): T {
  return { ...result, rows: result.rows.toSorted((a, b) => (a.allotmentId < b.allotmentId ? -1 : 1)) };
}

function chargeBatch({ model, random, next }: Pair): ChargeBatch {
  const journalId = random.pick(gateways);
  const appliedSeq = model.journals.get(journalId)?.appliedSeq ?? 0;
  const openAllotments = [...model.allotments.values()];
  const endedIds = [...model.endedIds].slice(-20);
  const size = random.between(0, 12);
  let seq = appliedSeq;
  const charges = Array.from({ length: size }, () => {
    seq += random.between(1, 3);
    const row = openAllotments.length > 0 && random.chance(0.85) ? random.pick(openAllotments) : null;
    const { userId, tokenId } = row ?? random.pick(tokens);
    const isFree = row === null && random.chance(0.2);
    const credits = random.between(0, random.chance(0.1) ? 200 : 20);
    return chargeOf({
      seq,
      usageId: `use_c${next()}`,
      call: { ...callOf(userId, { tokenId }), ...(isFree && { userId: null, bureauId: null }) } as ReturnType<
        typeof callOf
      >,
      allotmentId:
        row?.allotmentId ??
        (!isFree && endedIds.length > 0 && random.chance(0.7) ? random.pick(endedIds) : null),
      credits: BigInt(credits),
      covered: random.chance(0.5) ? BigInt(random.between(0, credits)) : undefined,
      facts: facts(),
    });
  });
  const reports = openAllotments.filter(() => random.chance(0.3)).map((row) => reportOf(row, random));
  return {
    journalId: random.chance(0.02) ? 'gwy_unknown' : journalId,
    generation: random.chance(0.02) ? '00000000-0000-4000-8000-000000000000' : model.generationId,
    expectedSeq: random.chance(0.03) ? appliedSeq + 1 : appliedSeq,
    toSeq: seq + random.between(0, 2),
    charges,
    ...(random.chance(0.5) && { reports }),
  };
}

async function takeBackExpired({ model, store }: Pair): Promise<[unknown, unknown]> {
  const allotments = model
    .takeBackExpired(1_000)
    .toSorted((a, b) => (a.allotmentId < b.allotmentId ? -1 : 1));
  return [allotments, await store.takeBackExpired(1_000)];
}

async function addCredits(pair: Pair): Promise<[unknown, unknown]> {
  const userId = pair.random.pick(users);
  const amount = BigInt(pair.random.between(0, 300));
  pair.model.post(userId, amount);
  return [true, await post(pair, userId, amount, pair.next())];
}

async function takeCredits({ model, random, database, credits, next }: Pair): Promise<[unknown, unknown]> {
  const userId = random.pick(users);
  const [amount, isPartial] = [BigInt(random.between(0, 250)), random.chance(0.5)];
  const ref = next();
  const result = await database.tx((tx) =>
    credits.takeBack(tx, { userId, kind: 'refund', ref, credits: amount, reason: '', partial: isPartial }),
  );
  return [model.takeBack(userId, amount, isPartial), result?.taken];
}

async function hold({ model, random, credits, next }: Pair): Promise<[unknown, unknown]> {
  const { userId, tokenId } = random.pick(tokens);
  const [holdId, amount] = [`hld_${next()}`, BigInt(random.between(1, 60))];
  const call = callOf(userId, { tokenId });
  const [verdict] = await credits.apply(
    [{ kind: 'hold', holdId, accountId: userId, call, amount, isSent: true }],
    holdLeaseMs,
  );
  return [model.hold({ holdId, userId, tokenId, amount }) ? 'held' : 'short', verdict?.verdict];
}

async function settleHold({ model, random, credits }: Pair): Promise<[unknown, unknown]> {
  const holds = [...model.holds.values()];
  if (holds.length === 0) return [null, null];
  const { holdId, userId } = random.pick(holds);
  const price = BigInt(random.between(0, 90));
  const [verdict] = await credits.apply(
    [
      {
        kind: 'settle',
        holdId,
        accountId: userId,
        credits: price,
        facts: facts(),
        answer: null,
        isHeldOnly: false,
      },
    ],
    holdLeaseMs,
  );
  return [model.settleHold(holdId, price), verdict?.amount];
}

async function read({ model, store, random }: Pair): Promise<[unknown, unknown]> {
  const ids = [...model.allotments.keys(), ...[...model.endedIds].slice(-5)].filter(() => random.chance(0.5));
  return [
    model.read(ids).toSorted((a, b) => (a.allotmentId < b.allotmentId ? -1 : 1)),
    await store.read(ids),
  ];
}

async function balance({ model, credits, random }: Pair): Promise<[unknown, unknown]> {
  const userId = random.pick(users);
  const account = await credits.findAccount(userId);
  return [
    model.balance(userId),
    account === null ? null : { posted: account.posted, held: account.held, owed: account.owed },
  ];
}

async function wait({ random, advance }: Pair): Promise<[unknown, unknown]> {
  await advance(random.pick([100, 500, 1_000, 5_000, 20_000, 40_000, 60_000]));
  return [null, null];
}

/**
 * The rows of all tables that the model has, as `readRows` reads them from the database. Of the usage, the
 * model has that of charges, whose ids `chargeBatch` begins with `use_c`, and not that of holds.
 */
function modelRows(model: StoreModel): unknown {
  const sortedBy = <T>(rows: Iterable<T>, key: (row: T) => string): T[] =>
    [...rows].toSorted((a, b) => (key(a) < key(b) ? -1 : 1));
  return {
    accounts: sortedBy(model.accounts.values(), ({ userId }) => userId).map(
      ({ userId, posted, held: onHold, owed: debt }) => [userId, posted, onHold, debt].map(String),
    ),
    keys: sortedBy(model.keys.values(), ({ tokenId }) => tokenId).map(
      ({ tokenId, spent: credits, held: onHold }) => [tokenId, credits, onHold].map(String),
    ),
    allotments: sortedBy(model.allotments.values(), ({ allotmentId }) => allotmentId).map((row) =>
      [
        row.allotmentId,
        row.version,
        row.gatewayId,
        row.userId,
        row.tokenId,
        row.amount,
        row.reserved,
        row.unapplied,
        row.charged,
        row.report,
        row.recall,
        row.isRecalled,
        row.isClosed,
        row.leaseUntilMs,
      ].map(String),
    ),
    ended: model.endedIds.size,
    tickets: sortedBy(model.tickets.values(), ({ ticket }) => ticket).map((row) =>
      [row.ticket, row.gatewayId, row.userId, row.tokenId, row.need, row.isKeyOnly, row.createdMs].map(
        String,
      ),
    ),
    journals: sortedBy(model.journals, ([journalId]) => journalId).map(([journalId, row]) =>
      [journalId, row.appliedSeq, row.reportAsked, row.reportDone].map(String),
    ),
    usage: [
      model.usage.size,
      String([...model.usage.values()].reduce((sum, { charged }) => sum + charged, 0n)),
    ],
  };
}

async function readRows(sql: Sql): Promise<unknown> {
  const [row] = await sql<{ rows: unknown }[]>`
    select jsonb_build_object(
      'accounts', (select jsonb_agg(jsonb_build_array(
          account_id, posted::text, held::text, owed::text) order by account_id)
        from gateway.credits_accounts),
      'keys', (select jsonb_agg(jsonb_build_array(
          token_id, spent::text, held::text) order by token_id collate "C")
        from gateway.credits_keys),
      'allotments', (select coalesce(jsonb_agg(jsonb_build_array(
          allotment_id, version::text, gateway_id, account_id, token_id, amount::text, reserved::text,
          unapplied::text, charged::text, report::text, recall::text, is_recalled::text, is_closed::text,
          (extract(epoch from lease_until) * 1000 - ${epochMs}::bigint)::bigint::text
          ) order by allotment_id), '[]')
        from gateway.credits_allotments where ended_at is null),
      'ended', (select count(*) from gateway.credits_allotments where ended_at is not null),
      'tickets', (select coalesce(jsonb_agg(jsonb_build_array(
          ticket, gateway_id, account_id, token_id, need::text, is_key_only::text,
          (extract(epoch from created_at) * 1000 - ${epochMs}::bigint)::bigint::text) order by ticket), '[]')
        from gateway.credits_recalls),
      'journals', (select jsonb_agg(jsonb_build_array(
          journal_id, applied_seq::text, report_asked::text, report_done::text) order by journal_id)
        from gateway.credits_journals),
      'usage', (select jsonb_build_array(count(*), coalesce(sum(credits), 0)::text)
        from gateway.usage_records where usage_id like 'use_c%')) as rows`;
  return row?.rows;
}
