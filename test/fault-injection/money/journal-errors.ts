// The disk of the journal fails under a running gateway: the first fdatasync of each of its threads returns
// EIO, then every write returns ENOSPC for eight seconds. strace changes the results of the system calls.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { checkLedger, makeCustomer, readBooks, speak, stopGateway, waitUntil } from '../money-world.ts';
import { chatUntil, checkAcknowledged, type ScenarioContext } from './scenario.ts';

// Any price will do: the customer can pay it a hundred thousand times.
const callCredits = 10;

export async function journalErrors({ world }: ScenarioContext): Promise<void> {
  const gateway = await world.startGateway();
  const { pid } = gateway.process;
  if (pid === undefined) throw new Error('The gateway has no process.');
  const { token, userId } = await makeCustomer(await world.logIn(gateway), 'rich', 1_000_000);
  const isReady = async (): Promise<boolean> => (await fetch(`${gateway.url}/ready`)).status === 200;
  const end = new AbortController();
  const chats = chatUntil(end.signal, { urls: [gateway.url], token, clients: 5 });
  await sleep(2_000);

  const trace = join(world.folder, 'strace.txt');
  const failedSync = await injectErrors(pid, ['fdatasync:error=EIO:when=1'], trace);
  await sleep(2_000);
  const failedSyncs = await failedSync.end();
  world.check(failedSyncs > 0, `${failedSyncs} syncs failed`);
  const isServing = async (): Promise<boolean> =>
    (await isReady()) && (await speak(gateway.url, token, callCredits)).status === 200;
  world.check(await waitUntil(isServing, 15_000), 'calls succeed again after failed syncs');

  const fullDisk = await injectErrors(pid, ['pwrite64:error=ENOSPC', 'fdatasync:error=ENOSPC'], trace);
  const isFailed = await waitUntil(async () => !(await isReady()), 8_000);
  const refusal = await speak(gateway.url, token, callCredits);
  world.check(isFailed && refusal.status === 503, `on a full disk: a call ${refusal.status}, not ready`);
  await sleep(8_000);
  const failedWrites = await fullDisk.end();
  world.check(failedWrites > 0, `${failedWrites} writes and syncs failed`);
  world.check(await waitUntil(isServing, 20_000), 'calls succeed again once the disk has room');

  end.abort();
  const { acknowledged, refusals } = await chats;
  await stopGateway(gateway, 'SIGKILL');
  const next = await world.startGateway();
  const database = await world.connect();
  try {
    world.check(
      await waitUntil(async () => (await readBooks(database, userId)).held === 0n, 30_000),
      'nothing stays held',
    );
    await stopGateway(next, 'SIGTERM');
    console.log(`       ${refusals} chats were refused`);
    checkAcknowledged(world, acknowledged, await readBooks(database, userId));
    await checkLedger(world, database);
  } finally {
    await database.close();
  }
}

/**
 * Makes system calls fail, in the syntax of strace (`fdatasync:error=EIO`), until `end` is called, which resolves
 * with the number of calls that failed. strace writes the calls to the file `trace`.
 */
async function injectErrors(
  pid: number,
  errors: readonly string[],
  trace: string,
): Promise<{ end(): Promise<number> }> {
  const calls = errors.map((error) => error.split(':')[0]).join();
  const options = ['-f', '-q', '-o', trace, '-p', String(pid), '-e', `trace=${calls}`];
  for (const error of errors) options.push('-e', `inject=${error}`);
  const tracer: ChildProcess = spawn('strace', options, { stdio: 'inherit' });
  const exit = once(tracer, 'exit');
  await Promise.race([sleep(500), exit]);
  if (tracer.exitCode !== null) throw new Error('strace could not attach to the gateway.');
  return {
    async end() {
      tracer.kill('SIGINT');
      await exit;
      // strace marks each result that it has changed.
      return (await readFile(trace, 'utf8')).split('(INJECTED)').length - 1;
    },
  };
}
