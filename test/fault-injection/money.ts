// Charges over HTTP, with gateway processes and a scripted provider.
//
// First the matrix: balances of 1, 100 and 500 credits, calls with a known price of 1 or 10
// (speech, which is charged by the character), 50 to 1,000 of them at once on 1, 2 and 3 gateways.
// Exactly floor(credits / price) calls must succeed, and all others get 402.
//
// Then the storm: chats with and without streaming, whose tokens the provider counts, while a
// gateway is killed every 150 to 550 ms and the database is stopped at random without a shutdown. A
// complete answer must be recorded as completed and charged as the provider counted it, no call may
// be charged twice or for output that the provider did not produce, and no credits may stay held.
//
// Exits 1 when a check fails. money-faults.ts tests faults one at a time.
//
//   node test/fault-injection/money.ts [SEED] [KILLS=40] [STOPS=5]
//   FAULTS_ENGINE=embedded node test/fault-injection/money.ts [SEED] [KILLS=40]
//
// The second form runs one process on the embedded database.
import { setTimeout as sleep } from 'node:timers/promises';
import { createGatewayClient, type GatewayClient } from '@townhall/gateway';
import type { Database } from '../../src/kernel/data/database.ts';
import { startServer, type PostgresServer } from '../support/postgres-server.ts';
import { seededRandom } from './random.ts';
import {
  chat,
  countBy,
  makeCustomer,
  speak,
  startMoneyWorld,
  stopGateway,
  type CompleteAnswer,
  type GatewayProcess,
} from './money-world.ts';

const isEmbedded = process.env['FAULTS_ENGINE'] === 'embedded';
const [seed = Math.floor(Math.random() * 2 ** 31), kills = 40, stops = 5] = process.argv.slice(2).map(Number);
const random = seededRandom(seed);
const startingCredits = 1_000_000_000;
/** The scripted provider counts this many input tokens for every chat. */
const inputTokensOfChat = 10;
console.log(`seed ${seed}, ${isEmbedded ? 'the embedded database' : 'PostgreSQL'}`);

const server: PostgresServer | null = isEmbedded ? null : await startServer();
const world = await startMoneyWorld(server === null ? null : { url: server.url });
const { provider, check, startGateway } = world;

/** Makes concurrent calls on one balance; exactly the calls that it can pay must succeed. */
async function checkMatrixCell(
  gateways: readonly GatewayProcess[],
  admin: GatewayClient,
  shape: { credits: number; price: number; calls: number },
): Promise<void> {
  const { credits, price, calls } = shape;
  const { token } = await makeCustomer(
    admin,
    `matrix-${gateways.length}-${credits}-${price}-${calls}`,
    credits,
  );
  const answers = await Promise.all(
    Array.from({ length: calls }, (_, index) =>
      speak((gateways[index % gateways.length] as GatewayProcess).url, token, price),
    ),
  );
  const counts = countBy(answers, ({ status, code }) => `${status} ${code}`.trim());
  const paidCalls = Math.min(Math.floor(credits / price), calls);
  const { available, held } = await createGatewayClient({
    baseUrl: (gateways[0] as GatewayProcess).url,
    token,
  }).credits.getBalance();
  const isRight =
    (counts['200'] ?? 0) === paidCalls &&
    (counts['402 insufficient_credits'] ?? 0) === calls - paidCalls &&
    available === credits - paidCalls * price &&
    held === 0;
  check(
    isRight,
    `${gateways.length} gateways, ${credits} credits, price ${price}, ${calls} at once: ` +
      `${JSON.stringify(counts)}, ${paidCalls} expected, ${available} left, ${held} held`,
  );
}

/** Lets twenty clients chat until the signal; returns their complete answers. */
async function runClients(
  gateways: readonly GatewayProcess[],
  tokens: readonly string[],
  end: AbortSignal,
): Promise<CompleteAnswer[]> {
  const acknowledgedCalls: CompleteAnswer[] = [];
  // Not from the seed: the clients race, and their draws would change the schedule of the kills.
  const pick = <T>(items: readonly T[]): T => items[Math.floor(Math.random() * items.length)] as T;
  const client = async (): Promise<void> => {
    while (!end.aborted) {
      const { url } = pick(gateways);
      const options = { model: `acme/fast-${pick([2, 5, 20])}`, stream: Math.random() < 0.5 };
      const answer = await chat(url, pick(tokens), options).catch(() => null);
      if (answer === null) await sleep(50);
      else acknowledgedCalls.push(answer);
    }
  };
  await Promise.all(Array.from({ length: 20 }, client));
  return acknowledgedCalls;
}

async function storm(gateways: GatewayProcess[], tokens: readonly string[]): Promise<CompleteAnswer[]> {
  const end = new AbortController();
  const clients = runClients(gateways, tokens, end.signal);
  const stopAt = new Set(
    Array.from({ length: server === null ? 0 : stops }, (_, index) =>
      Math.floor(((index + 1) * kills) / (stops + 1)),
    ),
  );
  for (let round = 0; round < kills; round += 1) {
    await sleep(150 + random() * 400);
    // Give the only gateway time to open its database: the kill must interrupt its work, not its
    // start.
    if (isEmbedded) await sleep(300);
    if (server !== null && stopAt.has(round)) {
      await server.crash();
      await sleep(500 + random() * 1_000);
      await server.startAgain();
    }
    const gatewayIndex = Math.floor(random() * gateways.length);
    await stopGateway(gateways[gatewayIndex] as GatewayProcess, 'SIGKILL');
    const newGateway = startGateway();
    // While the new gateway starts, its clients use another gateway, if there is one.
    const otherGateway = gateways.find((_, index) => index !== gatewayIndex);
    if (otherGateway !== undefined) gateways[gatewayIndex] = otherGateway;
    gateways[gatewayIndex] = await newGateway;
  }
  await sleep(1_000);
  end.abort();
  return clients;
}

async function verify(
  database: Database,
  acknowledged: readonly CompleteAnswer[],
  userIds: readonly string[],
): Promise<void> {
  const records = await database.sql<{ requestId: string; outcome: string; credits: bigint }[]>`
    select request_id as "requestId", outcome, credits from gateway.usage_records
    where action <> 'tts' and user_id = any(${[...userIds]})`;
  const byRequest = Map.groupBy(records, ({ requestId }) => requestId);
  const lostCalls = acknowledged.filter(
    ({ requestId }) => !byRequest.get(requestId)?.some(({ outcome }) => outcome === 'completed'),
  );
  const wrongCalls = acknowledged.filter(({ requestId, inputTokens, outputTokens }) => {
    const usageRows = byRequest.get(requestId) ?? [];
    return usageRows.length === 1 && usageRows[0]?.credits !== BigInt(inputTokens + outputTokens);
  });
  const duplicates = [...byRequest.values()].filter((usageRows) => usageRows.length > 1);
  const chargedCredits = records.reduce((total, { credits }) => total + credits, 0n);
  const chats = provider.calls.filter(({ path }) => path.endsWith('/chat/completions'));
  const producedCredits = chats.reduce((total, { tokens }) => total + inputTokensOfChat + tokens, 0);
  const [balance] = await database.sql<{ spent: bigint }[]>`
    select sum(${startingCredits} - posted)::bigint as spent from gateway.credits_accounts
    where account_id = any(${[...userIds]})`;
  const [entries] = await database.sql<
    { sum: bigint }[]
  >`select coalesce(sum(amount), 0)::bigint as sum from gateway.credits_entries`;
  check(
    acknowledged.length > 0 && lostCalls.length === 0,
    `${acknowledged.length} complete answers, ${lostCalls.length} of them not recorded as completed`,
  );
  check(wrongCalls.length === 0, `${wrongCalls.length} of them not charged by their usage`);
  check(duplicates.length === 0, `${duplicates.length} calls charged twice`);
  check(
    Number(chargedCredits) <= producedCredits,
    `${chargedCredits} credits charged, ${producedCredits} produced by the provider in ${chats.length} calls`,
  );
  check(
    balance?.spent === chargedCredits,
    `the balances lost ${balance?.spent}, the records say ${chargedCredits}`,
  );
  check(entries?.sum === 0n, `all entries add up to ${entries?.sum}`);
}

/** Checks that the remaining gateway releases the holds of the killed ones within 75 seconds. */
async function waitForReleasedHolds({ url }: GatewayProcess, tokens: readonly string[]): Promise<void> {
  const startedMs = performance.now();
  const readHeldCredits = async (): Promise<number> => {
    const balances = await Promise.all(
      tokens.map((token) => createGatewayClient({ baseUrl: url, token }).credits.getBalance()),
    );
    return balances.reduce((total, { held }) => total + held, 0);
  };
  while ((await readHeldCredits()) > 0 && performance.now() - startedMs < 75_000) await sleep(500);
  const remaining = await readHeldCredits();
  const seconds = Math.round((performance.now() - startedMs) / 1_000);
  check(remaining === 0, `${remaining} credits held ${seconds} s after the storm`);
}

try {
  const gateways = [await startGateway()];
  const admin = await world.logIn(gateways[0] as GatewayProcess);
  for (const count of isEmbedded ? [1] : [1, 2, 3]) {
    while (gateways.length < count) gateways.push(await startGateway());
    for (const credits of [1, 100, 500])
      for (const price of [1, 10])
        for (const calls of [50, 300, 1_000])
          await checkMatrixCell(gateways, admin, { credits, price, calls });
  }
  const customers = await Promise.all(
    Array.from({ length: 10 }, (_, index) => makeCustomer(admin, `storm-${index}`, startingCredits)),
  );
  const tokens = customers.map(({ token }) => token);
  provider.reset();
  while (gateways.length > (isEmbedded ? 1 : 2))
    await stopGateway(gateways.pop() as GatewayProcess, 'SIGKILL');
  const acknowledgedCalls = await storm(gateways, tokens);
  for (const gateway of gateways) await stopGateway(gateway, 'SIGKILL');
  const lastGateway = await startGateway();
  await waitForReleasedHolds(lastGateway, tokens);
  await stopGateway(lastGateway, 'SIGTERM');
  const database = await world.connect();
  try {
    await verify(
      database,
      acknowledgedCalls,
      customers.map(({ userId }) => userId),
    );
  } finally {
    await database.close();
  }
} finally {
  await world.close();
  await server?.stop();
}
console.log(world.failures.length === 0 ? `passed, seed ${seed}` : `failed, seed ${seed}`);
process.exit(world.failures.length === 0 ? 0 : 1);
