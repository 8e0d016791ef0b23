// Responses of a gateway that was killed while it ran them, read at the next one.
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { createGatewayClient } from '@townhall/gateway';
import OpenAI from 'openai';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '../../../../src/kernel/data/database.ts';
import { type DatabasePlace, databaseEnv, makeDatabase, silentLog } from '../../../support/databases.ts';
import { testMasterKey } from '../../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';

interface Gateway {
  child: ChildProcess;
  url: string;
  token: string;
}

const request = { model: 'acme/slow', input: 'hi' } as const;
const keyHeaders = { headers: { 'Idempotency-Key': 'the-key-of-the-stream' } };
const processes: ChildProcess[] = [];
let place: DatabasePlace;
let provider: ScriptedProvider;
let folder: string;
let gateway: Gateway;
let responseId: string;
let creditsBefore: number;

beforeAll(async () => {
  place = await makeDatabase();
  provider = await startProvider();
  folder = await mkdtemp(join(tmpdir(), 'townhall-killed-'));
  const modelsFile = join(folder, 'models.json');
  const rates = { input: 1_000_000, output: 1_000_000 };
  await writeFile(
    modelsFile,
    provider.modelsFile(
      { slow: 'ok?chunks=500&gap=20' },
      { model: { rates, max_output_tokens: 1_000 }, provider: { output_limit_member: 'max_tokens' } },
    ),
  );
  const killedProcess = await startProcess(modelsFile);
  creditsBefore = await readAvailable(killedProcess);
  const { id } = await clientOf(killedProcess).responses.create({ ...request, background: true });
  responseId = id;
  const stream = await clientOf(killedProcess).responses.create({ ...request, stream: true }, keyHeaders);
  for await (const { type } of stream) {
    if (type !== 'response.output_text.delta') continue;
    killedProcess.child.kill('SIGKILL');
    break;
  }
  await new Promise((resolve) => killedProcess.child.once('exit', resolve));
  await endLeases();
  gateway = await startProcess(modelsFile);
}, 240_000);
afterAll(async () => {
  for (const child of processes) child.kill('SIGKILL');
  await provider.close();
  await place.remove();
  await rm(folder, { recursive: true, force: true });
});

const clientOf = ({ url, token }: Gateway) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey: token, maxRetries: 0 });

async function readAvailable({ url, token }: Gateway): Promise<number> {
  const { available } = await createGatewayClient({ baseUrl: url, token }).credits.getBalance();
  return available;
}

/** With the embedded engine the next process takes the leases over at once. */
async function endLeases(): Promise<void> {
  if ('path' in place.options) return;
  const database = await connect(place.options, { log: silentLog });
  await database.sql`update gateway.ai_responses set run_lease = gateway.townhall_now() where run_lease is not null`;
  await database.close();
}

async function startProcess(modelsFile: string): Promise<Gateway> {
  const child = spawn(process.execPath, [join(import.meta.dirname, '../../../support/gateway-process.ts')], {
    env: {
      ...databaseEnv(place.options),
      HOST: '127.0.0.1',
      PORT: '0',
      LOG_LEVEL: 'warn',
      TOWNHALL_MASTER_KEY: testMasterKey,
      MODELS_FILE: modelsFile,
      ACME_API_KEY: 'key',
      STARTING_CREDITS: '1000000000',
      STORAGE_PATH: join(folder, 'storage'),
      JOURNAL_PATH: join(folder, 'journal'),
      PATH: process.env['PATH'] ?? '',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  processes.push(child);
  for await (const line of createInterface({ input: child.stdout })) {
    const { msg, url, userToken } = JSON.parse(line) as { msg?: string; url: string; userToken: string };
    // Each server issues a new token to the same user.
    if (msg === 'listening') return { child, url, token: userToken };
  }
  throw new Error('The process ended before it listened.');
}

async function repeat(headers: Record<string, string> = {}) {
  const stream = await clientOf(gateway).responses.create(
    { ...request, stream: true },
    { headers: { ...keyHeaders.headers, ...headers } },
  );
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

test('a response in the background is failed', async () => {
  const read = () => clientOf(gateway).responses.retrieve(responseId);
  await expect.poll(async () => (await read()).status).toBe('failed');
  expect((await read()).error).toMatchObject({ code: 'server_error' });
});

test('a stream is failed under its Idempotency-Key', async () => {
  const events = await repeat();
  expect(events).toMatchObject([
    { type: 'response.created', sequence_number: 0 },
    { type: 'response.failed', response: { status: 'failed', error: { code: 'server_error' } } },
  ]);
  expect(await repeat({ 'Last-Event-ID': '7' })).toMatchObject([
    { type: 'response.failed', sequence_number: 8 },
  ]);
  expect(provider.calls).toHaveLength(2);
});

test('both calls are charged', async () => {
  const { usage } = createGatewayClient({ baseUrl: gateway.url, token: gateway.token });
  await expect
    .poll(async () => (await usage.listRecords()).items.map(({ credits }) => credits > 0))
    .toEqual([true, true]);
  const charged = (await usage.listRecords()).items.reduce((sum, { credits }) => sum + credits, 0);
  await expect.poll(() => readAvailable(gateway)).toBe(creditsBefore - charged);
});
