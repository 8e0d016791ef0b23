// One gateway is paused for 90 s between a reservation and its request, and another gateway in the
// middle of a stream. Their leases expire, and a third gateway takes their allotments back and
// spends the credits. Then the two gateways continue.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../../../src/kernel/data/database.ts';
import {
  chat,
  checkLedger,
  makeCustomer,
  readBooks,
  speak,
  stopGateway,
  waitUntil,
  type Books,
  type CompleteAnswer,
  type Customer,
  type GatewayProcess,
  type MoneyWorld,
} from '../money-world.ts';
import { startDatabaseProxy } from '../database-proxy.ts';
import type { ScenarioContext } from './scenario.ts';

// A gateway takes expired allotments back once a minute, and only after it has had contact with the
// database for a minute, so at 120 s for the first time. An allotment can be taken back 60 s after
// the last renewal of its lease.
const stopAtMs = 45_000;
const stopMs = 90_000;

export async function pauses({ world, databaseUrl, random }: ScenarioContext): Promise<void> {
  const startedMs = performance.now();
  const otherGateway = await world.startGateway();
  const proxy = await startDatabaseProxy(databaseUrl, random);
  const [reservingGateway, streamingGateway] = await Promise.all([
    world.startGateway({ databaseUrl: proxy.url }),
    world.startGateway(),
  ]);
  const admin = await world.logIn(otherGateway);
  const [waitingCustomer, poorCustomer, richCustomer] = await Promise.all([
    makeCustomer(admin, 'waiting', 100),
    makeCustomer(admin, 'poor', 400),
    makeCustomer(admin, 'rich', 10_000),
  ]);
  const database = await world.connect();
  const hasAllotment = async ({ userId }: Customer): Promise<boolean> => {
    const rows = await database.sql`
      select 1 from gateway.credits_allotments
      where account_id = ${userId} and ended_at is null and amount > 0`;
    return rows.length > 0;
  };
  try {
    await sleep(Math.max(0, stopAtMs - (performance.now() - startedMs)));
    const reservation = proxy.holdBackFrom('gateway.credits_allot(');
    const lateCall = speak(reservingGateway.url, waitingCustomer.token, 60);
    await reservation;
    await waitUntil(() => hasAllotment(waitingCustomer), 5_000);
    const streams = [poorCustomer, richCustomer].map(({ token }) => stream(streamingGateway, token));
    await sleep(1_500);
    for (const { process } of [reservingGateway, streamingGateway]) process.kill('SIGSTOP');
    const stoppedMs = performance.now();
    proxy.release();

    const areAllTakenBack = await waitUntil(
      async () => !(await hasAllotment(waitingCustomer)) && !(await hasAllotment(poorCustomer)),
      stopMs - 5_000,
    );
    world.check(areAllTakenBack, `allotments taken back ${seconds(stoppedMs)} s after the stop`);
    const speeches = [
      await speak(otherGateway.url, waitingCustomer.token, 60),
      await speak(otherGateway.url, poorCustomer.token, 390),
    ];
    world.check(
      speeches.every(({ status }) => status === 200),
      `another gateway spends them: ${speeches.map(({ status }) => status).join(' and ')}`,
    );
    await sleep(Math.max(0, stopMs - (performance.now() - stoppedMs)));
    for (const { process } of [reservingGateway, streamingGateway]) process.kill('SIGCONT');

    const { status } = await lateCall;
    const requests = world.provider.calls.filter(({ path }) => path.endsWith('/audio/speech')).length;
    world.check(
      (status === 402 || status === 503) && requests === 2,
      `a call reserved before the stop: ${status}, ${requests - speeches.length} upstream requests of it`,
    );
    const [poorAnswer = null, richAnswer = null] = await Promise.all(streams);
    for (const gateway of [reservingGateway, streamingGateway, otherGateway])
      await stopGateway(gateway, 'SIGTERM');
    await checkBooks(world, database, {
      waiting: { customer: waitingCustomer },
      poor: { customer: poorCustomer, answer: poorAnswer },
      rich: { customer: richCustomer, answer: richAnswer },
    });
    await checkLedger(world, database);
  } finally {
    await database.close();
    await proxy.close();
  }
}

interface Stream {
  customer: Customer;
  answer: CompleteAnswer | null;
}

async function checkBooks(
  world: MoneyWorld,
  database: Database,
  { waiting, poor, rich }: { waiting: { customer: Customer }; poor: Stream; rich: Stream },
): Promise<void> {
  const waitingBooks = await readBooks(database, waiting.customer.userId);
  const poorBooks = await readBooks(database, poor.customer.userId);
  const richBooks = await readBooks(database, rich.customer.userId);
  world.check(waitingBooks.posted === 40n, `the waiting user has ${waitingBooks.posted} of 100 credits left`);
  world.check(
    poorBooks.posted >= 0n && poorBooks.posted <= 10n && poorBooks.charged === 400n - poorBooks.posted,
    `the stream ended ${describe(poor.answer)} and left the poor user ${poorBooks.posted} credits`,
  );
  world.check(
    richBooks.posted === 10_000n - richBooks.charged && isCharged(rich.answer, richBooks),
    `the rich user was charged ${richBooks.charged} for a stream that ended ${describe(rich.answer)}`,
  );
  const books = [waitingBooks, poorBooks, richBooks];
  world.check(
    books.every(({ held }) => held === 0n),
    `nothing is held: ${books.map(({ held }) => held).join(', ')}`,
  );
}

function stream({ url }: GatewayProcess, token: string): Promise<CompleteAnswer | null> {
  return chat(url, token, { model: 'acme/slow-40', stream: true, timeoutMs: 300_000 }).catch(() => null);
}

function isCharged(answer: CompleteAnswer | null, { charged, byRequest }: Books): boolean {
  // A truncated stream costs at most the output that the provider produced.
  if (answer === null) return byRequest.size === 1 && charged > 0n && charged <= 50n;
  return byRequest.size === 1 && charged === BigInt(answer.inputTokens + answer.outputTokens);
}

function describe(answer: CompleteAnswer | null): string {
  return answer === null ? 'early' : `whole with ${answer.inputTokens + answer.outputTokens} tokens`;
}

function seconds(sinceMs: number): number {
  return Math.round((performance.now() - sinceMs) / 1_000);
}
