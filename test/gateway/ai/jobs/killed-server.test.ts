// Media jobs of a gateway that is killed while it runs them, and the next gateway, which continues them.
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGatewayClient, type AcceptedJob } from '@townhall/gateway';
import { describe, expect, it } from 'vitest';
import { connect, type ConnectOptions } from '../../../../src/kernel/data/database.ts';
import { databaseEnv, makeDatabase, silentLog } from '../../../support/databases.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startGatewayChild, type GatewayChild } from '../gateway-child.ts';
import { waitForEnd, waitForVideo, imagesOf } from '../media/media-world.ts';

describe.concurrent('a killed server', { timeout: 240_000 }, () => {
  it('leaves its image job to the next server', async () => {
    await withServers(
      { painter: 'images-later?calls=1' },
      async ({ provider, startServer, expireLeases, storage }) => {
        const killedServer = await startServer();
        const { ai } = clientOf(killedServer);
        const { job_id } = await ai.createImage({ model: 'acme/painter', prompt: 'x', n: 2 });
        await provider.until((calls) => calls.length === 1, 60_000);
        expect(await ai.getImage({ job_id })).toMatchObject({ status: 'running' });
        await killedServer.end('SIGKILL');
        await expireLeases();
        const nextServer = await startServer();
        const job = await waitForEnd(clientOf(nextServer), job_id, 120_000);
        expect(job).toMatchObject({ status: 'succeeded', images: [{ width: 1 }, { width: 1 }] });
        expect(provider.calls).toHaveLength(2);
        expect(await readdir(storage)).toHaveLength(2);
        expect((await fetch(imagesOf(job)[0]?.url ?? '')).status).toBe(200);
        expect(await nextServer.end('SIGTERM')).toBe(0);
      },
    );
  });

  it('leaves a submitted video to the next server without a second submission', async () => {
    await withServers({ film: 'film?polls=4' }, async ({ provider, startServer, expireLeases }) => {
      const killedServer = await startServer();
      const video = { model: 'acme/film', prompt: 'x' };
      const { job_id } = (await clientOf(killedServer).ai.startVideo(video)) as AcceptedJob;
      await provider.until((calls) => calls.some(({ method }) => method === 'GET'), 60_000);
      await killedServer.end('SIGKILL');
      await expireLeases();
      const nextServer = await startServer();
      expect(await waitForVideo(clientOf(nextServer), job_id, 120_000)).toMatchObject({
        status: 'succeeded',
        videos: [{ width: 1280, height: 720, duration_seconds: 4 }],
      });
      expect(provider.calls.filter(({ method }) => method === 'POST')).toHaveLength(1);
      expect(await nextServer.end('SIGTERM')).toBe(0);
    });
  });
});

const clientOf = ({ url, token }: GatewayChild) => createGatewayClient({ baseUrl: url, token });

interface Servers {
  provider: ScriptedProvider;
  /** The folder of the media. */
  storage: string;
  startServer(): Promise<GatewayChild>;
  /**
   * Expires the leases of the killed process. With the embedded engine this is not needed: the next process
   * takes all jobs over when it starts.
   */
  expireLeases(): Promise<void>;
}

/**
 * Runs the test with a scripted provider and gateways that share one database, one after the other.
 */
async function withServers(
  scripts: Record<string, string>,
  run: (servers: Servers) => Promise<void>,
): Promise<void> {
  const place = await makeDatabase();
  const provider = await startProvider();
  const folder = await mkdtemp(join(tmpdir(), 'townhall-jobs-'));
  const storage = join(folder, 'storage');
  const modelsFile = join(folder, 'models.json');
  await writeFile(modelsFile, provider.modelsFile(scripts, { model: { modalities: ['image', 'video'] } }));
  const servers: GatewayChild[] = [];
  async function startServer(): Promise<GatewayChild> {
    const server = await startGatewayChild({
      ...databaseEnv(place.options),
      MODELS_FILE: modelsFile,
      ACME_API_KEY: 'key',
      STORAGE_PATH: storage,
      JOURNAL_PATH: join(folder, 'journal'),
      VIDEO_POLL_MS: '1500',
    });
    servers.push(server);
    return server;
  }
  try {
    await run({ provider, storage, startServer, expireLeases: () => expireLeases(place.options) });
  } finally {
    await Promise.all(servers.map((server) => server.end('SIGKILL')));
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
