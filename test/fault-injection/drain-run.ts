// Sends SIGTERM to a gateway with many paid streams open, some longer than its drain time, and
// reports the outcome of each. `findViolations` lists what is wrong with a result.
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { connect as dial } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { connect, type ConnectOptions } from '../../src/kernel/data/database.ts';
import { issueGatewayTokens } from '../support/gateway-tokens.ts';
import { readListeningUrl } from '../support/listening-url.ts';
import { kill } from '../support/processes.ts';
import { startProvider, type ScriptedProvider } from '../support/provider.ts';
import { silentLog } from '../support/template.ts';

export interface DrainOptions {
  streams: number;
  /** The number of streams that run longer than the gateway waits. */
  longStreams: number;
  /** Duration of the short streams, and of the long ones below. */
  shortMs: number;
  longMs: number;
  /** The gateway's drain time. */
  drainMs: number;
  /** Extra time for a busy machine. */
  toleranceMs?: number;
  /** Absent: an embedded database in a new folder. */
  database?: ConnectOptions;
}

export interface DrainResult {
  streams: number;
  /** Streams that ended by themselves. */
  completeStreams: number;
  /** Streams that ended with the `draining` error. */
  endedByDraining: number;
  refusedMs: number;
  endedMs: number;
  code: number | string | null;
  /** Usage records; one per stream is expected. */
  records: number;
  charged: number;
  openHolds: number;
  ledgerCode: number | null;
}

const program = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
const administrator = { admin_id: 'admin', password: 'a password for tests only' };
const shortChunks = 40;
const longChunks = 120;
const end = 'data: [DONE]\n\n';

export async function drainUnderStreams(options: DrainOptions): Promise<DrainResult> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-drain-'));
  const provider = await startProvider();
  const database = options.database ?? { path: join(folder, 'townhall.db') };
  const databaseSettings = settingsOf(database, folder);
  const modelsFile = join(folder, 'models.json');
  await writeFile(modelsFile, writeModels(provider, options));
  const gateway = startGateway(folder, {
    ...databaseSettings,
    MODELS_FILE: modelsFile,
    TIMEOUT_DRAIN_MS: String(options.drainMs),
  });
  const exit = new Promise<number | string | null>((resolve) =>
    gateway.once('exit', (code, signal) => resolve(code ?? signal)),
  );
  try {
    const url = await readListeningUrl(gateway);
    const { userToken: token } = await issueGatewayTokens(url, administrator);
    const { texts, finished } = await openStreams(url, token, options);
    const signalledMs = performance.now();
    gateway.kill('SIGTERM');
    const refusedMs = (await waitForRefusal(url)) - signalledMs;
    await finished;
    const code = await exit;
    const endedMs = performance.now() - signalledMs;
    const cutTexts = texts.filter((text) => !text.endsWith(end));
    return {
      streams: texts.length,
      completeStreams: texts.length - cutTexts.length,
      endedByDraining: cutTexts.filter((text) => text.includes('"code":"draining"')).length,
      refusedMs: Math.round(refusedMs),
      endedMs: Math.round(endedMs),
      code,
      ...(await countSettlements(database)),
      ledgerCode: await verifyLedger(folder, databaseSettings),
    };
  } finally {
    await kill(gateway);
    await provider.close();
    await rm(folder, { recursive: true, force: true });
  }
}

function settingsOf(database: ConnectOptions, folder: string): NodeJS.ProcessEnv {
  const locations =
    'path' in database
      ? { DATABASE_PATH: database.path }
      : {
          DATABASE_URL: database.url,
          STORAGE_PATH: join(folder, 'media'),
          JOURNAL_PATH: join(folder, 'journal'),
        };
  return {
    PATH: process.env['PATH'],
    TOWNHALL_MASTER_KEY: Buffer.alloc(32, 'draining').toString('base64'),
    ...locations,
  };
}

function writeModels(provider: ScriptedProvider, { shortMs, longMs }: DrainOptions): string {
  const scripts = {
    short: `ok?chunks=${shortChunks}&gap=${shortMs / shortChunks}`,
    long: `ok?chunks=${longChunks}&gap=${longMs / longChunks}`,
  };
  return provider.modelsFile(scripts, {
    model: {
      rates: { input: 1_000_000, output: 1_000_000 },
      max_output_tokens: 1_000,
      context_window: 8_000,
    },
  });
}

function startGateway(folder: string, settings: NodeJS.ProcessEnv): ChildProcess {
  return spawn(process.execPath, [program, 'gateway'], {
    cwd: folder,
    env: {
      ADMIN_ID: administrator.admin_id,
      ADMIN_PASSWORD: administrator.password,
      HOST: '127.0.0.1',
      PORT: '0',
      LOG_LEVEL: 'warn',
      ACME_API_KEY: 'key-of-the-script',
      RATE_LIMIT_USER: 'off',
      RATE_LIMIT_GUEST: 'off',
      STARTING_CREDITS: '1000000000',
      ...settings,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

/**
 * Resolves when all streams have begun. `texts` grow with the streams; `finished` resolves when all
 * streams have ended.
 */
async function openStreams(
  url: string,
  token: string,
  { streams: count, longStreams }: DrainOptions,
): Promise<{ texts: string[]; finished: Promise<unknown> }> {
  const texts: string[] = Array.from({ length: count }, () => '');
  const allBegun = Promise.withResolvers<void>();
  const streams = texts.map((_, index) =>
    readStream(
      `${url}/v1/ai/chat/completions`,
      { token, model: index < longStreams ? 'acme/long' : 'acme/short' },
      (text) => {
        texts[index] += text;
        if (texts.every((other) => other !== '')) allBegun.resolve();
      },
    ),
  );
  const finished = Promise.all(streams);
  const failure = finished.then(() => {
    if (texts.some((text) => text === '')) throw new Error(`not all streams began: ${texts.join('')}`);
  });
  await Promise.race([allBegun.promise, failure]);
  return { texts, finished };
}

/** Describes everything in the result that a drained gateway must not do. */
export function findViolations(
  result: DrainResult,
  { longStreams, drainMs, toleranceMs = 0 }: DrainOptions,
): string[] {
  const {
    streams,
    completeStreams,
    endedByDraining,
    refusedMs,
    endedMs,
    code,
    records,
    charged,
    openHolds,
    ledgerCode,
  } = result;
  const checks: [isKept: boolean, violation: string][] = [
    [refusedMs <= 1_000 + toleranceMs, `new work was refused after ${refusedMs} ms`],
    [code === 0, `the process exited with ${code}`],
    // Settlements and the closing of services follow the streams.
    [endedMs <= drainMs + 5_000 + toleranceMs, `the process exited after ${endedMs} ms`],
    [
      completeStreams + endedByDraining === streams,
      `${streams - completeStreams - endedByDraining} streams ended with neither [DONE] nor an error`,
    ],
    [
      completeStreams === streams - longStreams,
      `${completeStreams} streams ended by themselves, not ${streams - longStreams}`,
    ],
    [
      records === streams && charged === streams,
      `${records} calls were recorded and ${charged} charged, of ${streams}`,
    ],
    [openHolds === 0, `${openHolds} holds are open`],
    [ledgerCode === 0, `the ledger is not consistent (exit code ${ledgerCode})`],
  ];
  return checks.flatMap(([isKept, violation]) => (isKept ? [] : [violation]));
}

/** Resolves when the answer has ended in any way. */
function readStream(
  url: string,
  { token, model }: { token: string; model: string },
  onText: (text: string) => void,
): Promise<void> {
  return new Promise((resolve) => {
    const clientRequest = request(
      url,
      {
        method: 'POST',
        agent: false,
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      },
      (response) => {
        response.setEncoding('utf8');
        response.on('data', onText);
        response.on('close', () => resolve());
      },
    );
    clientRequest.on('error', () => resolve());
    clientRequest.end(
      JSON.stringify({ model, stream: true, messages: [{ role: 'user', content: 'go on' }] }),
    );
  });
}

/**
 * Resolves with the time (of `performance.now()`) when a new connection was first refused, or after
 * ten seconds.
 */
async function waitForRefusal(url: string): Promise<number> {
  const { port, hostname } = new URL(url);
  const deadlineMs = performance.now() + 10_000;
  for (;;) {
    const isRefused = await new Promise<boolean>((resolve) => {
      const socket = dial(Number(port), hostname, () => {
        socket.destroy();
        resolve(false);
      });
      socket.once('error', () => resolve(true));
    });
    if (isRefused || performance.now() > deadlineMs) return performance.now();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function countSettlements(
  options: ConnectOptions,
): Promise<Pick<DrainResult, 'records' | 'charged' | 'openHolds'>> {
  const database = await connect(options, { log: silentLog });
  try {
    const [row] = await database.sql<{ records: number; charged: number; openHolds: number }[]>`
      select (select count(*)::int from gateway.usage_records) as "records",
        (select count(*)::int from gateway.usage_records where credits > 0) as "charged",
        (select count(*)::int from gateway.credits_holds where state = 'held') as "openHolds"`;
    return row ?? { records: 0, charged: 0, openHolds: -1 };
  } finally {
    await database.close();
  }
}

async function verifyLedger(cwd: string, env: NodeJS.ProcessEnv): Promise<number | null> {
  const child = spawn(process.execPath, [program, 'ledger', 'verify'], {
    cwd,
    env,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  return new Promise((resolve) => child.once('exit', resolve));
}
