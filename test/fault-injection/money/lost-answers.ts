// Two gateways reach the database through proxies that drop responses after the statements have
// run. No charge may be doubled or lost, and the rest of a small balance must be spendable.
import { setTimeout as sleep } from 'node:timers/promises';
import { startDatabaseProxy } from '../database-proxy.ts';
import {
  checkLedger,
  countBy,
  makeCustomer,
  readBooks,
  speak,
  stopGateway,
  waitUntil,
  type GatewayProcess,
} from '../money-world.ts';
import { chatUntil, checkAcknowledged, type ScenarioContext } from './scenario.ts';

const lostShare = 0.03;

export async function lostAnswers({ world, databaseUrl, random }: ScenarioContext): Promise<void> {
  const proxies = [
    await startDatabaseProxy(databaseUrl, random),
    await startDatabaseProxy(databaseUrl, random),
  ];
  const gateways: GatewayProcess[] = [];
  for (const { url } of proxies) gateways.push(await world.startGateway({ databaseUrl: url }));
  const urls = gateways.map(({ url }) => url);
  const admin = await world.logIn(gateways[0] as GatewayProcess);
  const richCustomer = await makeCustomer(admin, 'rich', 1_000_000);
  const poorCustomer = await makeCustomer(admin, 'poor', 500);
  for (const proxy of proxies) proxy.dropAnswers(lostShare);
  const end = new AbortController();
  const chats = chatUntil(end.signal, { urls, token: richCustomer.token, clients: 10 });
  const speechCalls = Array.from({ length: 200 }, async (_, index) => {
    await sleep(random() * 15_000);
    return speak(urls[index % urls.length] as string, poorCustomer.token, 20);
  });
  const speeches = await Promise.all(speechCalls);
  end.abort();
  const { acknowledged, refusals } = await chats;
  for (const proxy of proxies) proxy.dropAnswers(0);
  for (const gateway of gateways) await stopGateway(gateway, 'SIGKILL');

  const survivor = await world.startGateway();
  const database = await world.connect();
  try {
    const isFree = async (): Promise<boolean> =>
      (await readBooks(database, poorCustomer.userId)).held === 0n &&
      (await readBooks(database, richCustomer.userId)).held === 0n;
    world.check(await waitUntil(isFree, 150_000), 'nothing stays held');
    const booksBefore = await readBooks(database, poorCustomer.userId);
    const successes = speeches.filter(({ status }) => status === 200);
    world.check(
      successes.every(({ requestId }) => booksBefore.byRequest.get(requestId)?.join() === '20') &&
        booksBefore.posted === 500n - booksBefore.charged,
      `200 calls of 20 credits on 500: ${JSON.stringify(countBy(speeches, ({ status }) => status))}, ` +
        `${booksBefore.charged} charged, ${booksBefore.posted} left`,
    );
    const remainingCredits = Number(booksBefore.posted);
    const remainder =
      remainingCredits === 0 ? 200 : (await speak(survivor.url, poorCustomer.token, remainingCredits)).status;
    world.check(remainder === 200, `the remaining ${remainingCredits} credits can be spent: ${remainder}`);
    await stopGateway(survivor, 'SIGTERM');
    console.log(`       ${refusals} chats were refused or broke off`);
    checkAcknowledged(world, acknowledged, await readBooks(database, richCustomer.userId));
    await checkLedger(world, database);
  } finally {
    await database.close();
    for (const proxy of proxies) await proxy.close();
  }
}
