// Sends 200 copies of one webhook event at once to two gateways on one PostgreSQL, some of them
// under other ids: the payment must be credited once, and every copy answered with 200. Then
// measures the latency of /health during a flood of bad signatures. Exits 1 when one of these
// checks fails.
//
//  node test/fault-injection/payments-copies.ts [SEED] [COPIES=200] [ROUNDS=5]
//  [FLOOD_PER_SECOND=500] [FLOOD_SECONDS=5]
import { setTimeout as sleep } from 'node:timers/promises';
import type { GatewayClient } from '@townhall/gateway';
import { createGateway, type Gateway } from '../../src/gateway/compose.ts';
import { readGatewayConfig } from '../../src/gateway/config.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { startServer } from '../support/postgres-server.ts';
import {
  clientOf,
  closeProviderDoubles,
  deliver,
  gatewayEnv,
  sell,
  startProviderDoubles,
} from './payments-world.ts';
import { readSeed, seededRandom } from './random.ts';

const random = seededRandom(readSeed());
const [copies = 200, rounds = 5, floodPerSecond = 500, floodSeconds = 5] = process.argv.slice(3).map(Number);
const healthLimitMs = 200;
/** The flood comes in bursts, each of which is followed by a request to /health. */
const burstMs = 20;
const failures: string[] = [];
const server = await startServer();
const providers = await startProviderDoubles();
const gateways: { gateway: Gateway; url: string }[] = [];
try {
  const [firstGateway, secondGateway] = [await startGateway(), await startGateway()];
  const urls = [firstGateway.url, secondGateway.url];
  const { sql } = firstGateway.gateway.database;
  await sql`
    insert into gateway.bureaus_records (bureau_id, name, server_url)
    values ('local', 'Local', 'http://127.0.0.1:43127') on conflict do nothing`;
  const { userToken, userId } = await firstGateway.gateway.issueLocalToken();
  const client = clientOf(firstGateway.url, userToken);
  let expected = 0n;
  for (let round = 1; round <= rounds; round += 1) {
    for (const method of ['stripe', 'creem'] as const) {
      const { credits, paymentId, accepted, violations } = await deliverCopies(client, urls, method);
      expected += BigInt(credits);
      const [account] = await sql<{ posted: bigint }[]>`
        select posted from gateway.credits_accounts where account_id = ${userId}`;
      const transactions = await sql`
        select 1 from gateway.credits_txs where ref like ${`${paymentId}/%`}`;
      failures.push(...violations.map((violation) => `round ${round}, ${method}: ${violation}`));
      if (accepted !== 1 || transactions.length !== 1 || account?.posted !== expected)
        failures.push(
          `round ${round}, ${method}: posted ${transactions.length} times, ` +
            `balance ${account?.posted} of ${expected}`,
        );
    }
  }
  const [ledger] = await sql<{ sum: string }[]>`
    select coalesce(sum(amount), 0)::text as sum from gateway.credits_entries`;
  if (ledger?.sum !== '0') failures.push(`the ledger adds up to ${ledger?.sum}`);
  await floodWithBadSignatures(firstGateway.url);
} finally {
  for (const { gateway } of gateways) await gateway.close();
  await closeProviderDoubles(providers);
  await server.stop();
}
for (const failure of failures) console.log(`BROKEN: ${failure}`);
console.log(failures.length === 0 ? 'passed' : 'failed');
process.exit(failures.length === 0 ? 0 : 1);

async function startGateway(): Promise<{ gateway: Gateway; url: string }> {
  const env = gatewayEnv(server.url, providers);
  const redactor = createRedactor();
  const gateway = await createGateway(readGatewayConfig({}, env), {
    env,
    log: createLog({ level: 'silent', redactor }),
    redactor,
    clock: systemClock,
  });
  const { url } = await gateway.listen();
  gateways.push({ gateway, url });
  return { gateway, url };
}

/**
 * Makes a payment and delivers copies of its event; about a fifth of them have an id of their own.
 */
async function deliverCopies(
  client: GatewayClient,
  urls: readonly string[],
  method: 'stripe' | 'creem',
): Promise<{ credits: number; paymentId: string; accepted: number; violations: string[] }> {
  const sale = await sell(client, method, providers);
  const startedMs = performance.now();
  const answers = await Promise.all(
    Array.from({ length: copies }, (_, index) => {
      const event = random() < 0.2 ? { ...sale.event, id: `${sale.event.id}_${index}` } : sale.event;
      const url = urls[Math.floor(random() * urls.length)] as string;
      return deliver(url, { method, event }, providers);
    }),
  );
  const ms = performance.now() - startedMs;
  const refusals = answers.filter(({ status }) => status !== 200);
  const accepted = answers.filter(({ outcome }) => outcome === 'accepted').length;
  const duplicates = answers.length - refusals.length - accepted;
  console.log(
    `${method}: ${copies} copies in ${ms.toFixed(0)} ms, ${accepted} accepted, ${duplicates} duplicates`,
  );
  const [refusal] = refusals;
  const violations =
    refusal === undefined
      ? []
      : [`${refusals.length} not answered with 200, such as ${refusal.status} ${refusal.outcome}`];
  return { credits: sale.credits, paymentId: sale.paymentId, accepted, violations };
}

/** Floods the webhook with bad signatures, and measures the latency of /health at the same time. */
async function floodWithBadSignatures(url: string): Promise<void> {
  const latencies: number[] = [];
  const deliveries: Promise<number>[] = [];
  const startedMs = performance.now();
  while (performance.now() - startedMs < floodSeconds * 1_000) {
    for (let count = 0; count < (floodPerSecond * burstMs) / 1_000; count += 1)
      deliveries.push(deliverBadSignature(url));
    const requestedMs = performance.now();
    await (await fetch(`${url}/health`)).text();
    latencies.push(performance.now() - requestedMs);
    await sleep(Math.max(0, burstMs - (performance.now() - requestedMs)));
  }
  const statuses = await Promise.all(deliveries);
  const counts = Object.fromEntries(
    [...Map.groupBy(statuses, (status) => status)].map(([status, all]) => [status, all.length]),
  );
  latencies.sort((a, b) => a - b);
  const [p50, p99] = [0.5, 0.99].map(
    (share) => latencies[Math.floor(latencies.length * share)] ?? Number.NaN,
  );
  console.log(
    `${statuses.length} bad signatures in ${floodSeconds} s: answers ${JSON.stringify(counts)}; ` +
      `/health p50 ${p50?.toFixed(1)} ms, p99 ${p99?.toFixed(1)} ms`,
  );
  if (statuses.some((status) => status !== 400)) failures.push('a bad signature was not answered with 400');
  if (p99 === undefined || !(p99 <= healthLimitMs))
    failures.push(`/health took ${p99?.toFixed(0)} ms at p99`);
}

/** Returns the status; 0 without an answer. */
async function deliverBadSignature(url: string): Promise<number> {
  const signature = `t=${Math.floor(Date.now() / 1000)},v1=${'0'.repeat(64)}`;
  try {
    const answer = await fetch(`${url}/v1/payments/webhook/stripe`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'stripe-signature': signature },
      body: '{"id":"evt_1"}',
    });
    await answer.text();
    return answer.status;
  } catch {
    return 0;
  }
}
