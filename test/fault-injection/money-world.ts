// Shared by the fault runs: gateways as processes on one database, a scripted
// provider, users with credits, calls over HTTP, and the final check of the ledger.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { createGatewayClient, type GatewayClient } from '@townhall/gateway';
import { creditsStore, verifyLedger } from '../../src/gateway/credits/index.ts';
import { connect, type ConnectOptions, type Database } from '../../src/kernel/data/database.ts';
import { startProvider, type ScriptedProvider } from '../support/provider.ts';
import { silentLog } from '../support/template.ts';

export const masterKey = Buffer.alloc(32, 'storm ').toString('base64');
const administrator = { admin_id: 'admin', password: 'a password for the storm alone' };
const retentionDays = 400;

export interface GatewayProcess {
  process: ChildProcess;
  url: string;
  userToken: string;
}

export interface GatewayOptions {
  /** The database URL of this gateway; the world's by default. */
  databaseUrl?: string;
  /** The folder of its journals; shared by all gateways by default. */
  journal?: string;
  env?: Record<string, string>;
}

export interface Customer {
  userId: string;
  token: string;
}

export interface MoneyWorld {
  readonly folder: string;
  readonly provider: ScriptedProvider;
  /** Connects to the database directly; with the embedded engine, only while no gateway runs. */
  connect(): Promise<Database>;
  /** Rejects when the process exits before it listens. */
  startGateway(options?: GatewayOptions): Promise<GatewayProcess>;
  /** Logs in to this gateway as an administrator; resolves with the client. */
  logIn(gateway: GatewayProcess): Promise<GatewayClient>;
  /** Prints the guarantee, and records it as a failure unless it was kept. */
  check(isKept: boolean, guarantee: string): void;
  /** The guarantees that were not kept. */
  readonly failures: readonly string[];
  /** Kills the running gateways and removes everything. */
  close(): Promise<void>;
}

export async function startMoneyWorld(options: ConnectOptions | null): Promise<MoneyWorld> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-money-'));
  const provider = await startProvider();
  const modelsFile = join(folder, 'models.json');
  await writeFile(modelsFile, describeModels(provider));
  const database = options ?? { path: join(folder, 'townhall.db') };
  const processes = new Set<GatewayProcess>();
  const failures: string[] = [];

  async function startGateway(gatewayOptions: GatewayOptions = {}): Promise<GatewayProcess> {
    const child = spawn(process.execPath, [join(import.meta.dirname, '../support/gateway-process.ts')], {
      env: {
        PATH: process.env['PATH'] ?? '',
        HOME: folder,
        MODELS_FILE: modelsFile,
        ...settings,
        ...('url' in database
          ? {
              DATABASE_URL: gatewayOptions.databaseUrl ?? database.url,
              JOURNAL_PATH: gatewayOptions.journal ?? join(folder, 'journal'),
              STORAGE_PATH: join(folder, 'media'),
            }
          : { DATABASE_PATH: database.path }),
        ...gatewayOptions.env,
      },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const [line] = (await Promise.race([
      once(createInterface(child.stdout), 'line'),
      once(child, 'exit').then(([code, signal]) => {
        throw new Error(`A gateway exited with ${code ?? signal} before it listened.`);
      }),
    ])) as [string];
    const gateway = { process: child, ...(JSON.parse(line) as { url: string; userToken: string }) };
    processes.add(gateway);
    return gateway;
  }

  return {
    folder,
    provider,
    failures,
    startGateway,
    connect: () => connect(database, { log: silentLog }),
    async logIn({ url }) {
      const { session_token: token } = await createGatewayClient({ baseUrl: url }).admin.login(administrator);
      return createGatewayClient({ baseUrl: url, token });
    },
    check(isKept, guarantee) {
      console.log(`${isKept ? 'ok    ' : 'BROKEN'} ${guarantee}`);
      if (!isKept) failures.push(guarantee);
    },
    async close() {
      for (const gateway of processes) await stopGateway(gateway, 'SIGKILL');
      await provider.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

const settings = {
  HOST: '127.0.0.1',
  PORT: '0',
  LOG_LEVEL: 'error',
  ACME_API_KEY: 'key-of-the-storm',
  TOWNHALL_MASTER_KEY: masterKey,
  ADMIN_ID: administrator.admin_id,
  ADMIN_PASSWORD: administrator.password,
  RATE_LIMIT_USER: 'off',
  RATE_LIMIT_GUEST: 'off',
  RATE_LIMIT_ADMIN: 'off',
  RATE_LIMIT_LOGIN: 'off',
  STARTING_CREDITS: '0',
};

/**
 * Speech costs one credit per character, so its price is known in advance; a chat costs one credit per token.
 */
function describeModels(provider: ScriptedProvider): string {
  const chats = [
    ...[2, 5, 20].map((chunks) => ({ name: `fast-${chunks}`, script: `ok?chunks=${chunks}&gap=10` })),
    { name: 'slow-40', script: 'ok?chunks=40&gap=100' },
  ];
  return provider.modelsFile(
    {},
    {
      models: [
        {
          id: 'acme/speaker',
          provider: 'acme',
          upstream_model: 'speech',
          modalities: ['tts'],
          rates: { speech_character: 1 },
        },
        ...chats.map(({ name, script }) => ({
          id: `acme/${name}`,
          provider: 'acme',
          upstream_model: script,
          modalities: ['text', 'stream', 'openai'],
          rates: { input: 1_000_000, output: 1_000_000 },
          max_output_tokens: 64,
        })),
      ],
    },
  );
}

export async function stopGateway(gateway: GatewayProcess, signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
  if (gateway.process.exitCode !== null || gateway.process.signalCode !== null) return;
  gateway.process.kill(signal);
  await once(gateway.process, 'exit');
}

export async function makeCustomer(admin: GatewayClient, name: string, credits: number): Promise<Customer> {
  const { user_token: token, user_id: userId } = await admin.accounts.issueToken({
    bureau_id: 'local',
    external_id: name,
  });
  if (credits > 0) await admin.credits.grantCredits({ user_id: userId, credits, reason: 'for the storm' });
  return { userId, token };
}

export interface SpeechResult {
  status: number;
  /** The code of an error. */
  code: string;
  requestId: string;
}

/**
 * Requests speech that costs this many credits; resolves with status 0 when there is no response.
 */
export async function speak(url: string, token: string, credits: number): Promise<SpeechResult> {
  try {
    const answer = await fetch(`${url}/v1/ai/tts`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
      body: JSON.stringify({ model: 'acme/speaker', text: 'x'.repeat(credits) }),
    });
    const requestId = answer.headers.get('x-request-id') ?? '';
    if (answer.ok) {
      await answer.arrayBuffer();
      return { status: answer.status, code: '', requestId };
    }
    const { error } = (await answer.json()) as { error: { code: string } };
    return { status: answer.status, code: error.code, requestId };
  } catch {
    return { status: 0, code: 'no answer', requestId: '' };
  }
}

/** The usage in a response that a client received completely. */
export interface CompleteAnswer {
  requestId: string;
  inputTokens: number;
  outputTokens: number;
}

/** Makes one chat call; resolves with its usage, or with null when the response is incomplete. */
export async function chat(
  url: string,
  token: string,
  { model, stream, timeoutMs = 15_000 }: { model: string; stream: boolean; timeoutMs?: number },
): Promise<CompleteAnswer | null> {
  const answer = await fetch(`${url}/v1/ai/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({
      model,
      stream,
      ...(stream ? { stream_options: { include_usage: true } } : {}),
      messages: [{ role: 'user', content: 'How much is the hall?' }],
    }),
    signal: AbortSignal.timeout(timeoutMs),
  });
  const text = await answer.text();
  if (answer.status !== 200 || (stream && !text.endsWith('data: [DONE]\n\n'))) return null;
  const usage = JSON.parse(/"usage":(\{[^}]*\})/.exec(text)?.[1] ?? 'null') as {
    prompt_tokens: number;
    completion_tokens: number;
  } | null;
  if (usage === null) return null;
  return {
    requestId: answer.headers.get('x-request-id') ?? '',
    inputTokens: usage.prompt_tokens,
    outputTokens: usage.completion_tokens,
  };
}

export function countBy<T>(items: readonly T[], key: (item: T) => string | number): Record<string, number> {
  return Object.fromEntries([...Map.groupBy(items, key)].map(([name, all]) => [name, all.length]));
}

export interface Books {
  posted: bigint;
  held: bigint;
  /** Charges of the user's usage records. */
  charged: bigint;
  /** The charges of the usage records, by request id. */
  byRequest: Map<string, bigint[]>;
}

export async function readBooks({ sql }: Database, userId: string): Promise<Books> {
  const [account] = await sql<{ posted: bigint; held: bigint }[]>`
    select posted, held from gateway.credits_accounts where account_id = ${userId}`;
  const records = await sql<{ requestId: string; credits: bigint }[]>`
    select request_id as "requestId", credits from gateway.usage_records where user_id = ${userId}`;
  const byRequest = new Map<string, bigint[]>();
  for (const { requestId, credits } of records)
    byRequest.set(requestId, [...(byRequest.get(requestId) ?? []), credits]);
  return {
    posted: account?.posted ?? 0n,
    held: account?.held ?? 0n,
    charged: records.reduce((total, { credits }) => total + credits, 0n),
    byRequest,
  };
}

/**
 * Checks that the ledger is consistent, that no call was recorded twice and no balance is negative.
 */
export async function checkLedger(world: MoneyWorld, database: Database): Promise<void> {
  const verdict = await verifyLedger(creditsStore(database), retentionDays);
  world.check(verdict.ok, `the ledger is consistent ${JSON.stringify(verdict.faults.slice(0, 3))}`);
  const [row] = await database.sql<{ doubles: bigint; negative: bigint; sum: bigint }[]>`
    select (select count(*) from (
        select 1 from gateway.usage_records where user_id is not null
        group by request_id having count(*) > 1) d) as doubles,
      (select count(*) from gateway.credits_accounts where posted < 0 or posted < held) as negative,
      (select coalesce(sum(amount), 0)::bigint from gateway.credits_entries) as sum`;
  world.check(
    row?.doubles === 0n && row.negative === 0n && row.sum === 0n,
    `${row?.doubles} calls charged twice, ${row?.negative} balances below zero, sum of entries ${row?.sum}`,
  );
}

/** Waits until the condition is true; false after the deadline. */
export async function waitUntil(condition: () => Promise<boolean>, deadlineMs: number): Promise<boolean> {
  const untilMs = performance.now() + deadlineMs;
  while (performance.now() < untilMs) {
    if (await condition()) return true;
    await sleep(100);
  }
  return condition();
}
