import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { createGatewayClient, type AcceptedJob, type GatewayClient } from '@townhall/gateway';
import { describe, expect, it } from 'vitest';
import { connect, type ConnectOptions } from '../../../../src/kernel/data/database.ts';
import { databaseEnv, makeDatabase, silentLog } from '../../../support/databases.ts';
import { testMasterKey } from '../../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { waitForEnd, waitForVideo, imagesOf } from '../media/media-world.ts';

describe.concurrent('a killed server', { timeout: 240_000 }, () => {
  it('leaves its image job to the next server', async () => {
    await withServers(
      { painter: 'images-later?calls=1' },
      async ({ provider, begin, expireLeases, storage }) => {
        const firstGateway = await begin();
        const { job_id } = await firstGateway.client.ai.createImage({
          model: 'acme/painter',
          prompt: 'x',
          n: 2,
        });
        await provider.until((calls) => calls.length === 1, 60_000);
        expect(await firstGateway.client.ai.getImage({ job_id })).toMatchObject({ status: 'running' });
        firstGateway.child.kill('SIGKILL');
        await firstGateway.exited;
        await expireLeases();
        const secondGateway = await begin();
        const job = await waitForEnd(secondGateway.client, job_id, 120_000);
        expect(job).toMatchObject({ status: 'succeeded', images: [{ width: 1 }, { width: 1 }] });
        expect(provider.calls).toHaveLength(2);
        expect(await readdir(storage)).toHaveLength(2);
        expect((await fetch(imagesOf(job)[0]?.url ?? '')).status).toBe(200);
        secondGateway.child.kill('SIGTERM');
        expect(await secondGateway.exited).toBe(0);
      },
    );
  });

  it('leaves a submitted video to the next server without a second submission', async () => {
    await withServers({ film: 'film?polls=4' }, async ({ provider, begin, expireLeases }) => {
      const firstGateway = await begin();
      const { job_id } = (await firstGateway.client.ai.startVideo({
        model: 'acme/film',
        prompt: 'x',
      })) as AcceptedJob;
      await provider.until((calls) => calls.some(({ method }) => method === 'GET'), 60_000);
      firstGateway.child.kill('SIGKILL');
      await firstGateway.exited;
      await expireLeases();
      const secondGateway = await begin();
      expect(await waitForVideo(secondGateway.client, job_id, 120_000)).toMatchObject({
        status: 'succeeded',
        videos: [{ width: 1280, height: 720, duration_seconds: 4 }],
      });
      expect(provider.calls.filter(({ method }) => method === 'POST')).toHaveLength(1);
      secondGateway.child.kill('SIGTERM');
      expect(await secondGateway.exited).toBe(0);
    });
  });
});

/**
 * Runs the test with a scripted provider and gateways that share one database, one after the other.
 */
async function withServers(
  scripts: Record<string, string>,
  work: (world: {
    provider: ScriptedProvider;
    storage: string;
    begin(): Promise<GatewayProcess>;
    /**
     * Ends the leases of the killed process. With the embedded engine the next process takes them
     * over at once.
     */
    expireLeases(): Promise<void>;
  }) => Promise<void>,
): Promise<void> {
  const place = await makeDatabase();
  const provider = await startProvider();
  const folder = await mkdtemp(join(tmpdir(), 'townhall-jobs-'));
  const storage = join(folder, 'storage');
  const modelsFile = join(folder, 'models.json');
  await writeFile(modelsFile, provider.modelsFile(scripts, { model: { modalities: ['image', 'video'] } }));
  const env = {
    ...databaseEnv(place.options),
    HOST: '127.0.0.1',
    PORT: '0',
    LOG_LEVEL: 'warn',
    TOWNHALL_MASTER_KEY: testMasterKey,
    MODELS_FILE: modelsFile,
    ACME_API_KEY: 'key',
    STORAGE_PATH: storage,
    JOURNAL_PATH: join(folder, 'journal'),
    VIDEO_POLL_MS: '1500',
  };
  const processes: ChildProcess[] = [];
  try {
    await work({
      provider,
      storage,
      begin: () => startProcess(env, processes),
      expireLeases: () => expireLeases(place.options),
    });
  } finally {
    for (const child of processes) child.kill('SIGKILL');
    await provider.close();
    await place.remove();
    await rm(folder, { recursive: true, force: true });
  }
}

async function expireLeases(options: ConnectOptions): Promise<void> {
  if ('path' in options) return;
  const database = await connect(options, { log: silentLog });
  await database.sql`update gateway.ai_jobs set lease_until = gateway.townhall_now()`;
  await database.close();
}

interface GatewayProcess {
  child: ChildProcess;
  client: GatewayClient;
  exited: Promise<number | null>;
}

async function startProcess(env: Record<string, string>, processes: ChildProcess[]): Promise<GatewayProcess> {
  const child = spawn(process.execPath, [join(import.meta.dirname, '../../../support/gateway-process.ts')], {
    env: { ...env, PATH: process.env['PATH'] ?? '' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  processes.push(child);
  const exitCode = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)));
  for await (const line of createInterface({ input: child.stdout })) {
    const { msg, url, userToken } = JSON.parse(line) as { msg?: string; url: string; userToken: string };
    // Each server issues a new token to the same user.
    if (msg === 'listening')
      return { child, exited: exitCode, client: createGatewayClient({ baseUrl: url, token: userToken }) };
  }
  throw new Error(`The process ended with ${await exitCode} before it listened.`);
}
