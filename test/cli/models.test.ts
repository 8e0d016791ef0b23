// `townhall models check`: its report on working, failing and unconfigured providers, with a server
// and without.
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { databaseEnv, makeDatabase, type DatabasePlace } from '../support/databases.ts';
import { testMasterKey } from '../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../support/provider.ts';
import { runTownhall, townhall } from './townhall.ts';

const key = 'CANARY-7a1b-key';

describe('townhall models check', () => {
  let folder: string;
  let place: DatabasePlace;
  let provider: ScriptedProvider;
  let env: Record<string, string>;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-models-'));
    place = await makeDatabase();
    provider = await startProvider();
    env = {
      ...databaseEnv(place.options),
      TOWNHALL_MASTER_KEY: testMasterKey,
      MODELS_FILE: join(folder, 'models.json'),
      ACME_API_KEY: key,
    };
  });
  afterAll(async () => {
    await provider?.close();
    await place?.remove();
    await rm(folder, { recursive: true, force: true });
  });

  /** Writes a models file with a provider for each script, and one whose key is not set. */
  async function writeModelsFile(
    scripts: Record<string, string>,
    members: Record<string, unknown>[] = [],
  ): Promise<void> {
    const providers = [
      ...Object.keys(scripts).map((id) => ({
        id,
        kind: 'openai-compatible',
        base_url: provider.url,
        api_key_env: 'ACME_API_KEY',
      })),
      { id: 'idle', kind: 'openai-compatible', base_url: provider.url, api_key_env: 'IDLE_KEY' },
      ...members,
    ];
    const models = providers.map(({ id }) => ({
      id: `${id as string}/one`,
      provider: id,
      upstream_model: scripts[id as string] ?? 'ok',
      rates: null,
    }));
    await writeFile(join(folder, 'models.json'), JSON.stringify({ providers, models }));
  }

  test('exits with 0 when all configured providers answer', async () => {
    await writeModelsFile({ acme: 'ok' });
    const { code, screen } = await runTownhall(['models', 'check'], { cwd: folder, env });
    expect(code, screen).toBe(0);
    expect(screen).toMatch(/^acme is well: acme\/one answers, after \d+ ms\.$/m);
    expect(screen).toMatch(/^Not configured: .*idle \(IDLE_KEY is not set\).*\.$/m);
    expect(screen).toContain('openai (OPENAI_API_KEY is not set)');
  });

  test('names each failure without a key', async () => {
    await writeModelsFile(
      {
        well: 'ok',
        keyless: 'status?code=401',
        gone: 'status?code=404&message=no+such+model',
        ill: 'status?code=503',
        odd: 'html',
      },
      [
        { id: 'nowhere', kind: 'openai-compatible', base_url: 'http://127.0.0.1:9/v1' },
        {
          id: 'cloud',
          kind: 'vertex',
          base_url: provider.url,
          project: 'acme',
          location: 'eu',
          credentials: { type: 'service_account', key_env: 'ACME_API_KEY' },
        },
      ],
    );
    const callCount = provider.calls.length;
    const { code, screen } = await runTownhall(['models', 'check', '--json'], { cwd: folder, env });
    expect(code, screen).toBe(1);
    const checks = JSON.parse(screen) as {
      provider: string;
      state: string;
      code: string | null;
      message: string;
    }[];
    const checkOf = (id: string) => checks.find((check) => check.provider === id);
    expect(checkOf('well')).toMatchObject({ state: 'well', code: null });
    expect(checkOf('keyless')).toMatchObject({
      state: 'failing',
      code: 'provider_credentials',
      message: expect.stringContaining('ACME_API_KEY'),
    });
    expect(checkOf('gone')).toMatchObject({
      state: 'failing',
      message: expect.stringContaining('no such model'),
    });
    expect(checkOf('ill')).toMatchObject({
      state: 'failing',
      code: 'upstream_failed',
      message: expect.stringContaining('503'),
    });
    expect(checkOf('odd')).toMatchObject({ state: 'failing', code: 'upstream_failed' });
    expect(checkOf('nowhere')).toMatchObject({
      state: 'failing',
      message: expect.stringContaining('http://127.0.0.1:9/v1'),
    });
    expect(checkOf('cloud')).toMatchObject({
      state: 'failing',
      code: 'provider_credentials',
      message: expect.stringContaining('needs client_email and private_key'),
    });
    expect(checkOf('idle')).toMatchObject({ state: 'not_configured' });
    expect(screen).not.toContain(key);
    // Called once each: a retry would hide the failure that the check looks for.
    expect(provider.calls.length - callCount).toBe(5);
  });

  test('calls a provider with each of its keys', async () => {
    await writeModelsFile({}, [
      {
        id: 'twin',
        kind: 'openai-compatible',
        base_url: provider.url,
        keys: [{ env: 'TWIN_KEY_1' }, { env: 'TWIN_KEY_2' }, { env: 'TWIN_KEY_3' }],
      },
    ]);
    provider.answerKey('CANARY-second', { status: 401 });
    const twinKeys = { TWIN_KEY_1: 'CANARY-first', TWIN_KEY_2: 'CANARY-second' };
    const { code, screen } = await runTownhall(['models', 'check'], {
      cwd: folder,
      env: { ...env, ...twinKeys },
    });
    expect(code, screen).toBe(1);
    provider.answerKey('CANARY-second');
    expect(screen).toMatch(/^twin \(TWIN_KEY_1\) is well: twin\/one answers/m);
    expect(screen).toMatch(/^twin \(TWIN_KEY_2\) is failing: .*refused the key of TWIN_KEY_2/m);
    expect(screen).not.toContain('TWIN_KEY_3');
    expect(screen).not.toContain('CANARY');
  });

  test('runs in the server that holds the database', async () => {
    await writeModelsFile({ acme: 'ok' });
    const server = townhall(['gateway', '--port', '0', '--host', '127.0.0.1'], { cwd: folder, env });
    await server.waitFor(/"url":"http/);
    const { code, screen } = await runTownhall(['models', 'check'], { cwd: folder, env });
    expect(code, screen).toBe(0);
    expect(screen).toContain('acme is well');
    server.process.kill('SIGTERM');
    await server.ended;
  });

  test('creates no database before the first start', async () => {
    await writeModelsFile({ acme: 'ok' });
    const emptyFolder = await mkdtemp(join(folder, 'empty-'));
    const { code, screen } = await runTownhall(['models', 'check'], {
      cwd: emptyFolder,
      env: { HOME: folder, TMPDIR: emptyFolder, MODELS_FILE: join(folder, 'models.json'), ACME_API_KEY: key },
    });
    expect(code, screen).toBe(0);
    expect(screen).toContain('acme is well');
    expect(await readdir(emptyFolder)).toEqual([]);
  });

  test('refuses unknown names with 2', async () => {
    const { code, screen } = await runTownhall(['models', 'absent'], { cwd: folder, env });
    expect(code).toBe(2);
    expect(screen).toContain('townhall models check');
  });
});
