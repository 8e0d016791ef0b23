// `db restore` of a backup under a running gateway: the tables are dropped and restored while calls continue.
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { runTownhall } from '../../cli/townhall.ts';
import { checkLedger, makeCustomer, masterKey, readBooks, stopGateway, waitUntil } from '../money-world.ts';
import { chatUntil, checkAcknowledged, type ScenarioContext } from './scenario.ts';

export async function restoredLedger(context: ScenarioContext): Promise<void> {
  const { world } = context;
  const gateway = await world.startGateway();
  const { token, userId } = await makeCustomer(await world.logIn(gateway), 'rich', 1_000_000);
  const startLoad = (end: AbortSignal) => chatUntil(end, { urls: [gateway.url], token, clients: 5 });
  const database = await world.connect();
  try {
    const firstEnd = new AbortController();
    const firstLoad = startLoad(firstEnd.signal);
    await sleep(3_000);
    firstEnd.abort();
    const firstResult = await firstLoad;
    const file = join(world.folder, 'first.backup');
    await runDatabaseCommand(context, 'backup', file);
    const backupBooks = await readBooks(database, userId);

    const secondEnd = new AbortController();
    const secondLoad = startLoad(secondEnd.signal);
    await sleep(3_000);
    const { posted } = await readBooks(database, userId);
    await database.sql.unsafe('drop schema gateway cascade; drop schema if exists pgboss cascade');
    await runDatabaseCommand(context, 'restore', file);
    const isBack = await waitUntil(async () => {
      const books = await readBooks(database, userId).catch(() => null);
      return books !== null && books.byRequest.size > backupBooks.byRequest.size;
    }, 30_000);
    world.check(isBack, 'the gateway continues in the restored ledger without a restart');
    await sleep(2_000);
    secondEnd.abort();
    const { acknowledged, refusals } = await secondLoad;
    await stopGateway(gateway, 'SIGTERM');

    const books = await readBooks(database, userId);
    checkAcknowledged(world, firstResult.acknowledged, books);
    const inLedger = acknowledged.filter(({ requestId }) => books.byRequest.has(requestId));
    checkAcknowledged(world, inLedger, books);
    world.check(
      books.posted === 1_000_000n - books.charged && books.held === 0n,
      `${backupBooks.posted} credits in the backup, ${posted} before the restore, ` +
        `${books.posted} at the end with ${books.charged} charged credits; ${books.held} held`,
    );
    console.log(
      `       ${inLedger.length} of ${acknowledged.length} answers around the restore are in the restored ` +
        `ledger, the others belong to the dropped one; ${refusals} refused`,
    );
    await checkLedger(world, database);
  } finally {
    await database.close();
  }
}

/** Runs `townhall db …` on the database of the scenario; throws its output when it fails. */
async function runDatabaseCommand(
  { world, databaseUrl }: ScenarioContext,
  command: 'backup' | 'restore',
  file: string,
): Promise<void> {
  const { code, screen } = await runTownhall(['db', command, file], {
    cwd: world.folder,
    env: { DATABASE_URL: databaseUrl, TOWNHALL_MASTER_KEY: masterKey },
  });
  if (code !== 0) throw new Error(`townhall db ${command} ended with ${code}:\n${screen}`);
}
