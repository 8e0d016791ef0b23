// Runs gateways on one PostgreSQL under load, while one of them is killed every 150 to 550 ms and
// the database is stopped at random without a shutdown. Every acknowledged charge must be in the
// ledger once, a call without an acknowledgement may be charged at most its bound, and the last
// gateway must give all credits back. Exits 1 otherwise. A worker process takes the role of a
// gateway and its provider; its acknowledgements take the role of answers to clients.
//
//  node test/fault-injection/ledger-crash.ts [SEED] [KILLS=40] [STOPS=5] [GATEWAYS=2]
//  FAULTS_ENGINE=embedded node test/fault-injection/ledger-crash.ts [SEED] [KILLS=40]
//
// The second form runs one process on the embedded engine.
import { type ChildProcess, fork } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Credits } from '../../src/gateway/credits/index.ts';
import { connect, type Database } from '../../src/kernel/data/database.ts';
import { id } from '../../src/kernel/ids.ts';
import { startServer, type PostgresServer } from '../support/postgres-server.ts';
import { kill } from '../support/processes.ts';
import { migrateAll, silentLog } from '../support/template.ts';
import { facts, openLedger, type LedgerLocation } from './ledger-worker.ts';
import { seededRandom } from './random.ts';

const isEmbedded = process.env['FAULTS_ENGINE'] === 'embedded';
// The allotments of a process without a journal are taken back a minute after its end, in a round that
// runs once a minute.
const releaseLimitMs = 150_000;
/** The bound of each call. */
const boundCredits = 100;
const startingCredits = 1_000_000_000;

/** A worker's messages: calls that it sends, charges that it acknowledges, and refused calls. */
type WorkerMessage =
  | { kind: 'sent' | 'acknowledged'; requestId: string; credits: number }
  | { kind: 'refused'; code: string };

if (process.argv[2] === 'work')
  await work(JSON.parse(process.argv[3] ?? '{}') as LedgerLocation & { userIds: string[] });
else await run();

/** Makes twenty calls at a time until it is killed. */
async function work({ userIds, ...location }: LedgerLocation & { userIds: string[] }): Promise<void> {
  const { service } = await openLedger(location);
  const callForever = async (): Promise<void> => {
    for (;;) {
      const userId = userIds[Math.floor(Math.random() * userIds.length)] as string;
      try {
        await makeCall(service, userId);
      } catch (error) {
        const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
        report({ kind: 'refused', code });
        await sleep(100);
      }
    }
  };
  await Promise.all(Array.from({ length: 20 }, callForever));
}

async function makeCall({ ledger }: Credits, userId: string): Promise<void> {
  const requestId = id('req');
  const call = {
    requestId,
    userId,
    bureauId: 'local',
    tokenId: `tok_of_${userId}`,
    action: 'text',
    model: 'acme/fast',
    provider: 'acme',
  };
  const reservation = await ledger.reserve(call, BigInt(boundCredits));
  reservation.markSent({ model: 'acme/fast', provider: 'acme', inputCredits: 10n, facts: {} });
  report({ kind: 'sent', requestId, credits: 0 });
  await sleep(Math.random() * 60);
  const price = BigInt(11 + Math.floor(Math.random() * 90));
  const { charged } = await reservation.settle(price, facts);
  report({ kind: 'acknowledged', requestId, credits: Number(charged) });
}

function report(message: WorkerMessage): void {
  process.send?.(message);
}

async function run(): Promise<void> {
  const [seed = Math.floor(Math.random() * 2 ** 31), kills = 40, ...shape] = process.argv
    .slice(2)
    .map(Number);
  const [stops = 5, gateways = 2] = isEmbedded ? [0, 1] : shape;
  console.log(`seed ${seed}: ${kills} kills, ${stops} stops of the database, ${gateways} gateways`);
  const random = seededRandom(seed);
  const folder = await mkdtemp(join(tmpdir(), 'townhall-ledger-crash-'));
  const server = isEmbedded ? null : await startServer();
  let hasPassed = false;
  try {
    hasPassed = await runStorm({ server, folder, random, kills, stops, gateways });
  } finally {
    await server?.stop();
    await rm(folder, { recursive: true, force: true });
  }
  console.log(hasPassed ? `passed, seed ${seed}` : `failed, seed ${seed}`);
  process.exit(hasPassed ? 0 : 1);
}

interface Storm {
  /** Null with the embedded engine. */
  server: PostgresServer | null;
  folder: string;
  random: () => number;
  kills: number;
  stops: number;
  gateways: number;
}

/** What the workers reported. */
interface Reports {
  sentIds: Set<string>;
  acknowledgedCredits: Map<string, number>;
  doubleAcknowledgements: number;
  refusals: Record<string, number>;
}

async function runStorm(options: Storm): Promise<boolean> {
  const { server, folder } = options;
  const location: LedgerLocation = {
    database: server === null ? { path: join(folder, 'townhall.db') } : { url: server.url },
    journal: join(folder, 'journal'),
  };
  const userIds = await makeUsers(location);
  const reports: Reports = {
    sentIds: new Set(),
    acknowledgedCredits: new Map(),
    doubleAcknowledgements: 0,
    refusals: {},
  };
  await killWorkers(options, () => startWorker(location, userIds, reports));
  const endedMs = performance.now();

  // The remaining gateway applies the journals of the others and ends their allotments.
  const { database, service } = await openLedger(location);
  try {
    const heldCredits = await waitForCredits(database, endedMs);
    const seconds = Math.round((performance.now() - endedMs) / 1_000);
    console.log(`${heldCredits} credits held after ${seconds} s`);
    const isCharged = await checkCharges(database, reports);
    const verdict = await service.verify();
    const consistency = verdict.ok ? 'is consistent' : 'IS NOT CONSISTENT';
    console.log(`the ledger ${consistency}: ${verdict.transactions} transactions`);
    if (!verdict.ok) console.log(verdict.faults.slice(0, 5));
    return isCharged && heldCredits === 0n && verdict.ok;
  } finally {
    await service.close();
    await database.close();
  }
}

async function makeUsers({ database: options }: LedgerLocation): Promise<string[]> {
  const userIds = Array.from({ length: 10 }, () => id('usr'));
  const database = await connect(options, { log: silentLog });
  const { sql } = database;
  await migrateAll(database);
  await sql`
    insert into gateway.bureaus_records (bureau_id, name, server_url)
    values ('local', 'Local', 'http://127.0.0.1')`;
  for (const userId of userIds) {
    await sql`insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, 'local')`;
    await sql`
      select gateway.credits_post(${userId}, 'grant', ${userId}, ${startingCredits}, 'for the storm')`;
  }
  await database.close();
  return userIds;
}

function startWorker(location: LedgerLocation, userIds: readonly string[], reports: Reports): ChildProcess {
  const child = fork(fileURLToPath(import.meta.url), ['work', JSON.stringify({ ...location, userIds })], {
    stdio: ['ignore', 'inherit', 'ignore', 'ipc'],
  });
  child.on('message', (message: WorkerMessage) => {
    const { refusals, sentIds, acknowledgedCredits } = reports;
    if (message.kind === 'refused') refusals[message.code] = (refusals[message.code] ?? 0) + 1;
    else if (message.kind === 'sent') sentIds.add(message.requestId);
    else {
      if (acknowledgedCredits.has(message.requestId)) reports.doubleAcknowledgements += 1;
      acknowledgedCredits.set(message.requestId, message.credits);
    }
  });
  return child;
}

/** Kills and restarts workers, and stops the database in between; kills all of them at the end. */
async function killWorkers(
  { server, random, kills, stops, gateways }: Storm,
  start: () => ChildProcess,
): Promise<void> {
  const children = Array.from({ length: gateways }, start);
  await sleep(1_500);
  const stopAt = new Set(
    Array.from({ length: stops }, (_, index) => Math.floor(((index + 1) * kills) / (stops + 1))),
  );
  for (let round = 0; round < kills; round += 1) {
    await sleep(150 + random() * 400);
    // The embedded engine takes a while to open. The kill must interrupt its work, not its start.
    if (server === null) await sleep(1_500);
    if (server !== null && stopAt.has(round)) {
      await server.crash();
      await sleep(500 + random() * 1_500);
      await server.startAgain();
    }
    const index = Math.floor(random() * gateways);
    await kill(children[index] as ChildProcess);
    children[index] = start();
  }
  await sleep(2_000);
  for (const child of children) await kill(child);
}

/**
 * Compares the usage records with the reports; false when a charge is missing, wrong or doubled.
 */
async function checkCharges(
  { sql }: Database,
  { sentIds, acknowledgedCredits, doubleAcknowledgements, refusals }: Reports,
): Promise<boolean> {
  const rows = await sql<{ requestId: string; credits: bigint; outcome: string }[]>`
    select request_id as "requestId", credits, outcome from gateway.usage_records`;
  const byId = new Map(rows.map((row) => [row.requestId, row]));
  const acknowledged = [...acknowledgedCredits];
  const lostCharges = acknowledged.filter(([requestId]) => !byId.has(requestId));
  const wrongCharges = acknowledged.filter(
    ([requestId, credits]) => byId.has(requestId) && byId.get(requestId)?.credits !== BigInt(credits),
  );
  const violations = {
    'acknowledged and not charged': lostCharges.length,
    'charged differently': wrongCharges.length,
    'acknowledged twice': doubleAcknowledgements,
    'charged twice': rows.length - byId.size,
    'above the bound': rows.filter(({ credits }) => credits > BigInt(boundCredits)).length,
  };
  const credits = acknowledged.reduce((sum, [, charged]) => sum + charged, 0);
  const estimates = rows.filter(({ outcome }) => outcome === 'upstream_failed');
  console.log(
    `${sentIds.size} calls, ${acknowledged.length} acknowledged charges of ${credits} credits, ` +
      `${estimates.length} charged by their estimates; refused ${JSON.stringify(refusals)}`,
  );
  console.log(
    Object.entries(violations)
      .map(([name, count]) => `${name} ${count}`)
      .join(', '),
  );
  return acknowledged.length > 0 && Object.values(violations).every((count) => count === 0);
}

/** Waits until no credits are held, for the time limit at most, and returns the held credits. */
async function waitForCredits({ sql }: Database, endedMs: number): Promise<bigint> {
  for (;;) {
    const [row] = await sql<{ held: bigint }[]>`
      select coalesce(sum(held), 0)::bigint as held from gateway.credits_accounts`;
    const credits = row?.held ?? 0n;
    if (credits === 0n || performance.now() - endedMs > releaseLimitMs) return credits;
    await sleep(500);
  }
}
