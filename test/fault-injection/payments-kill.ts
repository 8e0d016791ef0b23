// Sends webhooks while gateways are killed with SIGKILL and the database is unreachable at times:
// no 200 before the event is durable, and an event that is redelivered until it is answered is
// credited exactly once. Exits 1 otherwise.
//
//  node test/fault-injection/payments-kill.ts [SEED] [PAYMENTS=100] [FAULTS=30]
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect as dial, createServer, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { connect } from '../../src/kernel/data/database.ts';
import { startCreem } from '../support/creem.ts';
import { startServer } from '../support/postgres-server.ts';
import { startStripe } from '../support/stripe.ts';
import { silentLog } from '../support/template.ts';
import { chance, readSeed } from './agent-world.ts';
import { clientOf, deliver, gatewayEnv, sell, type Sold } from './payments-world.ts';

const random = chance(readSeed());
const [payments, faultCount] = [Number(process.argv[3] ?? 100), Number(process.argv[4] ?? 30)];
const failures: string[] = [];
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const server = await startServer();
const providers = { stripe: await startStripe(), creem: await startCreem() };

// A proxy between gateways and database, to cut the connection and restore it.
let isAway = false;
const sockets = new Set<Socket>();
const target = new URL(server.url);
const proxy = createServer((client) => {
  if (isAway) return void client.destroy();
  const upstream = dial(Number(target.port), target.hostname);
  for (const socket of [client, upstream]) {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      sockets.delete(socket);
      client.destroy();
      upstream.destroy();
    });
  }
  client.pipe(upstream).pipe(client);
});
await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
const proxyUrl = new URL(server.url);
proxyUrl.port = String((proxy.address() as AddressInfo).port);

interface Running {
  child: ChildProcess;
  url: string;
  userToken: string;
}

async function start(): Promise<Running> {
  for (;;) {
    const child = spawn(process.execPath, [join(import.meta.dirname, '../support/gateway-process.ts')], {
      env: { PATH: process.env.PATH, ...gatewayEnv(proxyUrl.href, providers) },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const exit = once(child, 'exit');
    const firstLine = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), exit]);
    const line = String(firstLine[0]);
    if (line.startsWith('{')) return { child, ...(JSON.parse(line) as { url: string; userToken: string }) };
    // The database was away at this moment.
    await pause(200);
  }
}

async function kill({ child }: Running): Promise<void> {
  const exit = once(child, 'exit');
  child.kill('SIGKILL');
  await exit;
}

const gateways: Running[] = [];
const watcher = await connect({ url: server.url }, { log: silentLog });
const sales: Sold[] = [];
const counts = { answered: 0, again: 0, early: 0, kills: 0, cuts: 0 };
try {
  gateways.push(await start(), await start());
  const client = clientOf(gateways[0]?.url ?? '', gateways[0]?.userToken ?? '');
  const { user } = await client.accounts.getMe();
  let hasFaultsLeft = true;

  async function deliverUntilStored(sale: Sold): Promise<void> {
    for (;;) {
      const { url } = gateways[Math.floor(random() * gateways.length)] as Running;
      const { status } = await deliver(url, sale, providers);
      if (status === 200) {
        counts.answered += 1;
        // Reads over another connection, which sees committed rows only.
        const [order] = await watcher.sql<
          { posted: bigint }[]
        >`select posted_credits as posted from gateway.payments_orders where payment_id = ${sale.paymentId}`;
        if (order?.posted !== BigInt(sale.credits)) {
          counts.early += 1;
          failures.push(`${sale.paymentId} was answered with 200 and is not credited`);
        }
        return;
      }
      if (status !== 503 && status !== 0) failures.push(`${sale.paymentId} was answered with ${status}`);
      counts.again += 1;
      await pause(20 + random() * 80);
    }
  }

  async function injectFaults(): Promise<void> {
    for (let n = 0; n < faultCount; n += 1) {
      await pause(150 + random() * 400);
      if (random() < 0.3) {
        counts.cuts += 1;
        isAway = true;
        for (const socket of sockets) socket.destroy();
        await pause(300 + random() * 700);
        isAway = false;
      } else {
        counts.kills += 1;
        const index = Math.floor(random() * gateways.length);
        await kill(gateways[index] as Running);
        gateways[index] = await start();
      }
    }
    hasFaultsLeft = false;
  }

  const injection = injectFaults();
  let checkoutCount = 0;
  await Promise.all(
    Array.from({ length: 4 }, async () => {
      while (checkoutCount < payments || hasFaultsLeft) {
        checkoutCount += 1;
        const { url, userToken } = gateways[Math.floor(random() * gateways.length)] as Running;
        // When a fault hits a checkout, the buyer has to start it again.
        const sale = await sell(
          clientOf(url, userToken),
          random() < 0.5 ? 'stripe' : 'creem',
          providers,
        ).catch(() => null);
        if (sale === null) {
          checkoutCount -= 1;
          await watcher.sql`update gateway.payments_orders set failed_at = now() where checkout_id is null and failed_at is null and created_at < now() - interval '20 seconds'`;
          await pause(100);
          continue;
        }
        sales.push(sale);
        await deliverUntilStored(sale);
        await pause(random() * 100);
      }
    }),
  );
  await injection;
  isAway = false;
  // Redeliver all events, as a provider does that got no answer.
  const lastGateway = gateways[0] as Running;
  for (const entry of sales)
    if ((await deliver(lastGateway.url, entry, providers)).outcome !== 'duplicate')
      failures.push(`${entry.paymentId} was applied a second time`);
  const rows = await watcher.sql<{ posted: bigint; credits: bigint; postings: number }[]>`
    select posted_credits as posted, credits, postings from gateway.payments_orders where payment_id = any(${sales.map(({ paymentId }) => paymentId)}::text[])`;
  const mismatches = rows.filter(
    ({ posted, credits, postings }) => posted !== credits || postings !== 1,
  ).length;
  const [account] = await watcher.sql<
    { posted: bigint }[]
  >`select posted from gateway.credits_accounts where account_id = ${user.user_id}`;
  const [ledger] = await watcher.sql<
    { sum: string }[]
  >`select coalesce(sum(amount), 0)::text as sum from gateway.credits_entries`;
  const expected = sales.reduce((sum, { credits }) => sum + BigInt(credits), 0n);
  console.log(
    `${sales.length} payments, ${counts.kills} kills and ${counts.cuts} cuts of the database: ${counts.answered} answered with 200, ${counts.again} sent again, ${counts.early} answered too early, ${mismatches} credited wrongly; balance ${account?.posted} of ${expected}, the ledger adds up to ${ledger?.sum}`,
  );
  if (mismatches > 0 || account?.posted !== expected || ledger?.sum !== '0')
    failures.push('the balance is not what was paid');
} finally {
  for (const gateway of gateways) await kill(gateway).catch(() => undefined);
  await watcher.close();
  for (const socket of sockets) socket.destroy();
  proxy.close();
  await Promise.all([providers.stripe.close(), providers.creem.close()]);
  await server.stop();
}
for (const fault of failures.slice(0, 20)) console.log(`BROKEN: ${fault}`);
console.log(failures.length === 0 ? 'held' : 'broken');
process.exit(failures.length === 0 ? 0 : 1);
