// `townhall doctor` finds problems, says how to solve them, changes nothing and shows no secret.
import { createHash } from 'node:crypto';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, onTestFinished, test, vi } from 'vitest';
import { checkJournalDisk } from '../../src/cli/checks/machine-checks.ts';
import { newMasterKey } from '../../src/kernel/secrets/vault.ts';
import { listenForMetrics } from '../../src/kernel/telemetry/metrics-listener.ts';
import { databaseEnv, makeDatabase, type DatabasePlace } from '../support/databases.ts';
import { startGateway, testMasterKey, type GatewayWorld } from '../support/gateway.ts';
import { listen } from '../support/local-server.ts';
import { silentLog } from '../support/template.ts';
import { startS3Server } from '../support/s3-server.ts';
import { runCommandLine } from './in-process.ts';
import { jsonResult, runTownhall } from './townhall.ts';

vi.setConfig({ testTimeout: 120_000 });

interface Finding {
  check: string;
  state: string;
  message: string;
  next: string | null;
}

let folder: string;
let place: DatabasePlace;
let env: Record<string, string>;
let world: GatewayWorld;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-doctor-'));
  place = await makeDatabase();
  env = { ...databaseEnv(place.options), TOWNHALL_MASTER_KEY: testMasterKey };
  world = await startGateway({ withAdmin: true, place });
});
afterAll(async () => {
  await place?.remove();
  await rm(folder, { recursive: true, force: true });
});

async function examine(
  words: string[],
  members: Record<string, string> = {},
): Promise<{
  code: number;
  findings: Finding[];
  screen: string;
  of(check: string): Finding | undefined;
}> {
  const { code, screen } = await runCommandLine(['doctor', '--json', '--port', '0', ...words], {
    cwd: folder,
    env: { ...env, AGENT_PORT: '0', OPENAI_API_KEY: 'CANARY-openai-key', ...members },
  });
  expect(screen).not.toMatch(/CANARY|\n\s+at /);
  expect(screen).not.toContain(testMasterKey);
  const { findings } = jsonResult(screen) as { findings: Finding[] };
  return {
    code,
    findings,
    screen,
    of: (check) => findings.find((finding) => finding.check === check),
  };
}

describe('checkJournalDisk', () => {
  test.each([
    ['tmpfs', 0x01021994, 'fail'],
    ['ramfs', 0x858458f6, 'fail'],
    ['overlayfs', 0x794c7630, 'warn'],
    ['ext4', 0xef53, 'ok'],
  ])('reports a journal on %s', async (_name, type, state) => {
    expect(await checkJournalDisk(folder, async () => type)).toMatchObject({ check: 'journal', state });
  });
});

describe('townhall doctor', () => {
  test('reports no problem beside a running server', async () => {
    await world.admin.env.upsertVariable({ key: 'ANTHROPIC_API_KEY', value: 'CANARY-anthropic-key' });
    const { code, findings, of } = await examine([]);
    expect(findings.filter(({ state }) => state === 'fail')).toEqual([]);
    expect(code).toBe(0);
    for (const check of [
      'node',
      'database',
      'durability',
      'migrations',
      'clock',
      'master key',
      'journal',
      'disk',
      'contract',
    ])
      expect(of(check), check).toMatchObject({ state: 'ok', next: null });
    // A gateway on PostgreSQL cannot tell the command its variables, so the variables of this environment
    // count.
    expect(of('providers')?.message).toContain(
      inject('databaseSource')?.engine !== 'postgres'
        ? 'ANTHROPIC_API_KEY is set in the running gateway'
        : 'ANTHROPIC_API_KEY, OPENAI_API_KEY are set',
    );
    for (const { state, next } of findings) expect(state === 'ok').toBe(next === null);
  });

  test('prints each check with its state and advice', async () => {
    const { code, screen } = await runTownhall(['doctor', '--port', '0'], {
      cwd: folder,
      env: { ...env, AGENT_PORT: '0', MODELS_FILE: join(folder, 'absent.json') },
    });
    expect(code).toBe(1);
    expect(screen).toMatch(/^ok {4}node {13}Node v\d+/m);
    expect(screen).toMatch(/^fail {2}providers[^\n]*\n {20,}Check MODELS_FILE/m);
    expect(screen).toMatch(/1 failed, \d with a warning\.\n$/);
  });

  describe('providers of the models file', () => {
    const keys = [{ env: 'A_KEY' }, { env: 'B_KEY' }];
    const base = { id: 'acme', kind: 'openai-compatible', base_url: 'https://acme.example/v1' };
    const aws = {
      type: 'aws',
      region: 'eu-central-1',
      access_key_id_env: 'AWS_ID',
      secret_access_key_env: 'AWS_SECRET',
    };
    const checkProvider = async (provider: object, members: Record<string, string> = {}) => {
      const modelsFile = join(folder, 'models.json');
      await writeFile(modelsFile, JSON.stringify({ providers: [provider] }));
      return (await examine([], { MODELS_FILE: modelsFile, ...members })).of('providers');
    };

    test.each([
      ['one of several keys', { ...base, keys }, { B_KEY: 'CANARY-b' }, 'B_KEY'],
      [
        'the key of an endpoint',
        { ...base, endpoints: [{ base_url: 'https://eu.acme.example', api_key_env: 'EU_KEY' }] },
        { EU_KEY: 'CANARY-eu' },
        'EU_KEY',
      ],
      [
        'credentials',
        { id: 'rock', kind: 'bedrock', credentials: aws },
        { AWS_ID: 'CANARY-id', AWS_SECRET: 'CANARY-secret' },
        'AWS_ID, AWS_SECRET',
      ],
    ])('names %s', async (_name, provider, members, names) => {
      expect(await checkProvider(provider, members)).toMatchObject({
        state: 'ok',
        message: expect.stringContaining(names),
      });
    });

    test.each([
      ['no key', { ...base, keys }, {}, 'acme: none of A_KEY, B_KEY is set.'],
      [
        'half of its credentials',
        { id: 'rock', kind: 'bedrock', credentials: aws },
        { AWS_ID: 'CANARY-id' },
        'rock: AWS_SECRET is not set.',
      ],
    ])('warns of a provider with %s', async (_name, provider, members, message) => {
      expect(await checkProvider(provider, members)).toMatchObject({ state: 'warn', message });
    });

    test('fails on an invalid provider', async () => {
      expect(await checkProvider({ id: 'acme', keys: 5 })).toMatchObject({ state: 'fail' });
    });
  });

  test('accepts a port that a Townhall server holds', async () => {
    expect(await checkPort(new URL(world.url).port)).toMatchObject({
      state: 'ok',
      message: expect.stringContaining('Townhall'),
    });
  });

  test('accepts the metrics port of a running server', async () => {
    const prometheus = { contentType: 'text/plain', read: async () => '' };
    const address = { host: '127.0.0.1', port: 0 };
    const listener = await listenForMetrics(address, { prometheus, log: silentLog });
    onTestFinished(() => listener.close());
    const { of } = await examine([], { METRICS_PORT: new URL(listener.url).port });
    expect(of('port metrics')).toMatchObject({ state: 'ok', message: expect.stringContaining('Townhall') });
  });

  test('treats an empty port of the agent as absent', async () => {
    const { of } = await examine([], { AGENT_PORT: '' });
    expect(of('port agent')?.message).toMatch(/5314/);
  });

  test('names the process that holds a port', async () => {
    const otherServer = createServer();
    onTestFinished(() => void otherServer.close());
    const { port } = await listen(otherServer);
    expect(await checkPort(String(port))).toMatchObject({
      state: 'fail',
      message: expect.stringMatching(
        process.platform === 'linux'
          ? new RegExp(`^Port ${port} is held by .*process ${process.pid}`)
          : new RegExp(`^Port ${port} is held by`),
      ),
      next: expect.stringContaining('PORT'),
    });
  });

  test('distinguishes a wrong master key from a missing one', async () => {
    // A running gateway would answer with its own key, so it must not run.
    await world.close();
    const digestBefore = await digestDataFolder();
    expect((await examine([])).of('master key')).toMatchObject({ state: 'ok' });
    const wrongKey = await examine([], { TOWNHALL_MASTER_KEY: newMasterKey() });
    expect(wrongKey).toMatchObject({ code: 1 });
    expect(wrongKey.of('master key')).toMatchObject({
      state: 'fail',
      message: expect.stringContaining('another master key'),
    });
    const missingKey = await examine([], { TOWNHALL_MASTER_KEY: '' });
    expect(missingKey.of('master key')).toMatchObject({
      state: 'fail',
      message: expect.stringMatching(/master\.key does not exist|is required with DATABASE_URL/),
    });
    expect(await digestDataFolder()).toBe(digestBefore);
  });

  test('names the address of an unreachable database', async () => {
    const result = await examine([], {
      DATABASE_URL: 'postgres://someone:CANARY-password@127.0.0.1:1/none',
    });
    expect(result).toMatchObject({ code: 1 });
    expect(result.of('database')).toMatchObject({
      state: 'fail',
      message: expect.stringContaining('127.0.0.1:1'),
    });
  });

  test('names a database whose password is not encoded', async () => {
    const result = await examine([], { DATABASE_URL: 'postgres://someone:CANARY-50%@127.0.0.1:1/none' });
    expect(result).toMatchObject({ code: 1 });
    expect(result.of('database')).toMatchObject({
      state: 'fail',
      message: expect.stringMatching(/127\.0\.0\.1:1 cannot be used: .*URI malformed/),
    });
  });

  const examineFolder = (path: string) =>
    examine([], { DATABASE_URL: '', TOWNHALL_MASTER_KEY: '', DATABASE_PATH: path });

  test('warns of a data folder that others can read', async () => {
    const path = join(folder, 'open');
    await mkdir(path);
    await chmod(path, 0o755);
    const { of } = await examineFolder(path);
    expect(of('data folder')).toMatchObject({ state: 'warn', next: `chmod 700 ${path}` });
  });

  test('fails on a file at the path of the data folder', async () => {
    await writeFile(join(folder, 'file'), '');
    const { of } = await examineFolder(join(folder, 'file'));
    expect(of('data folder')).toMatchObject({ state: 'fail' });
  });

  test('creates no data folder', async () => {
    const { of, code } = await examineFolder(join(folder, 'absent', 'townhall.db'));
    expect(of('data folder')).toMatchObject({ state: 'ok', message: expect.stringContaining('first start') });
    expect(code).toBe(0);
    await expect(stat(join(folder, 'absent'))).rejects.toThrow('ENOENT');
  });

  test('says whether the buckets can be read', async () => {
    const server = await startS3Server();
    try {
      const { of } = await examine([], {
        ...server.env(''),
        ...server.env('AGENT_'),
        AGENT_STORAGE_S3_SECRET: 'CANARY-secret',
      });
      expect(of('bucket')).toMatchObject({
        state: 'ok',
        message: `${server.options.endpoint} shows the bucket townhall-test.`,
      });
      expect(of('agent bucket')).toMatchObject({
        state: 'fail',
        message: expect.stringContaining('SignatureDoesNotMatch'),
      });
      expect(await server.keys()).toEqual([]);
    } finally {
      await server.close();
    }
  });

  test('refuses an unknown option with 2', async () => {
    expect((await runTownhall(['doctor', '--cure'], { cwd: folder, env })).code).toBe(2);
  });
});

async function checkPort(port: string): Promise<Finding | undefined> {
  const { screen } = await runTownhall(['doctor', '--json', '--port', port], {
    cwd: folder,
    env: { ...env, AGENT_PORT: '0' },
  });
  const { findings } = jsonResult(screen) as { findings: Finding[] };
  return findings.find(({ check }) => check === 'port gateway');
}

/**
 * A digest of the master key and of the names in the data folder, without the folder `pg`: the engine
 * changes its files whenever the database is opened.
 */
async function digestDataFolder(): Promise<string> {
  const path = env['DATABASE_PATH'];
  if (path === undefined) return '';
  const names = (await readdir(path)).filter((name) => name !== 'pg').sort();
  const keys = await readFile(join(path, 'master.key')).catch(() => Buffer.alloc(0));
  return createHash('sha256').update(names.join(' ')).update(keys).digest('hex');
}
