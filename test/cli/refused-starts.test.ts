// Every start that is refused: the process exits by itself with a code and a line that names the
// setting, and holds no resources.
import { existsSync, globSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { agentSettings, readAgentConfig } from '../../src/agent/config.ts';
import { consoleSettings, readConsoleConfig } from '../../src/console/index.ts';
import { gatewaySettings, readGatewayConfig } from '../../src/gateway/config.ts';
import { SettingError, type Setting } from '../../src/kernel/settings.ts';
import { listen } from '../support/local-server.ts';
import { townhall, type RunResult } from './townhall.ts';

const masterKey = Buffer.alloc(32, 7).toString('base64');
const administrator = { ADMIN_ID: 'admin', ADMIN_PASSWORD: 'a password for tests only' };
const token = { AGENT_GATEWAY_TOKEN: 'tok_test' };

interface RefusedStart {
  title: string;
  commands: readonly ('gateway' | 'start' | 'agent' | 'console')[];
  env: Record<string, string>;
  code: 1 | 2;
  message: RegExp;
  /** Files to write into the working directory before the start. */
  files?: Record<string, string>;
  folders?: readonly string[];
}

const gateways = ['gateway', 'start'] as const;

const refusedStarts: readonly RefusedStart[] = [
  {
    title: 'a short ADMIN_PASSWORD',
    commands: gateways,
    env: { ...administrator, ADMIN_PASSWORD: 'eleven char' },
    code: 2,
    message: /ADMIN_PASSWORD: .*at least 12 characters/,
  },
  {
    title: 'a common ADMIN_PASSWORD',
    commands: ['gateway'],
    env: { ...administrator, ADMIN_PASSWORD: 'administrator' },
    code: 2,
    message: /ADMIN_PASSWORD: /,
  },
  {
    title: 'an ADMIN_ID with a space',
    commands: ['gateway'],
    env: { ...administrator, ADMIN_ID: 'a b' },
    code: 2,
    message: /ADMIN_ID: /,
  },
  {
    title: 'ADMIN_ID alone',
    commands: ['gateway'],
    env: { ADMIN_ID: 'admin' },
    code: 2,
    message: /ADMIN_ID and ADMIN_PASSWORD/,
  },
  {
    title: 'a TOWNHALL_MASTER_KEY of one byte',
    commands: ['gateway'],
    env: { TOWNHALL_MASTER_KEY: 'x' },
    code: 2,
    message: /TOWNHALL_MASTER_KEY must contain 32 bytes/,
  },
  {
    title: 'a TOWNHALL_MASTER_KEY_FILE that does not exist',
    commands: ['gateway'],
    env: { TOWNHALL_MASTER_KEY_FILE: 'none' },
    code: 2,
    message: /TOWNHALL_MASTER_KEY_FILE/,
  },
  {
    title: 'a bad previous key',
    commands: ['gateway'],
    env: { TOWNHALL_MASTER_KEY: masterKey, TOWNHALL_MASTER_KEY_PREVIOUS: 'x' },
    code: 2,
    message: /TOWNHALL_MASTER_KEY_PREVIOUS/,
  },
  {
    title: 'DATABASE_URL without a master key',
    commands: ['gateway'],
    env: { DATABASE_URL: 'postgres://a:b@127.0.0.1:1/x' },
    code: 2,
    message: /TOWNHALL_MASTER_KEY/,
  },
  {
    title: 'a DATABASE_URL that is not an address',
    commands: ['gateway'],
    env: { DATABASE_URL: 'nonsense', TOWNHALL_MASTER_KEY: masterKey },
    code: 2,
    message: /DATABASE_URL takes/,
  },
  {
    title: 'a DATABASE_URL without a server',
    commands: ['gateway'],
    env: { DATABASE_URL: 'postgres://a:CANARY@127.0.0.1:1/x', TOWNHALL_MASTER_KEY: masterKey },
    code: 1,
    message: /DATABASE_URL/,
  },
  {
    title: 'DATABASE_URL with the local edition',
    commands: ['start'],
    env: { DATABASE_URL: 'postgres://a:b@127.0.0.1:1/x' },
    code: 2,
    message: /DATABASE_URL/,
  },
  {
    title: 'a DATABASE_PATH below a file',
    commands: gateways,
    env: { DATABASE_PATH: '/dev/null/x' },
    code: 2,
    message: /DATABASE_PATH: .*\/dev\/null/,
  },
  {
    title: 'a DATABASE_PATH that is a file',
    commands: ['gateway'],
    env: { DATABASE_PATH: 'file' },
    files: { file: '' },
    code: 2,
    message: /DATABASE_PATH: .*file/,
  },
  {
    title: 'a DATABASE_PATH where no folder can be created',
    commands: ['gateway'],
    env: { DATABASE_PATH: '/proc/x' },
    code: 2,
    message: /DATABASE_PATH: .*\/proc/,
  },
  {
    title: 'a DATABASE_PATH with a damaged cluster',
    commands: ['gateway'],
    env: {},
    files: { 'data/townhall.db/pg/PG_VERSION': 'nonsense' },
    code: 1,
    message: /data\/townhall\.db/,
  },
  {
    title: 'a master.key that is a folder',
    commands: ['gateway'],
    env: {},
    folders: ['data/townhall.db/master.key'],
    code: 1,
    message: /master\.key/,
  },
  {
    title: 'a master.key that holds no key',
    commands: ['gateway'],
    env: {},
    files: { 'data/townhall.db/master.key': 'nonsense' },
    code: 2,
    message: /master\.key/,
  },
  {
    title: 'a control socket that is a file',
    commands: gateways,
    env: {},
    files: { 'data/townhall.db/control.sock': '' },
    code: 1,
    message: /control\.sock/,
  },
  {
    title: 'a JOURNAL_PATH below a file',
    commands: gateways,
    env: { JOURNAL_PATH: '/dev/null/x' },
    code: 2,
    message: /JOURNAL_PATH: /,
  },
  {
    title: 'a JOURNAL_PATH where no folder can be created',
    commands: ['gateway'],
    env: { JOURNAL_PATH: '/proc/x' },
    code: 2,
    message: /JOURNAL_PATH: /,
  },
  {
    title: 'a STORAGE_PATH below a file',
    commands: ['gateway'],
    env: { STORAGE_PATH: '/dev/null/x' },
    code: 2,
    message: /STORAGE_PATH: /,
  },
  {
    title: 'an S3 server that does not answer',
    commands: ['gateway', 'start'],
    env: {
      STORAGE_S3_BUCKET: 'media',
      STORAGE_S3_ENDPOINT: 'http://127.0.0.1:1',
      STORAGE_S3_KEY_ID: 'id',
      STORAGE_S3_SECRET: 'CANARY-secret',
    },
    code: 1,
    message: /http:\/\/127\.0\.0\.1:1 \(STORAGE_S3_ENDPOINT\) cannot be used/,
  },
  {
    title: 'a bucket without a key',
    commands: ['gateway'],
    env: { STORAGE_S3_BUCKET: 'media' },
    code: 2,
    message: /STORAGE_S3_KEY_ID/,
  },
  {
    title: 'a MODELS_FILE that does not exist',
    commands: ['gateway'],
    env: { MODELS_FILE: 'none.json' },
    code: 2,
    message: /MODELS_FILE none\.json: there is no such file/,
  },
  {
    title: 'a MODELS_FILE that is not JSON',
    commands: ['gateway'],
    env: { MODELS_FILE: 'models.json' },
    files: { 'models.json': '{' },
    code: 2,
    message: /MODELS_FILE models\.json: is not valid JSON/,
  },
  {
    title: 'a MODELS_FILE with an unknown provider',
    commands: gateways,
    env: { MODELS_FILE: 'models.json' },
    files: { 'models.json': '{"models":[{"id":"a/b","provider":"nobody","rates":null}]}' },
    code: 2,
    message: /MODELS_FILE models\.json: models\[0\]\.provider/,
  },
  {
    title: 'a TOWNHALL_PROJECT that does not exist',
    commands: ['gateway'],
    env: { TOWNHALL_PROJECT: '/nonexistent' },
    code: 1,
    message: /\/nonexistent is not a project/,
  },
  {
    title: 'a HOST of another machine',
    commands: ['gateway'],
    env: { HOST: '192.0.2.1' },
    code: 1,
    message: /HOST/,
  },
  {
    title: 'a METRICS_HOST of another machine',
    commands: ['gateway'],
    env: { METRICS_HOST: '192.0.2.1', METRICS_PORT: '0' },
    code: 1,
    message: /METRICS_HOST/,
  },
  {
    title: 'a TOWNHALL_CITY_BASE_URL that is not an address',
    commands: ['gateway'],
    env: { TOWNHALL_CITY_BASE_URL: 'nonsense' },
    code: 2,
    message: /TOWNHALL_CITY_BASE_URL/,
  },
  {
    title: 'a CORS_ORIGINS that is not an origin',
    commands: ['gateway'],
    env: { CORS_ORIGINS: 'https://a.example/path' },
    code: 2,
    message: /CORS_ORIGINS takes/,
  },
  {
    title: 'a TRUSTED_PROXIES that is not an address',
    commands: ['gateway'],
    env: { TRUSTED_PROXIES: 'nonsense' },
    code: 2,
    message: /TRUSTED_PROXIES/,
  },
  {
    title: 'an OTEL_EXPORTER_OTLP_ENDPOINT that is not an address',
    commands: ['gateway', 'agent'],
    env: { ...token, OTEL_EXPORTER_OTLP_ENDPOINT: 'nonsense' },
    code: 2,
    message: /OTEL_EXPORTER_OTLP_ENDPOINT/,
  },
  {
    title: 'an agent without a token',
    commands: ['agent'],
    env: {},
    code: 2,
    message: /AGENT_GATEWAY_TOKEN/,
  },
  {
    title: 'an unknown AGENT_VARIANT',
    commands: ['agent'],
    env: { ...token, AGENT_VARIANT: 'ancient' },
    code: 2,
    message: /AGENT_VARIANT/,
  },
  {
    title: 'an AGENT_GATEWAY_URL that is not an address',
    commands: ['agent'],
    env: { ...token, AGENT_GATEWAY_URL: 'nonsense' },
    code: 2,
    message: /--gateway-url/,
  },
  {
    title: 'an AGENT_DATABASE_URL that is not an address',
    commands: ['agent'],
    env: { ...token, AGENT_DATABASE_URL: 'nonsense' },
    code: 2,
    message: /AGENT_DATABASE_URL takes/,
  },
  {
    title: 'an AGENT_DATABASE_URL without a server',
    commands: ['agent', 'start'],
    env: { ...token, AGENT_DATABASE_URL: 'postgres://a:CANARY@127.0.0.1:1/x' },
    code: 1,
    message: /AGENT_DATABASE_URL/,
  },
  {
    title: 'an AGENT_DATA_DIR below a file',
    commands: ['agent'],
    env: { ...token, AGENT_DATA_DIR: '/dev/null/x' },
    code: 2,
    message: /AGENT_DATA_DIR: /,
  },
  {
    title: 'an AGENT_DATA_DIR where no folder can be created',
    commands: ['agent', 'start'],
    env: { ...token, AGENT_DATA_DIR: '/proc/x' },
    code: 2,
    message: /AGENT_DATA_DIR: /,
  },
  {
    title: 'an AGENT_WORKSPACE that does not exist',
    commands: ['agent'],
    env: { ...token, AGENT_WORKSPACE: 'none' },
    code: 2,
    message: /AGENT_WORKSPACE|--workspace/,
  },
  {
    title: 'an AGENT_TOKEN_FILE below a file',
    commands: ['agent'],
    env: { ...token, AGENT_TOKEN_FILE: '/dev/null/x' },
    code: 1,
    message: /\/dev\/null/,
  },
  {
    title: 'an AGENT_PLUGINS file that does not exist',
    commands: ['agent', 'start'],
    env: { ...token, AGENT_PLUGINS: './none.mjs' },
    code: 2,
    message: /none\.mjs/,
  },
  {
    title: 'an AGENT_PLUGIN_CONFIG that is not JSON',
    commands: ['agent'],
    env: { ...token, AGENT_PLUGIN_CONFIG: 'config.json' },
    files: { 'config.json': '{' },
    code: 2,
    message: /config\.json/,
  },
  {
    title: 'an AGENT_HOST of another machine',
    commands: ['agent'],
    env: { ...token, AGENT_HOST: '192.0.2.1' },
    code: 1,
    message: /AGENT_HOST/,
  },
  {
    title: 'a TOWNHALL_AGENT_URL that is not an address',
    commands: ['console'],
    env: { TOWNHALL_AGENT_URL: 'nonsense' },
    code: 2,
    message: /--agent-url/,
  },
];

const rows = refusedStarts.flatMap((start) => start.commands.map((command) => ({ ...start, command })));
const anyPort = { HOST: '127.0.0.1', PORT: '0', AGENT_HOST: '127.0.0.1', AGENT_PORT: '0', CONSOLE_PORT: '0' };

let folder: string;
let server: Server;
let usedPort: number;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-refused-'));
  server = createServer();
  ({ port: usedPort } = await listen(server));
});
afterAll(async () => {
  server.close();
  await rm(folder, { recursive: true, force: true });
});

/** Runs the command until it exits. A hanging process is killed and reported by its signal. */
async function runRefusedStart(
  command: string,
  env: Record<string, string>,
  cwd: string,
): Promise<RunResult> {
  const run = townhall([command], { cwd, env: { ...anyPort, ...env } });
  const timer = setTimeout(() => run.process.kill('SIGKILL'), 60_000);
  const code = await run.ended;
  clearTimeout(timer);
  return { code, screen: run.screen() };
}

/** The output has no stack trace or secret, the process exited by itself, and no data folder is locked. */
function expectClean(screen: string, cwd: string): void {
  expect(screen).not.toMatch(/\n {4}at |CANARY|did not exit within/);
  expect(globSync('**/townhall.pid', { cwd })).toEqual([]);
}

describe('a refused start', () => {
  test.each(rows)(
    'exits "$command" with $code for $title',
    async ({ command, env, files = {}, folders = [], ...expected }) => {
      const cwd = await mkdtemp(join(folder, 'start-'));
      for (const path of folders) await mkdir(join(cwd, path), { recursive: true });
      for (const [path, content] of Object.entries(files)) {
        await mkdir(dirname(join(cwd, path)), { recursive: true });
        await writeFile(join(cwd, path), content);
      }
      const { code, screen } = await runRefusedStart(command, env, cwd);
      expect(screen).toMatch(expected.message);
      expect(code, screen).toBe(expected.code);
      expectClean(screen, cwd);
    },
  );

  test.each([
    ['gateway', 'PORT'],
    ['gateway', 'METRICS_PORT'],
    ['start', 'PORT'],
    ['start', 'AGENT_PORT'],
    ['agent', 'AGENT_PORT'],
    ['agent', 'AGENT_METRICS_PORT'],
    ['console', 'CONSOLE_PORT'],
  ] as const)('exits "%s" with 1 for a taken %s before it creates data', async (command, setting) => {
    const cwd = await mkdtemp(join(folder, 'port-'));
    const { code, screen } = await runRefusedStart(command, { ...token, [setting]: String(usedPort) }, cwd);
    expect(screen).toMatch(
      command === 'console' ? /--port/ : new RegExp(`The port ${usedPort} is taken.* with ${setting};`),
    );
    expect(code).toBe(1);
    expectClean(screen, cwd);
    expect(existsSync(join(cwd, 'data'))).toBe(false);
  });

  test.each(['gateway', 'start'] as const)(
    'exits "%s" for a database that another process holds',
    async (command) => {
      const cwd = await mkdtemp(join(folder, 'held-'));
      const holder = townhall(['gateway'], { cwd, env: anyPort });
      await holder.waitFor(/"msg":"listening"/);
      const { code, screen } = await runRefusedStart(command, {}, cwd);
      expect(code, screen).toBe(1);
      expect(screen).toContain(`is held by process ${holder.process.pid}`);
      holder.process.kill('SIGTERM');
      expect(await holder.ended).toBe(0);
    },
  );

  test('leaves a database that the next start can open', async () => {
    const cwd = await mkdtemp(join(folder, 'again-'));
    const firstStart = await runRefusedStart('gateway', { JOURNAL_PATH: '/dev/null/x' }, cwd);
    expect(firstStart.code).toBe(2);
    const secondGateway = townhall(['gateway'], { cwd, env: anyPort });
    await secondGateway.waitFor(/"msg":"listening"/);
    secondGateway.process.kill('SIGTERM');
    expect(await secondGateway.ended).toBe(0);
  });
});

describe('a wrong value', () => {
  // These settings accept any text; a wrong value fails when the start uses it.
  const acceptsAnyText = new RegExp(
    '(?:HOST|PATH|DIR|FILE|WORKSPACE|PLUGINS|PLUGIN_CONFIG|PROJECT|SANDBOX_READ|SERVICE_NAME|' +
      'OTLP_HEADERS|ALLOW_HOST|ADMIN_PASSWORD|MASTER_KEY|MASTER_KEY_PREVIOUS)$',
  );
  const tables: [
    string,
    Readonly<Record<string, Setting<unknown>>>,
    (env: Record<string, string>) => unknown,
  ][] = [
    ['gateway', gatewaySettings, (env) => readGatewayConfig({}, env)],
    ['agent', agentSettings, (env) => readAgentConfig({}, { ...token, ...env })],
    ['console', consoleSettings, (env) => readConsoleConfig({}, env)],
  ];
  const settings = tables.flatMap(([surface, table, read]) =>
    Object.values(table)
      .filter(({ key }) => !acceptsAnyText.test(key))
      .map((setting) => ({ surface, key: setting.key, setting, read })),
  );

  test.each(settings)('of $key is refused for the $surface by its name', ({ key, setting, read }) => {
    const message = refusalOf(() => read({ [key]: 'no such value, surely' }));
    expect(message).toMatch(new RegExp(`${key}\\b|--${setting.flag}\\b`));
  });
});

function refusalOf(read: () => unknown): string {
  try {
    read();
  } catch (error) {
    expect(error).toBeInstanceOf(SettingError);
    return (error as SettingError).message;
  }
  return 'accepted';
}
