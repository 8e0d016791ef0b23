// Sends SIGTERM to a gateway with many paid streams open, some longer than its drain time, and
// reports the outcome of each. `brokenPromises` lists what the result violates.
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { connect as dial } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createGatewayClient } from '@townhall/gateway';
import { connect, type ConnectOptions } from '../../src/kernel/data/database.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { startProvider } from '../support/provider.ts';

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

export interface Drained {
  streams: number;
  /** Streams that ran to their own end. */
  completeStreams: number;
  /** Streams that ended with the `draining` error. */
  endedByRule: number;
  refusedMs: number;
  endedMs: number;
  code: number | string | null;
  /** Usage records; one a stream is expected. */
  records: number;
  charged: number;
  openHolds: number;
  ledgerCode: number | null;
}

const program = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
const administrator = { ADMIN_ID: 'admin', ADMIN_PASSWORD: 'a password for tests only' };
const shortChunks = 40;
const longChunks = 120;
const end = 'data: [DONE]\n\n';

export async function drainUnderStreams(options: DrainOptions): Promise<Drained> {
  const { streams: count, longStreams, drainMs } = options;
  const folder = await mkdtemp(join(tmpdir(), 'townhall-drain-'));
  const provider = await startProvider();
  const modelsFile = join(folder, 'models.json');
  const scripts = {
    short: `ok?chunks=${shortChunks}&gap=${options.shortMs / shortChunks}`,
    long: `ok?chunks=${longChunks}&gap=${options.longMs / longChunks}`,
  };
  await writeFile(
    modelsFile,
    provider.modelsFile(scripts, {
      model: {
        rates: { input: 1_000_000, output: 1_000_000 },
        max_output_tokens: 1_000,
        context_window: 8_000,
      },
    }),
  );
  const database = options.database ?? { path: join(folder, 'townhall.db') };
  const databaseSettings = {
    PATH: process.env['PATH'],
    TOWNHALL_MASTER_KEY: Buffer.alloc(32, 'draining').toString('base64'),
    ...('path' in database
      ? { DATABASE_PATH: database.path }
      : {
          DATABASE_URL: database.url,
          STORAGE_PATH: join(folder, 'media'),
          JOURNAL_PATH: join(folder, 'journal'),
        }),
  };
  const gateway = spawn(process.execPath, [program, 'gateway'], {
    cwd: folder,
    env: {
      ...databaseSettings,
      ...administrator,
      HOST: '127.0.0.1',
      PORT: '0',
      LOG_LEVEL: 'warn',
      MODELS_FILE: modelsFile,
      ACME_API_KEY: 'key-of-the-script',
      RATE_LIMIT_USER: 'off',
      RATE_LIMIT_GUEST: 'off',
      STARTING_CREDITS: '1000000000',
      TIMEOUT_DRAIN_MS: String(drainMs),
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exit = new Promise<number | string | null>((resolve) =>
    gateway.once('exit', (code, signal) => resolve(code ?? signal)),
  );
  try {
    const url = await addressOf(gateway.stdout, exit);
    const token = await userToken(url);
    const texts: string[] = [];
    let startedStreams = 0;
    const allUnderway = Promise.withResolvers<void>();
    const streams = Array.from({ length: count }, (_, index) =>
      readStream(
        `${url}/v1/ai/chat/completions`,
        { token, model: index < longStreams ? 'acme/long' : 'acme/short' },
        (text) => {
          if (texts[index] === undefined && ++startedStreams === count) allUnderway.resolve();
          texts[index] = (texts[index] ?? '') + text;
        },
      ),
    );
    await Promise.race([
      allUnderway.promise,
      Promise.all(streams).then(() =>
        Promise.reject(new Error(`only ${startedStreams} of ${count} streams began: ${texts.join('')}`)),
      ),
    ]);

    const signalledMs = performance.now();
    gateway.kill('SIGTERM');
    const refusedMs = (await untilRefused(url)) - signalledMs;
    await Promise.all(streams);
    const code = await exit;
    const endedMs = performance.now() - signalledMs;
    const completeStreams = texts.filter((text) => text.endsWith(end)).length;
    const endedByRule = texts.filter(
      (text) => !text.endsWith(end) && text.includes('"code":"draining"'),
    ).length;
    return {
      streams: count,
      completeStreams,
      endedByRule,
      refusedMs: Math.round(refusedMs),
      endedMs: Math.round(endedMs),
      code,
      ...(await settledIn(database)),
      ledgerCode: await verifyLedger(folder, databaseSettings),
    };
  } finally {
    if (gateway.exitCode === null) gateway.kill('SIGKILL');
    await exit;
    await provider.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/** The violations of a result, as texts. */
export function brokenPromises(
  result: Drained,
  { longStreams, drainMs, toleranceMs = 0 }: DrainOptions,
): string[] {
  const {
    streams,
    completeStreams,
    endedByRule,
    refusedMs,
    endedMs,
    code,
    records,
    charged,
    openHolds,
    ledgerCode,
  } = result;
  const promises: [boolean, string][] = [
    [refusedMs <= 1_000 + toleranceMs, `new work was refused after ${refusedMs} ms`],
    [code === 0, `the process ended with ${code}`],
    // Settlements and the closing of services follow the streams.
    [endedMs <= drainMs + 5_000 + toleranceMs, `the process ended after ${endedMs} ms`],
    [
      completeStreams + endedByRule === streams,
      `${streams - completeStreams - endedByRule} streams were cut in silence`,
    ],
    [
      completeStreams === streams - longStreams,
      `${completeStreams} streams came to their own end, and ${streams - longStreams} could`,
    ],
    [
      records === streams && charged === streams,
      `${records} calls were recorded and ${charged} charged, of ${streams}`,
    ],
    [openHolds === 0, `${openHolds} holds are open`],
    [ledgerCode === 0, `the ledger does not agree (${ledgerCode})`],
  ];
  return promises.flatMap(([holds, violation]) => (holds ? [] : [violation]));
}

function addressOf(output: NodeJS.ReadableStream, exit: Promise<unknown>): Promise<string> {
  return new Promise((resolve, reject) => {
    let stdout = '';
    output.on('data', (piece: Buffer) => {
      stdout += piece.toString('utf8');
      const [, url] = /"url":"(http[^"]+)","msg":"listening"/.exec(stdout) ?? [];
      if (url !== undefined) resolve(url);
    });
    void exit.then((code) =>
      reject(new Error(`the gateway ended with ${String(code)} before it listened:\n${stdout}`)),
    );
  });
}

async function userToken(baseUrl: string): Promise<string> {
  const { session_token } = await createGatewayClient({ baseUrl }).admin.login({
    admin_id: administrator.ADMIN_ID,
    password: administrator.ADMIN_PASSWORD,
  });
  const admin = createGatewayClient({ baseUrl, token: session_token });
  const { bureau_id } = await admin.bureaus.createBureau({ server_url: 'https://example.test' });
  return (await admin.accounts.issueToken({ bureau_id, external_id: 'ada' })).user_token;
}

/** Resolves when the answer has ended in any way. */
function readStream(
  url: string,
  { token, model }: { token: string; model: string },
  take: (text: string) => void,
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
        response.on('data', take);
        response.on('close', () => resolve());
      },
    );
    clientRequest.on('error', () => resolve());
    clientRequest.end(
      JSON.stringify({ model, stream: true, messages: [{ role: 'user', content: 'go on' }] }),
    );
  });
}

/** Milliseconds until a new connection is first refused. */
async function untilRefused(url: string): Promise<number> {
  const { port, hostname } = new URL(url);
  const lateMs = performance.now() + 10_000;
  for (;;) {
    const isRefused = await new Promise<boolean>((resolve) => {
      const socket = dial(Number(port), hostname, () => {
        socket.destroy();
        resolve(false);
      });
      socket.once('error', () => resolve(true));
    });
    if (isRefused || performance.now() > lateMs) return performance.now();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function settledIn(
  options: ConnectOptions,
): Promise<Pick<Drained, 'records' | 'charged' | 'openHolds'>> {
  const database = await connect(options, {
    log: createLog({ level: 'silent', redactor: createRedactor() }),
  });
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

async function verifyLedger(cwd: string, env: Record<string, string | undefined>): Promise<number | null> {
  const child = spawn(process.execPath, [program, 'ledger', 'verify'], {
    cwd,
    env,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  return new Promise((resolve) => child.once('exit', resolve));
}
