// Balances that change while gateways have allotments open: sixty keys at once, a
// deduction, a refund, a lowered cap.
import { setTimeout as sleep } from 'node:timers/promises';
import { createGatewayClient } from '@townhall/gateway';
import { sqlAllotmentStore } from '../../../src/gateway/credits/index.ts';
import type { StripeEvent } from '../../support/stripe.ts';
import {
  chat,
  checkLedger,
  countBy,
  makeCustomer,
  readBooks,
  speak,
  stopGateway,
  waitUntil,
} from '../money-world.ts';
import { closeProviderDoubles, deliver, sell, startProviderDoubles } from '../payments-world.ts';
import type { ScenarioContext } from './scenario.ts';

/**
 * Sixty keys of one user with 300 credits call two gateways at once; each call costs ten credits.
 */
export async function sixtyKeys({ world }: ScenarioContext): Promise<void> {
  const [firstGateway, secondGateway] = [await world.startGateway(), await world.startGateway()];
  const urls = [firstGateway.url, secondGateway.url];
  const admin = await world.logIn(firstGateway);
  const { userId, token } = await makeCustomer(admin, 'keys', 300);
  const user = createGatewayClient({ baseUrl: firstGateway.url, token });
  const keys: string[] = [];
  for (let index = 0; index < 60; index += 1)
    keys.push((await user.accounts.createKey({ name: `key ${index}` })).user_token);
  const statuses = await Promise.all(
    keys.map(async (key, index) => (await speak(urls[index % 2] as string, key, 10)).status),
  );
  const counts = countBy(statuses, (status) => status);
  world.check(
    counts[200] === 30 && (counts[402] ?? 0) + (counts[503] ?? 0) === 30,
    `60 keys, 10 credits each on 300: ${JSON.stringify(counts)}, 30 expected`,
  );
  await admin.credits.grantCredits({ user_id: userId, credits: 25, reason: 'for the storm' });
  // A key with an even index has called the first gateway before.
  const { status } = await speak(secondGateway.url, keys[6] as string, 25);
  world.check(status === 200, `25 more credits can be spent by any key on any gateway: ${status}`);
  await stopAndCheck({ world, gateways: [firstGateway, secondGateway], userId, posted: 0n });
}

/** An administrator deducts idle credits of allotments of two gateways. */
export async function deduction({ world }: ScenarioContext): Promise<void> {
  const [firstGateway, secondGateway] = [await world.startGateway(), await world.startGateway()];
  const admin = await world.logIn(firstGateway);
  const { userId, token } = await makeCustomer(admin, 'deducted', 1_000);
  for (const { url } of [firstGateway, secondGateway, firstGateway, secondGateway])
    await chat(url, token, { model: 'acme/fast-5', stream: false });
  const { posted } = await createGatewayClient({ baseUrl: firstGateway.url, token }).credits.getBalance();
  const deduction = await admin.credits.deductCredits({
    user_id: userId,
    credits: posted - 30,
    reason: 'for the storm',
  });
  world.check(
    deduction.available === 30,
    `${posted - 30} of ${posted} credits deducted, ${deduction.available} left`,
  );
  const statuses = [
    (await speak(secondGateway.url, token, 31)).status,
    (await speak(firstGateway.url, token, 30)).status,
    (await speak(secondGateway.url, token, 1)).status,
  ];
  world.check(statuses.join() === '402,200,402', `calls of 31, 30 and 1 on them: ${statuses.join()}`);
  await stopAndCheck({ world, gateways: [firstGateway, secondGateway], userId, posted: 0n });
}

/** A payment is refunded while a stream runs on its credits. */
export async function refund({ world }: ScenarioContext): Promise<void> {
  const providers = await startProviderDoubles();
  const env = {
    ...providers.stripe.env,
    ...providers.creem.env,
    CREDITS_PER_UNIT: '1000000',
    TOWNHALL_CITY_BASE_URL: 'https://city.example.test',
  };
  const [firstGateway, secondGateway] = [
    await world.startGateway({ env }),
    await world.startGateway({ env }),
  ];
  try {
    const { userId, token } = await makeCustomer(await world.logIn(firstGateway), 'refunded', 0);
    const client = createGatewayClient({ baseUrl: firstGateway.url, token });
    const sale = await sell(client, 'stripe', providers);
    await deliver(firstGateway.url, sale, providers);
    const { available } = await client.credits.getBalance();
    const stream = chat(secondGateway.url, token, { model: 'acme/slow-40', stream: true });
    await sleep(1_500);
    const session = (sale.event as StripeEvent).data.object['id'];
    const event = providers.stripe.refund(String(session), 1_000);
    const { outcome } = await deliver(firstGateway.url, { method: 'stripe', event }, providers);
    const balance = await client.credits.getBalance();
    const refusal = await speak(firstGateway.url, token, 1);
    world.check(
      outcome === 'accepted' && balance.available <= 0 && refusal.status === 402,
      `${available} credits refunded during a stream (${outcome}): ${balance.available} available, ` +
        `${balance.held} held, ${balance.owed} owed; a call ${refusal.status}`,
    );
    const answer = await stream;
    world.check(answer !== null, 'the stream is complete');
    const price = (answer?.inputTokens ?? 0) + (answer?.outputTokens ?? 0);
    const isPaid = await waitUntil(async () => {
      const { owed: debt } = await client.credits.getBalance();
      return debt === price;
    }, 10_000);
    world.check(isPaid, `released credits paid the debt, except for the ${price} credits of the stream`);
    await stopAndCheck({ world, gateways: [firstGateway, secondGateway], userId, posted: 0n });
  } finally {
    await closeProviderDoubles(providers);
  }
}

/**
 * Lowers the cap of a key while two gateways have allotments of it. No operation does that yet, so
 * this runs the statements of a future operation: close the allotments, wait for their idle
 * credits, lower the cap.
 */
export async function loweredCap({ world }: ScenarioContext): Promise<void> {
  const [firstGateway, secondGateway] = [await world.startGateway(), await world.startGateway()];
  const { userId, token } = await makeCustomer(await world.logIn(firstGateway), 'capped', 10_000);
  const user = createGatewayClient({ baseUrl: firstGateway.url, token });
  const key = await user.accounts.createKey({ name: 'capped', credit_cap: 5_000 });
  for (const { url } of [firstGateway, secondGateway, firstGateway, secondGateway])
    await chat(url, key.user_token, { model: 'acme/fast-5', stream: false });
  const database = await world.connect();
  try {
    await sqlAllotmentStore(database).close({ tokenId: key.token_id });
    await sleep(1_000);
    const [row] = await database.sql<{ cap: bigint; spent: bigint }[]>`
      update gateway.credits_keys set cap = greatest(200, spent + held) where token_id = ${key.token_id}
      returning cap, spent`;
    const remainingCredits = Number((row?.cap ?? 0n) - (row?.spent ?? 0n));
    const urls = [firstGateway.url, secondGateway.url];
    const statuses = await Promise.all(
      Array.from(
        { length: 100 },
        async (_, index) => (await speak(urls[index % 2] as string, key.user_token, 10)).status,
      ),
    );
    const successes = statuses.filter((status) => status === 200).length;
    const expected = Math.floor(remainingCredits / 10);
    world.check(
      row?.cap === 200n && successes === expected,
      `a cap of 5000 lowered to ${row?.cap} at ${row?.spent} spent: ` +
        `${JSON.stringify(countBy(statuses, (status) => status))}, ${expected} expected`,
    );
    const { posted } = await readBooks(database, userId);
    await stopAndCheck({ world, gateways: [firstGateway, secondGateway], userId, posted });
  } finally {
    await database.close();
  }
}

async function stopAndCheck({
  world,
  gateways,
  userId,
  posted,
}: {
  world: ScenarioContext['world'];
  gateways: Parameters<typeof stopGateway>[0][];
  userId: string;
  posted: bigint;
}): Promise<void> {
  for (const gateway of gateways) await stopGateway(gateway, 'SIGTERM');
  const database = await world.connect();
  try {
    const books = await readBooks(database, userId);
    world.check(
      books.posted === posted && books.held === 0n,
      `at the end ${books.posted} credits are left and ${books.held} are held`,
    );
    await checkLedger(world, database);
  } finally {
    await database.close();
  }
}
