// Checks that credits are spent exactly once, whatever the number of gateways: 1, 2 and 3 processes
// on one PostgreSQL, balances of 1, 100 and 500 credits, a price of 1 or 10 that is known in
// advance, 50 to 1,000 concurrent calls. Exactly floor(credits / price) calls must be granted; the
// others get 402, or 503 `credits_busy` while gateways recall credits. Then come prices that are
// known only after the call: the balance must never be overspent, and less than the bound of one
// call may remain. Exits 1 otherwise.
//
//  node test/fault-injection/ledger-matrix.ts [SEED]
//  FAULTS_ENGINE=embedded node test/fault-injection/ledger-matrix.ts [SEED]
//
// The first form runs on its own PostgreSQL, the second runs one process on the embedded engine.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Credits } from '../../src/gateway/credits/index.ts';
import { connect, type ConnectOptions, type Database } from '../../src/kernel/data/database.ts';
import { id } from '../../src/kernel/ids.ts';
import { startServer } from '../support/postgres-server.ts';
import { migrateAll, silentLog } from '../support/template.ts';
import { openLedger, runTask, type Task, type TaskResult, type LedgerLocation } from './ledger-worker.ts';
import { seededRandom } from './random.ts';

const seed = Number(process.argv[2] ?? Math.floor(Math.random() * 2 ** 31));
const isEmbedded = process.env['FAULTS_ENGINE'] === 'embedded';
const workerFile = fileURLToPath(new URL('./ledger-worker.ts', import.meta.url));
const random = seededRandom(seed);
const problems: string[] = [];
console.log(`seed ${seed}`);

type Run = (task: Task) => Promise<TaskResult>;

async function checkCell(
  runs: readonly Run[],
  ledger: { database: Database; service: Credits },
  shape: { credits: number; price: number; calls: number },
): Promise<void> {
  const { credits, price, calls } = shape;
  const userId = await makeUser(ledger, credits);
  const shares = split(calls, runs.length);
  const results = await Promise.all(
    runs.map((run, index) =>
      run({
        userIds: [userId],
        calls: shares[index] ?? 0,
        bound: price,
        price,
        slowMs: random() < 0.5 ? 0 : 30,
      }),
    ),
  );
  const grantedCount = sum(results.map((result) => result.granted));
  const busyCount = sum(results.map((result) => result.failed['credits_busy'] ?? 0));
  const refusals = sum(results.map((result) => result.refused)) + busyCount;
  const expected = Math.min(Math.floor(credits / price), calls);
  const failures = failuresOf(results);
  const { posted, held } = await waitForBalance(ledger, userId, credits - grantedCount * price);
  const isRight =
    grantedCount === expected &&
    refusals === calls - expected &&
    failures === '' &&
    (runs.length > 1 || busyCount === 0) &&
    posted === BigInt(credits - expected * price) &&
    held === 0n;
  const line =
    `${runs.length} gateways, ${credits} credits, price ${price}, ${calls} calls: ` +
    `${grantedCount} granted of ${expected}, ${refusals} refused (${busyCount} busy), ` +
    `balance ${posted}, held ${held}`;
  report(isRight, `${line}${failures}`);
}

/** Calls whose price is known only afterwards, in waves until none is granted. */
async function checkLatePrices(
  runs: readonly Run[],
  ledger: { database: Database; service: Credits },
  credits: number,
): Promise<void> {
  const bound = 10;
  const userId = await makeUser(ledger, credits);
  let [granted, charged, failures] = [0, 0, ''];
  for (let wave = 0, isSpent = false; !isSpent && wave < 200; wave += 1) {
    const results = await Promise.all(
      runs.map((run) => run({ userIds: [userId], calls: 20, bound, price: null, slowMs: 5 })),
    );
    granted += sum(results.map((result) => result.granted));
    charged += sum(results.map((result) => result.charged));
    failures += failuresOf(results);
    isSpent = results.every(
      ({ granted: count, failed }) => count === 0 && failed['credits_busy'] === undefined,
    );
  }
  const { posted, held } = await waitForBalance(ledger, userId, credits - charged);
  const isRight =
    failures === '' &&
    posted >= 0n &&
    posted < BigInt(bound) &&
    held === 0n &&
    posted === BigInt(credits - charged);
  const line =
    `${runs.length} gateways, ${credits} credits, prices of 1 to ${bound} known afterwards: ` +
    `${granted} granted, ${charged} charged, ${posted} remain`;
  report(isRight, `${line}${failures}`);
}

/**
 * Describes the calls that failed for reasons other than missing credits; empty when there are
 * none.
 */
function failuresOf(results: readonly TaskResult[]): string {
  return results
    .map(({ failed: { credits_busy: _busy, ...others } }) => JSON.stringify(others))
    .filter((text) => text !== '{}')
    .map((text) => `, failed ${text}`)
    .join('');
}

function report(isRight: boolean, line: string): void {
  console.log(`${isRight ? 'ok    ' : 'BROKEN'} ${line}`);
  if (!isRight) problems.push(line);
}

async function makeUser(
  { database, service }: { database: Database; service: Credits },
  credits: number,
): Promise<string> {
  const userId = id('usr');
  await database.sql`insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, 'local')`;
  await database.tx((tx) =>
    service.balances.post(tx, {
      userId,
      kind: 'grant',
      ref: userId,
      credits: BigInt(credits),
      reason: 'for the matrix',
    }),
  );
  return userId;
}

/**
 * Waits until all charges are applied and all idle credits are given back; returns the balance
 * then, or after 50 tries.
 */
async function waitForBalance(
  { service, database }: { service: Credits; database: Database },
  userId: string,
  expected: number,
): Promise<{ posted: bigint; held: bigint }> {
  for (let tries = 1; ; tries += 1) {
    await service.balances.recallIdle(userId);
    const balance = await readBalance(database, userId);
    if (tries === 50 || (balance.held === 0n && balance.posted === BigInt(expected))) return balance;
    await sleep(100);
  }
}

async function readBalance({ sql }: Database, userId: string): Promise<{ posted: bigint; held: bigint }> {
  const [row] = await sql<{ posted: bigint; held: bigint }[]>`
    select posted, held from gateway.credits_accounts where account_id = ${userId}`;
  if (row === undefined) throw new Error('The account is gone.');
  return row;
}

async function runMatrix(options: ConnectOptions, folder: string): Promise<void> {
  const location: LedgerLocation = { database: options, journal: join(folder, 'journal') };
  const setupDatabase = await connect(options, { log: silentLog });
  await migrateAll(setupDatabase);
  await setupDatabase.sql`
    insert into gateway.bureaus_records (bureau_id, name, server_url)
    values ('local', 'Local', 'http://127.0.0.1') on conflict do nothing`;
  await setupDatabase.close();
  const ledger = await openLedger(location);
  const children: ChildProcess[] = [];
  try {
    for (let count = 0; count < (isEmbedded ? 0 : 3); count += 1)
      children.push(fork(workerFile, ['serve', JSON.stringify(location)]));
    await Promise.all(children.map((child) => once(child, 'message')));
    const runs: Run[] = isEmbedded
      ? [(task) => runTask(ledger.service, task)]
      : children.map((child) => (task) => runInWorker(child, task));
    for (let gateways = 1; gateways <= runs.length; gateways += 1) {
      const runningGateways = runs.slice(0, gateways);
      for (const credits of [1, 100, 500]) {
        for (const price of [1, 10]) {
          for (const calls of [50, 51 + Math.floor(random() * 400), 1_000])
            await checkCell(runningGateways, ledger, { credits, price, calls });
        }
        await checkLatePrices(runningGateways, ledger, credits);
      }
    }
    const verdict = await ledger.service.verify();
    const consistency = verdict.ok ? 'is consistent' : 'IS NOT CONSISTENT';
    console.log(`${verdict.transactions} transactions, ${verdict.holds} holds: the ledger ${consistency}`);
    if (!verdict.ok) problems.push(JSON.stringify(verdict.faults));
  } finally {
    for (const child of children) child.kill('SIGKILL');
    await ledger.service.close();
    await ledger.database.close();
  }
}

async function runInWorker(child: ChildProcess, task: Task): Promise<TaskResult> {
  child.send(task);
  const [result] = (await once(child, 'message')) as [TaskResult];
  return result;
}

function split(total: number, parts: number): number[] {
  return Array.from(
    { length: parts },
    (_, index) => Math.floor(total / parts) + (index < total % parts ? 1 : 0),
  );
}

function sum(values: readonly number[]): number {
  return values.reduce((a, b) => a + b, 0);
}

const folder = await mkdtemp(join(tmpdir(), 'townhall-ledger-matrix-'));
const server = isEmbedded ? undefined : await startServer();
try {
  await runMatrix(server === undefined ? { path: join(folder, 'townhall.db') } : { url: server.url }, folder);
} finally {
  await server?.stop();
  await rm(folder, { recursive: true, force: true });
}
console.log(problems.length > 0 ? `failed, seed ${seed}` : `passed, seed ${seed}`);
process.exit(problems.length > 0 ? 1 : 0);
