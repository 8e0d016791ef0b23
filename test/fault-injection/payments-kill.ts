// Sends webhooks while gateways are killed with SIGKILL and the database is unreachable at times.
// No event may be answered with 200 before it is durable, and an event that is redelivered until it
// gets a 200 must be credited exactly once. Exits 1 otherwise.
//
//  node test/fault-injection/payments-kill.ts [SEED] [PAYMENTS=100] [FAULTS=30]
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from '../../src/kernel/data/database.ts';
import { startServer } from '../support/postgres-server.ts';
import { kill } from '../support/processes.ts';
import { silentLog } from '../support/template.ts';
import { startDatabaseProxy } from './database-proxy.ts';
import {
  clientOf,
  closeProviderDoubles,
  deliver,
  gatewayEnv,
  sell,
  startProviderDoubles,
  type Sale,
} from './payments-world.ts';
import { readSeed, seededRandom } from './random.ts';

interface GatewayProcess {
  child: ChildProcess;
  url: string;
  userToken: string;
}

const random = seededRandom(readSeed());
const [payments, faultCount] = [Number(process.argv[3] ?? 100), Number(process.argv[4] ?? 30)];
const customers = 4;
const failures: string[] = [];
const counts = { answered: 0, redelivered: 0, early: 0, kills: 0, cuts: 0 };
const sales: Sale[] = [];
const gateways: GatewayProcess[] = [];
const server = await startServer();
const providers = await startProviderDoubles();
const proxy = await startDatabaseProxy(server.url, random);
// A connection past the proxy, outside of the gateways: it sees only committed rows.
const watcher = await connect({ url: server.url }, { log: silentLog });
let hasFaultsLeft = true;
let checkoutCount = 0;
try {
  gateways.push(await startGateway(), await startGateway());
  const { url, userToken } = pickGateway();
  const { user } = await clientOf(url, userToken).accounts.getMe();
  const injection = injectFaults();
  await Promise.all(Array.from({ length: customers }, buy));
  await injection;
  await redeliverAll();
  await checkBalance(user.user_id);
} finally {
  for (const { child } of gateways) await kill(child);
  await watcher.close();
  await proxy.close();
  await closeProviderDoubles(providers);
  await server.stop();
}
for (const failure of failures.slice(0, 20)) console.log(`BROKEN: ${failure}`);
console.log(failures.length === 0 ? 'passed' : 'failed');
process.exit(failures.length === 0 ? 0 : 1);

async function startGateway(): Promise<GatewayProcess> {
  for (;;) {
    const child = spawn(process.execPath, [join(import.meta.dirname, '../support/gateway-process.ts')], {
      env: { PATH: process.env.PATH, ...gatewayEnv(proxy.url, providers) },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const exit = once(child, 'exit');
    const [line] = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), exit]);
    if (typeof line === 'string' && line.startsWith('{'))
      return { child, ...(JSON.parse(line) as { url: string; userToken: string }) };
    // The database was unreachable at this moment.
    await sleep(200);
  }
}

function pickGateway(): GatewayProcess {
  return gateways[Math.floor(random() * gateways.length)] as GatewayProcess;
}

async function injectFaults(): Promise<void> {
  for (let count = 0; count < faultCount; count += 1) {
    await sleep(150 + random() * 400);
    if (random() < 0.3) {
      counts.cuts += 1;
      proxy.cut();
      await sleep(300 + random() * 700);
      proxy.heal();
    } else {
      counts.kills += 1;
      const gateway = pickGateway();
      await kill(gateway.child);
      gateways[gateways.indexOf(gateway)] = await startGateway();
    }
  }
  hasFaultsLeft = false;
}

/** Buys until all payments are made and all faults have happened. */
async function buy(): Promise<void> {
  while (checkoutCount < payments || hasFaultsLeft) {
    checkoutCount += 1;
    const { url, userToken } = pickGateway();
    const method = random() < 0.5 ? 'stripe' : 'creem';
    const sale = await sell(clientOf(url, userToken), method, providers).catch(() => null);
    if (sale === null) {
      // When a fault hits a checkout, the buyer has to start it again.
      checkoutCount -= 1;
      await failInterruptedCheckouts();
      await sleep(100);
      continue;
    }
    sales.push(sale);
    await deliverUntilStored(sale);
    await sleep(random() * 100);
  }
}

/** Interrupted checkouts would count towards the twenty pending payments that a user may have. */
async function failInterruptedCheckouts(): Promise<void> {
  await watcher.sql`
    update gateway.payments_orders set failed_at = now()
    where checkout_id is null and failed_at is null and created_at < now() - interval '20 seconds'`;
}

async function deliverUntilStored(sale: Sale): Promise<void> {
  for (;;) {
    const { status } = await deliver(pickGateway().url, sale, providers);
    if (status === 200) break;
    if (status !== 503 && status !== 0) failures.push(`${sale.paymentId} was answered with ${status}`);
    counts.redelivered += 1;
    await sleep(20 + random() * 80);
  }
  counts.answered += 1;
  const [order] = await watcher.sql<{ posted: bigint }[]>`
    select posted_credits as posted from gateway.payments_orders where payment_id = ${sale.paymentId}`;
  if (order?.posted === BigInt(sale.credits)) return;
  counts.early += 1;
  failures.push(`${sale.paymentId} was answered with 200 and is not credited`);
}

/** Delivers each event once more, as a provider does when it has received no answer. */
async function redeliverAll(): Promise<void> {
  for (const sale of sales) {
    const { outcome } = await deliver(pickGateway().url, sale, providers);
    if (outcome !== 'duplicate') failures.push(`a second delivery of ${sale.paymentId} was ${outcome}`);
  }
}

async function checkBalance(userId: string): Promise<void> {
  const { sql } = watcher;
  const rows = await sql<{ posted: bigint; credits: bigint; postings: number }[]>`
    select posted_credits as posted, credits, postings from gateway.payments_orders
    where payment_id = any(${sales.map(({ paymentId }) => paymentId)}::text[])`;
  const mismatches = rows.filter(({ posted, credits, postings }) => posted !== credits || postings !== 1);
  const [account] = await sql<{ posted: bigint }[]>`
    select posted from gateway.credits_accounts where account_id = ${userId}`;
  const [ledger] = await sql<{ sum: string }[]>`
    select coalesce(sum(amount), 0)::text as sum from gateway.credits_entries`;
  const expected = sales.reduce((sum, { credits }) => sum + BigInt(credits), 0n);
  console.log(
    [
      `${sales.length} payments, ${counts.kills} kills and ${counts.cuts} cuts of the database`,
      `${counts.answered} answered with 200, ${counts.redelivered} redelivered`,
      `${counts.early} answered too early, ${mismatches.length} credited wrongly`,
      `balance ${account?.posted} of ${expected}, the ledger adds up to ${ledger?.sum}`,
    ].join('; '),
  );
  if (sales.length === 0) failures.push('there was no payment');
  if (mismatches.length > 0 || account?.posted !== expected || ledger?.sum !== '0')
    failures.push('the balance does not match the payments');
}
