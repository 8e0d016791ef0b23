// The systems under measurement, each a process of its own: the provider itself, a bare
// relay, Portkey, and the gateway with free and paid calls on both databases. The gateway
// runs as `townhall gateway` with its defaults; only the limit of requests per user is off.
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGatewayClient } from '@townhall/gateway';
import { freePort } from '../../support/free-port.ts';
import { startServer } from '../../support/postgres-server.ts';
import type { Peer } from './peers.ts';

export interface Target {
  name: string;
  url: string;
  headers: Record<string, string>;
  wholeModel: string;
  streamModel: string;
  /** Null for the provider, whose processor time is not measured. */
  pid: number | null;
  /** Restarts the target on its data and sets `startMs`, the milliseconds from the start to the first 200. */
  restart?: () => Promise<void>;
  startMs: number | null;
}

export type Engine = 'embedded' | 'postgres';

export interface Bench {
  provider: Target;
  startRelay(): Promise<Target>;
  startPortkey(peer: Peer): Promise<Target>;
  startGateway(options: { engine: Engine; isPaid: boolean }): Promise<Target>;
  close(): Promise<void>;
}

const startDeadlineMs = 60_000;
const streamScript = 'chunks-100';

/** The processes and database servers of one run; `close` stops them. */
interface Programs {
  folder: string;
  start(file: string, parameters: readonly string[], env?: NodeJS.ProcessEnv): ChildProcess;
  startDatabase(): Promise<string>;
  close(): Promise<void>;
}

function openPrograms(): Programs {
  const folder = mkdtempSync(join(tmpdir(), 'townhall-bench-'));
  const children = new Set<ChildProcess>();
  const closers: (() => Promise<unknown>)[] = [];
  return {
    folder,
    start(file, parameters, env = {}) {
      const child = spawn(process.execPath, [file, ...parameters], {
        stdio: ['ignore', 'ignore', 'inherit'],
        cwd: folder,
        env: { PATH: process.env['PATH'], HOME: folder, ...env },
      });
      children.add(child);
      return child;
    },
    async startDatabase() {
      const server = await startServer();
      closers.push(() => server.stop());
      return server.url;
    },
    async close() {
      for (const child of children) child.kill('SIGKILL');
      for (const close of closers) await close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export async function openBench(): Promise<Bench> {
  const programs = openPrograms();
  const providerPort = await freePort();
  const providerUrl = `http://127.0.0.1:${providerPort}/v1`;
  const provider = await startBare(programs, {
    name: 'provider',
    file: 'provider.ts',
    parameters: [String(providerPort)],
  });
  return {
    provider: { ...provider, pid: null },
    startRelay: async () =>
      startBare(programs, {
        name: 'bare relay',
        file: 'relay.ts',
        parameters: [String(await freePort()), String(providerPort)],
      }),
    startPortkey: (peer) => startPortkey(programs, peer, providerUrl),
    startGateway: (options) => startGateway(programs, { ...options, providerUrl }),
    close: () => programs.close(),
  };
}

/** Starts a script of this folder, whose first parameter is its port. */
async function startBare(
  { start }: Programs,
  { name, file, parameters }: { name: string; file: string; parameters: readonly string[] },
): Promise<Target> {
  const child = start(join(import.meta.dirname, file), parameters);
  const url = `http://127.0.0.1:${parameters[0]}/v1/chat/completions`;
  const target = { name, url, headers: {}, wholeModel: 'whole', streamModel: streamScript };
  await waitUntil(child, () => isAnswered(target));
  return { ...target, pid: child.pid ?? null, startMs: null };
}

async function startPortkey(
  { start }: Programs,
  { name, version, folder: installedFolder }: Peer,
  providerUrl: string,
): Promise<Target> {
  const port = await freePort();
  const file = join(installedFolder, 'node_modules/@portkey-ai/gateway/build/start-server.js');
  const child = start(file, [`--port=${port}`, '--headless']);
  const target = {
    name: `${name} ${version}`,
    url: `http://127.0.0.1:${port}/v1/chat/completions`,
    headers: {
      authorization: 'Bearer peer',
      'x-portkey-provider': 'openai',
      'x-portkey-custom-host': providerUrl,
    },
    wholeModel: 'whole',
    streamModel: streamScript,
  };
  await waitUntil(child, () => isAnswered(target));
  return { ...target, pid: child.pid ?? null, startMs: null };
}

async function startGateway(
  programs: Programs,
  { engine, isPaid, providerUrl }: { engine: Engine; isPaid: boolean; providerUrl: string },
): Promise<Target> {
  const home = mkdtempSync(join(programs.folder, 'gateway-'));
  const port = await freePort();
  const base = `http://127.0.0.1:${port}`;
  writeModels(join(home, 'models.json'), providerUrl, isPaid);
  const databaseUrl = engine === 'embedded' ? undefined : await programs.startDatabase();
  const env = gatewayEnvironment({ home, port, databaseUrl });
  const launch = () =>
    programs.start(join(import.meta.dirname, '../../../src/cli/main.ts'), ['gateway'], env);
  const isReady = () => fetch(`${base}/ready`).then(({ ok }) => ok);
  let child = launch();
  await waitUntil(child, isReady);
  const token = await issueToken(base);
  const target: Target = {
    name: `Townhall, ${isPaid ? 'paid' : 'free'}, ${engine === 'embedded' ? 'embedded' : 'PostgreSQL'}`,
    url: `${base}/v1/ai/chat/completions`,
    headers: { authorization: `Bearer ${token}` },
    wholeModel: 'bench/whole',
    streamModel: `bench/${streamScript}`,
    pid: child.pid ?? null,
    startMs: null,
    async restart() {
      child.kill('SIGTERM');
      await new Promise((resolve) => child.once('exit', resolve));
      const startedMs = performance.now();
      child = launch();
      target.pid = child.pid ?? null;
      await waitUntil(child, isReady, 5);
      target.startMs = performance.now() - startedMs;
    },
  };
  return target;
}

const administrator = { admin_id: 'admin', password: 'a rather long secret' };

function gatewayEnvironment({
  home,
  port,
  databaseUrl,
}: {
  home: string;
  port: number;
  databaseUrl: string | undefined;
}): NodeJS.ProcessEnv {
  return {
    HOST: '127.0.0.1',
    PORT: String(port),
    RATE_LIMIT_USER: 'off',
    STARTING_CREDITS: '1000000000',
    MODELS_FILE: join(home, 'models.json'),
    DATABASE_PATH: join(home, 'database'),
    JOURNAL_PATH: join(home, 'journal'),
    STORAGE_PATH: join(home, 'storage'),
    ADMIN_ID: administrator.admin_id,
    ADMIN_PASSWORD: administrator.password,
    ...(databaseUrl !== undefined && {
      DATABASE_URL: databaseUrl,
      TOWNHALL_MASTER_KEY: Buffer.alloc(32, 7).toString('base64'),
    }),
  };
}

function writeModels(path: string, providerUrl: string, isPaid: boolean): void {
  const provider = {
    id: 'bench',
    kind: 'openai-compatible',
    base_url: providerUrl,
    usage: 'ask',
    output_limit_member: 'max_tokens',
  };
  const models = ['whole', streamScript].map((script) => ({
    id: `bench/${script}`,
    provider: 'bench',
    upstream_model: script,
    rates: isPaid ? { input: 1_000, output: 1_000 } : null,
    max_output_tokens: 1_000,
  }));
  writeFileSync(path, JSON.stringify({ providers: [provider], models }));
}

async function issueToken(base: string): Promise<string> {
  const { session_token: session } = await createGatewayClient({ baseUrl: base }).admin.login(administrator);
  const admin = createGatewayClient({ baseUrl: base, token: session });
  const bureau = await admin.bureaus.createBureau({ server_url: 'https://bench.example' });
  const token = await admin.accounts.issueToken({ bureau_id: bureau.bureau_id, external_id: 'customer' });
  return token.user_token;
}

async function isAnswered(target: Omit<Target, 'pid' | 'startMs'>): Promise<boolean> {
  const response = await fetch(target.url, {
    method: 'POST',
    headers: { ...target.headers, 'content-type': 'application/json' },
    body: JSON.stringify({ model: target.wholeModel, messages: [{ role: 'user', content: 'hello' }] }),
  });
  await response.text();
  return response.ok;
}

/** Throws when the process has exited or does not answer within a minute. */
async function waitUntil(child: ChildProcess, isReady: () => Promise<boolean>, everyMs = 20): Promise<void> {
  const endMs = performance.now() + startDeadlineMs;
  while (!(await isReady().catch(() => false))) {
    if (child.exitCode !== null || performance.now() > endMs)
      throw new Error(`${child.spawnargs[1]} does not answer.`);
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}
