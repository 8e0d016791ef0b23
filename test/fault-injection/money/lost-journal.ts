// A gateway's machine is lost with its journal, which has charges that the database never received.
// Its credits are released after a minute. A later replay of the journal charges the calls once,
// and a second replay has no effect, even after retention has dropped the usage records.
import { cp, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { creditsStore, sqlAllotmentStore } from '../../../src/gateway/credits/index.ts';
import { usageStore } from '../../../src/gateway/usage/index.ts';
import type { Database } from '../../../src/kernel/data/database.ts';
import { startDatabaseProxy } from '../database-proxy.ts';
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
  type MoneyWorld,
} from '../money-world.ts';
import { checkAcknowledged, type ScenarioContext } from './scenario.ts';

// As pauses.ts explains, the survivor first takes allotments back 120 s after its start.
const lossAtMs = 45_000;

export async function lostJournal({ world, databaseUrl, random }: ScenarioContext): Promise<void> {
  const startedMs = performance.now();
  const survivor = await world.startGateway();
  const proxy = await startDatabaseProxy(databaseUrl, random);
  const journal = join(world.folder, 'journal-elsewhere');
  const lostGateway = await world.startGateway({ databaseUrl: proxy.url, journal });
  const admin = await world.logIn(survivor);
  const richCustomer = await makeCustomer(admin, 'rich', 100_000);
  const poorCustomer = await makeCustomer(admin, 'poor', 1_000);
  const database = await world.connect();
  try {
    await sleep(Math.max(0, lossAtMs - (performance.now() - startedMs)));
    const calls = [richCustomer, poorCustomer].flatMap(({ token }) =>
      Array.from({ length: 3 }, () =>
        chat(lostGateway.url, token, { model: 'acme/slow-40', stream: true, timeoutMs: 60_000 }).catch(
          () => null,
        ),
      ),
    );
    await sleep(1_500);
    proxy.cut();
    const answers = await Promise.all(calls);
    const [richAnswers, poorAnswers] = [answers.slice(0, 3), answers.slice(3)].map((customerAnswers) =>
      customerAnswers.filter((entry): entry is CompleteAnswer => entry !== null),
    ) as [CompleteAnswer[], CompleteAnswer[]];
    await stopGateway(lostGateway, 'SIGKILL');
    await rename(journal, `${journal}-lost`);
    world.check(
      richAnswers.length + poorAnswers.length === 6 &&
        (await readBooks(database, richCustomer.userId)).charged === 0n,
      `${richAnswers.length + poorAnswers.length} of 6 streams ended without a database; ` +
        'only the journal has their charges',
    );

    const isFree = async (): Promise<boolean> => (await readBooks(database, poorCustomer.userId)).held === 0n;
    world.check(await waitUntil(isFree, 150_000), 'the credits of a gateway without a journal are released');
    const { status } = await speak(survivor.url, poorCustomer.token, 990);
    world.check(status === 200, `another gateway spends them: ${status}`);

    await cp(`${journal}-lost`, `${journal}-copy`, { recursive: true });
    await rename(`${journal}-lost`, journal);
    await stopGateway(await world.startGateway({ journal }), 'SIGTERM');
    checkAcknowledged(world, richAnswers, await readBooks(database, richCustomer.userId));
    checkPoorBooks(world, poorAnswers, await readBooks(database, poorCustomer.userId));
    await checkLedger(world, database);

    await runRetention(database);
    await cp(`${journal}-copy`, journal, { recursive: true });
    await checkSecondReplay(world, database, { journal, userId: richCustomer.userId });
  } finally {
    await database.close();
    await proxy.close();
  }
}

function checkPoorBooks(
  world: MoneyWorld,
  answers: readonly CompleteAnswer[],
  { posted, charged, byRequest }: Books,
): void {
  world.check(
    // Late charges do not reduce the survivor's own allotment: an eighth of the remaining credits.
    posted >= 0n &&
      posted <= 2n &&
      charged === 1_000n - posted &&
      answers.every(({ requestId }) => byRequest.get(requestId)?.length === 1),
    `late charges take the rest of the poor user: ${posted} left, ${charged} charged`,
  );
}

async function checkSecondReplay(
  world: MoneyWorld,
  database: Database,
  { journal, userId }: { journal: string; userId: string },
): Promise<void> {
  const booksBefore = await readBooks(database, userId);
  await stopGateway(await world.startGateway({ journal }), 'SIGTERM');
  const booksAfter = await readBooks(database, userId);
  world.check(
    booksBefore.byRequest.size === 0 &&
      booksAfter.posted === booksBefore.posted &&
      booksAfter.byRequest.size === 0,
    `replayed again after retention, the journal charges ${booksBefore.posted - booksAfter.posted}`,
  );
}

/** Runs the deletions of retention as if all rows were old. */
async function runRetention(database: Database): Promise<void> {
  await usageStore(database).deleteOld(0, 1_000_000);
  await sqlAllotmentStore(database).dropOld(0, 1_000_000);
  await creditsStore(database).dropOldHolds(0, 1_000_000);
}
