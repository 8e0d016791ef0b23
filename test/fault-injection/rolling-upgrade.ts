// Upgrades a deployed City several times under load, on the embedded database and on PostgreSQL.
// Prints the tally of each and exits 1 when a request failed or a stream was cut.
//
//   node test/fault-injection/rolling-upgrade.ts [--rounds 2] [--plain 8] [--streams 8]
//   [--engine embedded|postgres]
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { createGatewayClient } from '@townhall/gateway';
import { parseCommandLine } from '../../scripts/command-line.ts';
import { startServer } from '../support/postgres-server.ts';
import { startLoad } from './rolling-load.ts';

const { values } = parseCommandLine(import.meta.filename, {
  options: {
    rounds: { type: 'string', default: '2' },
    plain: { type: 'string', default: '8' },
    streams: { type: 'string', default: '8' },
    engine: { type: 'string' },
  },
});
const program = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
const administrator = { admin_id: 'admin', password: 'a password for tests only' };
let hasFailed = false;

async function upgrade(engine: 'embedded' | 'postgres'): Promise<void> {
  const root = await mkdtemp(join(tmpdir(), 'th-up-'));
  const directory = join(root, 'demo');
  const database = engine === 'postgres' ? await startServer() : undefined;
  const env = settingsOf(database?.url);
  try {
    await townhall(env, root, 'init', 'demo');
    const { url } = JSON.parse(await townhall(env, directory, 'deploy', '--json')) as { url: string };
    const load = startLoad({
      url,
      token: await issueToken(url),
      path: '/v1/hello/world',
      plainWorkers: Number(values.plain),
      streamWorkers: Number(values.streams),
    });
    const version = await deployRounds(env, directory);
    // Give the streams that began before the last upgrade time to end.
    await sleep(3_000);
    const { requests, streams, failures, cutStreams, longestMs } = await load.stop();
    hasFailed ||= failures.length > 0 || cutStreams > 0;
    for (const failure of failures.slice(0, 10)) console.log(`  ${failure}`);
    console.log(
      JSON.stringify({
        engine,
        upgrades: Number(values.rounds),
        version,
        requests,
        streams,
        failures: failures.length,
        cutStreams,
        longestPlainMs: Math.round(longestMs),
      }),
    );
  } finally {
    await townhall(env, directory, 'city', 'stop').catch((error: unknown) => console.error(error));
    await database?.stop();
    await rm(root, { recursive: true, force: true });
  }
}

function settingsOf(databaseUrl: string | undefined): NodeJS.ProcessEnv {
  return {
    PATH: process.env['PATH'],
    HOST: '127.0.0.1',
    PORT: '0',
    LOG_LEVEL: 'warn',
    TOWNHALL_MASTER_KEY: Buffer.alloc(32, 'rolling').toString('base64'),
    STARTING_CREDITS: '1000000000',
    RATE_LIMIT_USER: 'off',
    RATE_LIMIT_GUEST: 'off',
    ADMIN_ID: administrator.admin_id,
    ADMIN_PASSWORD: administrator.password,
    ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }),
  };
}

/** Runs a command and returns the last line of its output. */
async function townhall(env: NodeJS.ProcessEnv, cwd: string, ...words: string[]): Promise<string> {
  const child = spawn(process.execPath, [program, ...words], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  let errorOutput = '';
  child.stdout.on('data', (piece: Buffer) => (output += piece.toString('utf8')));
  child.stderr.on('data', (piece: Buffer) => (errorOutput += piece.toString('utf8')));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  if (code !== 0)
    throw new Error(`townhall ${words.join(' ')} exited with ${code}:\n${errorOutput}${output}`);
  return output.trim().split('\n').at(-1) ?? '';
}

/** Issues a token for a user in the Bureau of the project. */
async function issueToken(url: string): Promise<string> {
  const { session_token } = await createGatewayClient({ baseUrl: url }).admin.login(administrator);
  const admin = createGatewayClient({ baseUrl: url, token: session_token });
  const { items } = await admin.bureaus.listBureaus();
  const bureau = items[0] ?? (await admin.bureaus.createBureau({ server_url: 'https://example.test' }));
  const { user_token: token } = await admin.accounts.issueToken({
    bureau_id: bureau.bureau_id,
    external_id: 'ada',
  });
  return token;
}

/** Deploys a changed project in each round. Returns the last version. */
async function deployRounds(env: NodeJS.ProcessEnv, directory: string): Promise<string> {
  const file = join(directory, 'src/index.ts');
  const source = await readFile(file, 'utf8');
  let version = '';
  for (let round = 1; round <= Number(values.rounds); round += 1) {
    await writeFile(file, source.replace('Hello, world.', `Hello, round ${round}.`));
    ({ version } = JSON.parse(await townhall(env, directory, 'deploy', '--json')) as { version: string });
  }
  return version;
}

for (const engine of ['embedded', 'postgres'] as const)
  if (values.engine === undefined || values.engine === engine) await upgrade(engine);
process.exitCode = hasFailed ? 1 : 0;
