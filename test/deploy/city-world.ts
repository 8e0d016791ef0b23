// A project for one test file. It is deployed with the command line, as an operator does it, on the database
// of the test run. `close` removes everything.
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inject } from 'vitest';
import { cityFolder, supervisorClient, type SupervisorClient } from '../../src/deploy/index.ts';
import { connect } from '../../src/kernel/data/database.ts';
import { townhall } from '../cli/townhall.ts';
import { freePort } from '../support/free-port.ts';
import { testAdministrator, testMasterKey } from '../support/gateway.ts';
import { silentLog } from '../support/template.ts';
import { issueUserToken } from './user-token.ts';

export interface CityWorld {
  engine: 'embedded' | 'postgres';
  directory: string;
  env: Record<string, string>;
  /** Runs a command to its end in the project's folder. */
  run(
    words: readonly string[],
    env?: Record<string, string>,
  ): Promise<{ code: number | string; screen: string }>;
  write(file: string, text: string): Promise<void>;
  read(file: string): Promise<string>;
  /** The version in package.json. */
  version(): Promise<string>;
  declare(members: object): Promise<void>;
  supervisor: SupervisorClient;
  /** The City's base URL. */
  url(): Promise<string>;
  get(path: string): Promise<{ status: number; body: unknown }>;
  userToken(): Promise<string>;
  close(): Promise<void>;
}

export async function createCity(): Promise<CityWorld> {
  const source = inject('databaseSource');
  const engine = source?.engine ?? 'embedded';
  const serverUrl = source?.engine === 'postgres' ? source.url : undefined;
  // A short path, because the path of a socket is limited to about 100 bytes.
  const root = await mkdtemp(join(tmpdir(), 'th-city-'));
  const directory = join(root, 'demo');
  const databaseName = `townhall_city_${randomBytes(5).toString('hex')}`;
  const env = await cityEnvironment(root, serverUrl);
  const init = townhall(['init', 'demo'], { cwd: root });
  if ((await init.ended) !== 0) throw new Error(init.screen());
  const resources = { database: { type: engine, binding: 'db', name: databaseName } };
  const folder = cityFolder(directory);
  const supervisor = supervisorClient(folder);

  const world: CityWorld = {
    engine,
    directory,
    env,
    supervisor,
    async run(words, variables = {}) {
      const run = townhall(words, { cwd: directory, env: { ...env, ...variables } });
      return { code: await run.ended, screen: run.screen() };
    },
    write: (file, text) => writeFile(join(directory, file), text),
    read: (file) => readFile(join(directory, file), 'utf8'),
    async version() {
      return (JSON.parse(await world.read('package.json')) as { version: string }).version;
    },
    async declare(members) {
      const declaration = JSON.parse(await world.read('townhall.json')) as Record<string, unknown>;
      await world.write('townhall.json', JSON.stringify({ ...declaration, ...members }, null, 2));
    },
    async url() {
      return (await supervisor.status())?.url ?? '';
    },
    get: async (path) => getJson(`${await world.url()}${path}`),
    userToken: async () => issueUserToken(await world.url()),
    async close() {
      await supervisor.stop();
      if (serverUrl !== undefined) await dropDatabase(serverUrl, databaseName);
      await rm(root, { recursive: true, force: true });
    },
  };
  await world.declare({ deployment: { target: 'local', resources } });
  return world;
}

async function cityEnvironment(home: string, databaseUrl?: string): Promise<Record<string, string>> {
  return {
    // HOME points outside the project, so that programs write no caches into it.
    HOME: home,
    HOST: '127.0.0.1',
    // A fixed port, so that the City has the same address after a restart.
    PORT: String(await freePort()),
    LOG_LEVEL: 'info',
    TOWNHALL_MASTER_KEY: testMasterKey,
    ADMIN_ID: testAdministrator.adminId,
    ADMIN_PASSWORD: testAdministrator.password,
    STARTING_CREDITS: '1000000000',
    RATE_LIMIT_USER: 'off',
    RATE_LIMIT_GUEST: 'off',
    RATE_LIMIT_LOGIN: 'off',
    RATE_LIMIT_ADMIN: 'off',
    ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }),
  };
}

/** Uses a new connection, since an older connection may still lead to the previous version. */
function getJson(url: string): Promise<{ status: number; body: unknown }> {
  return new Promise((resolve, reject) => {
    request(url, { agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (piece: string) => (text += piece));
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, body: JSON.parse(text) as unknown }),
      );
    })
      .on('error', reject)
      .end();
  });
}

async function dropDatabase(serverUrl: string, name: string): Promise<void> {
  const admin = await connect({ url: serverUrl, limits: { maxConnections: 1 } }, { log: silentLog });
  const session = admin.session({ deadlineMs: 60_000 });
  await session.sql.unsafe(`drop database if exists "${name}" with (force)`);
  await session.close();
  await admin.close();
}
