// The throughput of the ledger: pairs of hold and settle per second at 100 accounts and at one, through the
// batches that a gateway uses, compared with bare single-row inserts that commit one by one on the same pool.
// Exits with 1 below the targets of 1,500 pairs/s and 400 pairs/s. Rounds alternate, so that other work on
// the machine affects all measurements alike.
//
//  node test/bench/ledger.ts [SECONDS=5] [ROUNDS=3] [CONCURRENCY=100]  # its own PostgreSQL
//  BENCH_ENGINE=embedded node test/bench/ledger.ts …  # the embedded engine; it has no target
//  BENCH_DATABASE_URL=postgres://… node test/bench/ledger.ts …  # an existing empty database
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
  type LedgerVerdict,
} from '../../src/gateway/credits/index.ts';
import type { UsageFacts } from '../../src/gateway/usage/index.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { connect, type Database } from '../../src/kernel/data/database.ts';
import { id } from '../../src/kernel/ids.ts';
import { startServer } from '../support/postgres-server.ts';
import { migrateAll, silentLog } from '../support/template.ts';
import { median, quantile } from './statistics.ts';

const [seconds = 5, rounds = 3, concurrency = 100] = process.argv.slice(2).map(Number);
const targets = { many: 1_500, hot: 400 };
const isEmbedded = process.env['BENCH_ENGINE'] === 'embedded';
const databaseUrl = process.env['BENCH_DATABASE_URL'];

const facts: UsageFacts = {
  action: 'text',
  model: 'acme/fast',
  provider: 'acme',
  units: {},
  outcome: 'completed',
  estimated: false,
  ttftMs: 12,
  durationMs: 34,
  tokens: { input: 100, cachedInput: 0, cacheWrite: 0, output: 50, reasoning: 0 },
};

interface Measurement {
  perSecond: number;
  /** Latency of one pair, or of one insert. */
  p50Ms: number;
  p99Ms: number;
}

async function measure(work: (worker: number) => Promise<unknown>): Promise<Measurement> {
  const durationsMs: number[] = [];
  const startMs = performance.now();
  const endMs = startMs + seconds * 1_000;
  await Promise.all(
    Array.from({ length: concurrency }, async (_, worker) => {
      while (performance.now() < endMs) {
        const callStartMs = performance.now();
        await work(worker);
        durationsMs.push(performance.now() - callStartMs);
      }
    }),
  );
  const toTenths = (ms: number) => Math.round(ms * 10) / 10;
  return {
    perSecond: Math.round(durationsMs.length / ((performance.now() - startMs) / 1_000)),
    p50Ms: toTenths(median(durationsMs)),
    p99Ms: toTenths(quantile(durationsMs, 0.99)),
  };
}

async function holdAndSettle(ledger: Credits['ledger'], userId: string): Promise<void> {
  const hold = await ledger.hold(
    {
      requestId: id('req'),
      userId,
      bureauId: 'local',
      tokenId: 'tok_bench',
      action: 'text',
      model: 'acme/fast',
      provider: 'acme',
    },
    100n,
  );
  await hold.settle(40n, facts);
}

async function createUsers({ sql, tx }: Database, { balances }: Credits, count: number): Promise<string[]> {
  await sql`
    insert into gateway.bureaus_records (bureau_id, name, server_url)
    values ('local', 'Local', 'http://127.0.0.1') on conflict do nothing`;
  const users = Array.from({ length: count }, () => id('usr'));
  for (const userId of users) {
    await sql`insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, 'local')`;
    await tx((transaction) =>
      balances.post(transaction, {
        userId,
        kind: 'grant',
        ref: userId,
        credits: 10n ** 12n,
        reason: 'bench',
      }),
    );
  }
  return users;
}

function openCredits(database: Database, journalPath: string): Credits {
  return credits({
    store: creditsStore(database),
    allotmentStore: sqlAllotmentStore(database),
    journal: settlementJournal(journalPath),
    journals: journalDirectory({ path: journalPath, log: silentLog }),
    users: { findUser: async () => null, endedTokens: async () => [] },
    audit: { record: async () => undefined },
    usage: { total: async () => ({ credits: 0n }) },
    log: silentLog,
    clock: systemClock,
    isAlone: isEmbedded,
    startingCredits: 0n,
    retentionDays: 400,
  });
}

type Rates = Record<'floor' | 'many' | 'hot', number[]>;

/**
 * Measures single-row inserts, pairs of a hundred accounts and pairs of one account, in alternating rounds.
 */
async function measureRounds({ sql }: Database, { ledger }: Credits, users: string[]): Promise<Rates> {
  const [busyUser = '', ...otherUsers] = users;
  await sql`
    create table public.bench_floor (
      n bigint generated always as identity primary key, worker integer not null)`;
  const randomUser = (): string => otherUsers[Math.floor(Math.random() * otherUsers.length)] ?? busyUser;
  const workloads = {
    floor: async (worker: number) => sql`insert into public.bench_floor (worker) values (${worker})`,
    many: () => holdAndSettle(ledger, randomUser()),
    hot: () => holdAndSettle(ledger, busyUser),
  };
  const rates: Rates = { floor: [], many: [], hot: [] };
  for (let round = 1; round <= rounds; round += 1) {
    for (const name of ['floor', 'many', 'hot'] as const) {
      const { perSecond, p50Ms, p99Ms } = await measure(workloads[name]);
      rates[name].push(perSecond);
      const rate = `${name.padEnd(5)} ${String(perSecond).padStart(6)}/s`;
      console.log(`round ${round}: ${rate}, p50 ${p50Ms} ms, p99 ${p99Ms} ms`);
    }
  }
  return rates;
}

/** Returns whether the ledger agrees with itself and the pairs reach their targets. */
async function bench(database: Database, journalPath: string): Promise<boolean> {
  await migrateAll(database);
  const service = openCredits(database, journalPath);
  await service.start();
  const users = await createUsers(database, service, 101);
  const rates = await measureRounds(database, service, users);
  const verdict: LedgerVerdict = await service.verify();
  await service.close();
  const [inserts, pairs, hotPairs] = [median(rates.floor), median(rates.many), median(rates.hot)];
  console.log(
    `${database.engine}, ${concurrency} calls at once: floor ${inserts} inserts/s; ` +
      `100 accounts ${pairs} pairs/s (target ${targets.many}); ` +
      `one account ${hotPairs} pairs/s (target ${targets.hot})`,
  );
  const agreement = verdict.ok ? 'agrees' : 'DOES NOT AGREE';
  console.log(
    `${verdict.holds} holds, ${verdict.transactions} transactions; the ledger ${agreement} with itself`,
  );
  return verdict.ok && (isEmbedded || (pairs >= targets.many && hotPairs >= targets.hot));
}

const folder = await mkdtemp(join(tmpdir(), 'townhall-ledger-bench-'));
const server = isEmbedded || databaseUrl !== undefined ? undefined : await startServer();
let meetsTargets = false;
try {
  const database = await connect(
    isEmbedded ? { path: join(folder, 'townhall.db') } : { url: databaseUrl ?? server?.url ?? '' },
    { log: silentLog },
  );
  try {
    meetsTargets = await bench(database, join(folder, 'journal'));
  } finally {
    await database.close();
  }
} finally {
  await server?.stop();
  await rm(folder, { recursive: true, force: true });
}
console.log(meetsTargets ? 'targets met' : 'targets missed');
process.exit(meetsTargets ? 0 : 1);
