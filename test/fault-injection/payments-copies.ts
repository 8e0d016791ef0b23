// Sends one webhook in 200 parallel copies to two gateways on one PostgreSQL, some with other ids:
// it must be credited once, and every copy answered with 200. Then measures the duration of /health
// beside a flood of bad signatures. Exits 1 when a limit is exceeded.
//
//  node test/fault-injection/payments-copies.ts [SEED] [COPIES=200] [ROUNDS=5]
//  [FLOOD_PER_SECOND=500] [FLOOD_SECONDS=5]
import { createGateway, type Gateway } from '../../src/gateway/compose.ts';
import { readGatewayConfig } from '../../src/gateway/config.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { startCreem } from '../support/creem.ts';
import { startServer } from '../support/postgres-server.ts';
import { startStripe } from '../support/stripe.ts';
import { chance, readSeed } from './agent-world.ts';
import { clientOf, deliver, gatewayEnv, sell } from './payments-world.ts';

const random = chance(readSeed());
const [copies, rounds, perSecond, floodSeconds] = [3, 4, 5, 6].map((argumentIndex, index) =>
  Number(process.argv[argumentIndex] ?? [200, 5, 500, 5][index]),
) as [number, number, number, number];
const healthMs = 200;
const failures: string[] = [];
const server = await startServer();
const providers = { stripe: await startStripe(), creem: await startCreem() };
const gateways: { gateway: Gateway; url: string }[] = [];
try {
  for (let n = 0; n < 2; n += 1) {
    const env = gatewayEnv(server.url, providers);
    const redactor = createRedactor();
    const log = createLog({ level: 'silent', redactor });
    const gateway = await createGateway(readGatewayConfig({}, env), {
      env,
      log,
      redactor,
      clock: systemClock,
    });
    gateways.push({ gateway, url: (await gateway.listen()).url });
  }
  const [firstGateway, secondGateway] = gateways as [(typeof gateways)[0], (typeof gateways)[0]];
  const { sql } = firstGateway.gateway.database;
  await sql`insert into gateway.bureaus_records (bureau_id, name, server_url) values ('local', 'Local', 'http://127.0.0.1:43127') on conflict do nothing`;
  const { userToken, userId } = await firstGateway.gateway.issueLocalToken();
  const client = clientOf(firstGateway.url, userToken);
  let expected = 0n;
  for (let round = 1; round <= rounds; round += 1) {
    for (const method of ['stripe', 'creem'] as const) {
      const sale = await sell(client, method, providers);
      expected += BigInt(sale.credits);
      const startedMs = performance.now();
      const answers = await Promise.all(
        Array.from({ length: copies }, (_, n) => {
          const event = random() < 0.2 ? { ...sale.event, id: `${sale.event.id}_${n}` } : sale.event;
          return deliver((random() < 0.5 ? firstGateway : secondGateway).url, { method, event }, providers);
        }),
      );
      const ms = performance.now() - startedMs;
      const refusals = answers.filter(({ status }) => status !== 200);
      const acceptedCount = answers.filter(({ outcome }) => outcome === 'accepted').length;
      const [account] = await sql<
        { posted: bigint }[]
      >`select posted from gateway.credits_accounts where account_id = ${userId}`;
      const transactions =
        await sql`select 1 from gateway.credits_txs where ref like ${`${sale.paymentId}/%`}`;
      console.log(
        `round ${round}, ${method}: ${copies} copies in ${ms.toFixed(0)} ms, ${acceptedCount} accepted, ${answers.length - refusals.length - acceptedCount} duplicates, posted ${transactions.length} time(s)`,
      );
      if (refusals.length > 0)
        failures.push(
          `round ${round}, ${method}: ${refusals.length} not answered with 200, such as ${refusals[0]?.status} ${refusals[0]?.outcome}`,
        );
      if (acceptedCount !== 1 || transactions.length !== 1 || account?.posted !== expected)
        failures.push(`round ${round}, ${method}: balance ${account?.posted}, expected ${expected}`);
    }
  }
  const [ledger] = await sql<
    { sum: string }[]
  >`select coalesce(sum(amount), 0)::text as sum from gateway.credits_entries`;
  if (ledger?.sum !== '0') failures.push(`the ledger adds up to ${ledger?.sum}`);

  // A flood from a sender without the secret.
  const latencies: number[] = [];
  const refusals = new Map<number, number>();
  const deliveries: Promise<void>[] = [];
  const startedMs = performance.now();
  while (performance.now() - startedMs < floodSeconds * 1_000) {
    for (let n = 0; n < perSecond / 50; n += 1) {
      const signature = `t=${Math.floor(Date.now() / 1000)},v1=${'0'.repeat(64)}`;
      deliveries.push(
        fetch(`${firstGateway.url}/v1/payments/webhook/stripe`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', 'stripe-signature': signature },
          body: '{"id":"evt_1"}',
        })
          .then(async (answer) => {
            await answer.text();
            refusals.set(answer.status, (refusals.get(answer.status) ?? 0) + 1);
          })
          .catch(() => void refusals.set(0, (refusals.get(0) ?? 0) + 1)),
      );
    }
    const askedMs = performance.now();
    await (await fetch(`${firstGateway.url}/health`)).text();
    latencies.push(performance.now() - askedMs);
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, 20 - (performance.now() - askedMs))));
  }
  await Promise.all(deliveries);
  latencies.sort((a, b) => a - b);
  const p99 = latencies[Math.floor(latencies.length * 0.99)] ?? Number.NaN;
  console.log(
    `${deliveries.length} bad signatures in ${floodSeconds} s: answers ${JSON.stringify(Object.fromEntries(refusals))}; /health p50 ${latencies[Math.floor(latencies.length / 2)]?.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms`,
  );
  if ([...refusals.keys()].some((status) => status !== 400))
    failures.push('a bad signature was not answered with 400');
  if (p99 > healthMs) failures.push(`/health took ${p99.toFixed(0)} ms at p99`);
} finally {
  for (const { gateway } of gateways) await gateway.close();
  await Promise.all([providers.stripe.close(), providers.creem.close()]);
  await server.stop();
}
for (const fault of failures) console.log(`BROKEN: ${fault}`);
console.log(failures.length === 0 ? 'held' : 'broken');
process.exit(failures.length === 0 ? 0 : 1);
