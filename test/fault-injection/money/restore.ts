// `db restore` of a backup under a running gateway: the tables are dropped and restored while calls continue.
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { entry } from '../../cli/townhall.ts';
import { checkLedger, makeCustomer, masterKey, readBooks, stopGateway, waitUntil } from '../money-world.ts';
import { chatUntil, checkAcknowledged, type ScenarioContext } from './scenario.ts';

export async function restoredLedger({ world, databaseUrl }: ScenarioContext): Promise<void> {
  const townhall = async (...words: string[]): Promise<void> => {
    const env = {
      PATH: process.env['PATH'],
      HOME: world.folder,
      DATABASE_URL: databaseUrl,
      TOWNHALL_MASTER_KEY: masterKey,
    };
    await promisify(execFile)(process.execPath, [entry, ...words], { cwd: world.folder, env });
  };
  const gateway = await world.startGateway();
  const { token, userId } = await makeCustomer(await world.logIn(gateway), 'rich', 1_000_000);
  const load = (end: AbortSignal) => chatUntil(end, { urls: [gateway.url], token, clients: 5 });
  const database = await world.connect();
  try {
    const firstAbort = new AbortController();
    const firstLoad = load(firstAbort.signal);
    await sleep(3_000);
    firstAbort.abort();
    const firstResult = await firstLoad;
    const file = join(world.folder, 'first.backup');
    await townhall('db', 'backup', file);
    const backupBooks = await readBooks(database, userId);

    const secondAbort = new AbortController();
    const secondLoad = load(secondAbort.signal);
    await sleep(3_000);
    const { posted } = await readBooks(database, userId);
    await database.sql.unsafe('drop schema gateway cascade; drop schema if exists pgboss cascade');
    await townhall('db', 'restore', file);
    const isBack = await waitUntil(async () => {
      const books = await readBooks(database, userId).catch(() => null);
      return books !== null && books.byRequest.size > backupBooks.byRequest.size;
    }, 30_000);
    world.check(isBack, 'the gateway continues in the restored ledger without a restart');
    await sleep(2_000);
    secondAbort.abort();
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
      `       of ${acknowledged.length} answers during the restore ${inLedger.length} are in the restored ` +
        `ledger, the others in journals of the former; ${refusals} refused`,
    );
    await checkLedger(world, database);
  } finally {
    await database.close();
  }
}
