// The clock of the database jumps 120 s ahead while two gateways run: every lease looks
// expired, and allotments of live gateways are taken back. Their calls end as late charges.
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, type Database } from '../../../src/kernel/data/database.ts';
import { sqlAllotmentStore } from '../../../src/gateway/credits/index.ts';
import { silentLog } from '../../support/template.ts';
import { chat, checkLedger, makeCustomer, readBooks, speak, stopGateway } from '../money-world.ts';
import { chatUntil, checkAcknowledged, type ScenarioContext } from './scenario.ts';

export async function clockAhead({ world, databaseUrl }: ScenarioContext): Promise<void> {
  const gateways = [await world.startGateway(), await world.startGateway()];
  const urls = gateways.map(({ url }) => url);
  const admin = await world.logIn(gateways[0] as (typeof gateways)[0]);
  const richCustomer = await makeCustomer(admin, 'rich', 1_000_000);
  const poorCustomer = await makeCustomer(admin, 'poor', 400);
  const database = await world.connect();
  const name = new URL(databaseUrl).pathname.slice(1);
  try {
    const end = new AbortController();
    const chats = chatUntil(end.signal, { urls, token: richCustomer.token, clients: 6 });
    const streams = [richCustomer, richCustomer, poorCustomer].map(({ token }, index) =>
      chat(urls[index % 2] as string, token, { model: 'acme/slow-40', stream: true }).catch(() => null),
    );
    await sleep(1_500);
    await setClock(database, name, '120 seconds');
    const aheadDatabase = await connect(
      { url: databaseUrl, limits: { maxConnections: 1 } },
      { log: silentLog },
    );
    const endedCount = await takeBackFor(aheadDatabase, 3_000);
    await aheadDatabase.close();
    const { status } = await speak(urls[0] as string, poorCustomer.token, 390);
    await setClock(database, name, '0');
    const answers = await Promise.all(streams);
    await sleep(2_000);
    end.abort();
    const { acknowledged, refusals } = await chats;
    for (const gateway of gateways) await stopGateway(gateway, 'SIGTERM');

    world.check(endedCount > 0, `${endedCount} allotments of live gateways were taken back`);
    const [richBooks, poorBooks] = [
      await readBooks(database, richCustomer.userId),
      await readBooks(database, poorCustomer.userId),
    ];
    const streamAnswers = answers.slice(0, 2).flatMap((entry) => entry ?? []);
    checkAcknowledged(world, [...acknowledged, ...streamAnswers], richBooks);
    world.check(
      richBooks.posted === 1_000_000n - richBooks.charged && poorBooks.posted === 400n - poorBooks.charged,
      `the balances lost the charges: ${richBooks.charged} and ${poorBooks.charged} ` +
        `(a call of 390 during the stream: ${status})`,
    );
    world.check(richBooks.held === 0n && poorBooks.held === 0n, 'nothing is held');
    console.log(`       ${refusals} chats were refused meanwhile`);
    await checkLedger(world, database);
  } finally {
    await database.close();
  }
}

/**
 * Shifts the clock for all sessions: ends the gateways' sessions, which reconnect with the new
 * setting.
 */
async function setClock({ sql }: Database, name: string, interval: string): Promise<void> {
  await sql.unsafe(`alter database ${name} set townhall.clock_shift = '${interval}'`);
  await sql`
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = ${name} and pid <> pg_backend_pid()`;
}

/**
 * Takes expired allotments back for this long, as a third gateway would. Returns the number of
 * ended allotments.
 */
async function takeBackFor(database: Database, ms: number): Promise<number> {
  const store = sqlAllotmentStore(database);
  const untilMs = performance.now() + ms;
  let count = 0;
  while (performance.now() < untilMs) {
    count += (await store.takeBackExpired(1_000)).length;
    await sleep(20);
  }
  return count;
}
