// Gateways on one PostgreSQL under load, while one of them is killed every 150 to 550 ms and the
// database is stopped at random without a shutdown. Every acknowledged charge must be in the ledger
// once; a call without an acknowledgement is charged at most its bound; and the last gateway gives
// all credits back. Exits 1 otherwise. A worker stands for a gateway and its provider: its
// acknowledgements stand for the answers to clients.
//
//  node test/fault-injection/ledger-crash.ts [SEED] [KILLS=40] [STOPS=5] [GATEWAYS=2]
//  FAULTS_ENGINE=embedded node test/fault-injection/ledger-crash.ts [SEED] [KILLS=40]  # one process, embedded engine
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connect, type Database } from '../../src/kernel/data/database.ts';
import { id } from '../../src/kernel/ids.ts';
import { startServer, type PostgresServer } from '../support/postgres-server.ts';
import { migrateAll, silentLog } from '../support/template.ts';
import { facts, openLedger, type WorkerPlace } from './ledger-worker.ts';

const isEmbedded = process.env['FAULTS_ENGINE'] === 'embedded';
// A process without a journal has its allotments taken back a minute after its end, in a round that
// runs once a minute.
const boundMs = 150_000;
const boundCredits = 100;

/** A worker's messages: calls that it sends, and charges that it acknowledged. */
type Told =
  | { kind: 'sent' | 'acknowledged'; requestId: string; credits: number }
  | { kind: 'refused'; code: string };

if (process.argv[2] === 'work')
  await work(JSON.parse(process.argv[3] ?? '{}') as WorkerPlace & { userIds: string[] });
else await run();

/** Makes twenty calls at a time until it is killed. */
async function work({ userIds, ...place }: WorkerPlace & { userIds: string[] }): Promise<void> {
  const { service } = await openLedger(place);
  const report = (message: Told): void => void process.send?.(message);
  await Promise.all(
    Array.from({ length: 20 }, async () => {
      for (;;) {
        try {
          const userId = userIds[Math.floor(Math.random() * userIds.length)] as string;
          const requestId = id('req');
          const reservation = await service.ledger.reserve(
            {
              requestId,
              userId,
              bureauId: 'local',
              tokenId: `tok_of_${userId}`,
              action: 'text',
              model: 'acme/fast',
              provider: 'acme',
            },
            BigInt(boundCredits),
          );
          reservation.markSent({ model: 'acme/fast', provider: 'acme', inputCredits: 10n, facts: {} });
          report({ kind: 'sent', requestId, credits: 0 });
          await sleep(Math.random() * 60);
          const price = BigInt(11 + Math.floor(Math.random() * 90));
          const { charged } = await reservation.settle(price, facts);
          report({ kind: 'acknowledged', requestId, credits: Number(charged) });
        } catch (error) {
          report({
            kind: 'refused',
            code: error instanceof Error && 'code' in error ? String(error.code) : String(error),
          });
          await sleep(100);
        }
      }
    }),
  );
}

async function run(): Promise<void> {
  const [seed = Math.floor(Math.random() * 2 ** 31), kills = 40, ...shape] = process.argv
    .slice(2)
    .map(Number);
  const [stops = 5, gateways = 2] = isEmbedded ? [0, 1] : shape;
  console.log(`seed ${seed}: ${kills} kills, ${stops} stops of the database, ${gateways} gateways`);
  const random = createRandom(seed);
  const folder = await mkdtemp(join(tmpdir(), 'townhall-ledger-crash-'));
  const server = isEmbedded ? null : await startServer();
  let isHeld = false;
  try {
    isHeld = await storm({ server, folder, random, kills, stops, gateways });
  } finally {
    await server?.stop();
    await rm(folder, { recursive: true, force: true });
  }
  console.log(isHeld ? `held, seed ${seed}` : `broken, seed ${seed}`);
  process.exit(isHeld ? 0 : 1);
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

async function storm({ server, folder, random, kills, stops, gateways }: Storm): Promise<boolean> {
  const place: WorkerPlace = {
    database: server === null ? { path: join(folder, 'townhall.db') } : { url: server.url },
    journal: join(folder, 'journal'),
  };
  const userIds = Array.from({ length: 10 }, () => id('usr'));
  const setupDatabase = await connect(place.database, { log: silentLog });
  await migrateAll(setupDatabase);
  await setupDatabase.sql`insert into gateway.bureaus_records (bureau_id, name, server_url) values ('local', 'Local', 'http://127.0.0.1')`;
  for (const userId of userIds) {
    await setupDatabase.sql`insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, 'local')`;
    await setupDatabase.sql`select gateway.credits_post(${userId}, 'grant', ${userId}, 1000000000, 'for the storm')`;
  }
  await setupDatabase.close();

  const acknowledgedCredits = new Map<string, number>();
  const sentIds = new Set<string>();
  const refusals: Record<string, number> = {};
  let doubleCharges = 0;
  const spawn = (): ChildProcess => {
    const child = fork(fileURLToPath(import.meta.url), ['work', JSON.stringify({ ...place, userIds })], {
      stdio: ['ignore', 'inherit', 'ignore', 'ipc'],
    });
    child.on('message', (message: Told) => {
      if (message.kind === 'refused') refusals[message.code] = (refusals[message.code] ?? 0) + 1;
      else if (message.kind === 'sent') sentIds.add(message.requestId);
      else {
        if (acknowledgedCredits.has(message.requestId)) doubleCharges += 1;
        acknowledgedCredits.set(message.requestId, message.credits);
      }
    });
    return child;
  };
  const children = Array.from({ length: gateways }, spawn);
  await sleep(1_500);
  const stopAt = new Set(
    Array.from({ length: stops }, (_, n) => Math.floor(((n + 1) * kills) / (stops + 1))),
  );
  for (let kill = 0; kill < kills; kill += 1) {
    await sleep(150 + random() * 400);
    // The embedded engine takes a while to open; the kill has to hit it at work.
    if (server === null) await sleep(1_500);
    if (server !== null && stopAt.has(kill)) {
      await server.crash();
      await sleep(500 + random() * 1_500);
      await server.startAgain();
    }
    const gatewayIndex = Math.floor(random() * gateways);
    const victim = children[gatewayIndex] as ChildProcess;
    if (victim.exitCode === null && victim.signalCode === null) {
      victim.kill('SIGKILL');
      await once(victim, 'exit');
    }
    children[gatewayIndex] = spawn();
  }
  await sleep(2_000);
  for (const child of children) {
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
  const endedMs = performance.now();

  // The remaining gateway applies the journals of the others and ends their allotments.
  const { database, service } = await openLedger(place);
  try {
    const finalBalance = await waitForCredits(database, endedMs);
    const seconds = Math.round((performance.now() - endedMs) / 1_000);
    const rows = await database.sql<{ requestId: string; credits: bigint; outcome: string }[]>`
      select request_id as "requestId", credits, outcome from gateway.usage_records`;
    const byId = new Map(rows.map((row) => [row.requestId, row]));
    const lostIds = [...acknowledgedCredits.keys()].filter((requestId) => !byId.has(requestId));
    const wrongCalls = [...acknowledgedCredits].filter(
      ([requestId, credits]) => byId.has(requestId) && byId.get(requestId)?.credits !== BigInt(credits),
    );
    const repeatedRows = rows.length - byId.size;
    const excessiveRows = rows.filter(({ credits }) => credits > BigInt(boundCredits));
    const estimates = rows.filter(({ outcome }) => outcome === 'upstream_failed');
    const verdict = await service.verify();
    console.log(
      `${sentIds.size} calls, ${acknowledgedCredits.size} acknowledged charges, ${[...acknowledgedCredits.values()].reduce((a, b) => a + b, 0)} credits; refused ${JSON.stringify(refusals)}`,
    );
    console.log(
      `acknowledged and not charged ${lostIds.length}, charged otherwise ${wrongCalls.length}, acknowledged twice ${doubleCharges}, charged twice ${repeatedRows}, beyond the bound ${excessiveRows.length}`,
    );
    console.log(
      `${estimates.length} charged by their estimates; ${finalBalance} credits held after ${seconds} s`,
    );
    console.log(
      `the ledger ${verdict.ok ? 'agrees' : 'DOES NOT AGREE'} with itself: ${verdict.transactions} transactions`,
    );
    if (!verdict.ok) console.log(verdict.faults.slice(0, 5));
    return (
      lostIds.length + wrongCalls.length + doubleCharges + repeatedRows + excessiveRows.length === 0 &&
      finalBalance === 0n &&
      verdict.ok &&
      acknowledgedCredits.size > 0
    );
  } finally {
    await service.close();
    await database.close();
  }
}

/** Waits until no credits are held, for the time limit at most, and returns the held credits. */
async function waitForCredits({ sql }: Database, endedMs: number): Promise<bigint> {
  for (;;) {
    const [row] = await sql<{ held: bigint }[]>`
      select coalesce(sum(held), 0)::bigint as held from gateway.credits_accounts`;
    const credits = row?.held ?? 0n;
    if (credits === 0n || performance.now() - endedMs > boundMs) return credits;
    await sleep(500);
  }
}

/** mulberry32: small, and the same everywhere. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}
