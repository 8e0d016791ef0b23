// Responses of a gateway that is killed while it runs them, as the next gateway returns them.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGatewayClient } from '@townhall/gateway';
import OpenAI from 'openai';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '../../../../src/kernel/data/database.ts';
import { type DatabasePlace, databaseEnv, makeDatabase, silentLog } from '../../../support/databases.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startGatewayChild, type GatewayChild } from '../gateway-child.ts';

const request = { model: 'acme/slow', input: 'hi' } as const;
const keyHeaders = { headers: { 'Idempotency-Key': 'the-key-of-the-stream' } };
const servers: GatewayChild[] = [];
let place: DatabasePlace;
let provider: ScriptedProvider;
let folder: string;
let gateway: GatewayChild;
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
  const killedServer = await startServer(modelsFile);
  creditsBefore = await readAvailable(killedServer);
  const { id } = await clientOf(killedServer).responses.create({ ...request, background: true });
  responseId = id;
  const stream = await clientOf(killedServer).responses.create({ ...request, stream: true }, keyHeaders);
  for await (const { type } of stream) {
    if (type !== 'response.output_text.delta') continue;
    await killedServer.end('SIGKILL');
    break;
  }
  await expireLeases();
  gateway = await startServer(modelsFile);
}, 240_000);
afterAll(async () => {
  await Promise.all(servers.map((server) => server.end('SIGKILL')));
  await provider.close();
  await place.remove();
  await rm(folder, { recursive: true, force: true });
});

const clientOf = ({ url, token }: GatewayChild) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey: token, maxRetries: 0 });

async function readAvailable({ url, token }: GatewayChild): Promise<number> {
  const { available } = await createGatewayClient({ baseUrl: url, token }).credits.getBalance();
  return available;
}

/** With the embedded engine this is not needed: the next process fails all running responses at once. */
async function expireLeases(): Promise<void> {
  if ('path' in place.options) return;
  const database = await connect(place.options, { log: silentLog });
  await database.sql`
    update gateway.ai_responses set run_lease = gateway.townhall_now() where run_lease is not null`;
  await database.close();
}

async function startServer(modelsFile: string): Promise<GatewayChild> {
  const server = await startGatewayChild({
    ...databaseEnv(place.options),
    MODELS_FILE: modelsFile,
    ACME_API_KEY: 'key',
    STARTING_CREDITS: '1000000000',
    STORAGE_PATH: join(folder, 'storage'),
    JOURNAL_PATH: join(folder, 'journal'),
  });
  servers.push(server);
  return server;
}

/** The events of the stream, repeated with its key. */
async function repeatStream(headers: Record<string, string> = {}) {
  const stream = await clientOf(gateway).responses.create(
    { ...request, stream: true },
    { headers: { ...keyHeaders.headers, ...headers } },
  );
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

test('a background response is failed', async () => {
  const read = () => clientOf(gateway).responses.retrieve(responseId);
  await expect.poll(async () => (await read()).status).toBe('failed');
  expect((await read()).error).toMatchObject({ code: 'server_error' });
});

test('a stream that is repeated with its Idempotency-Key is failed', async () => {
  const events = await repeatStream();
  expect(events).toMatchObject([
    { type: 'response.created', sequence_number: 0 },
    { type: 'response.failed', response: { status: 'failed', error: { code: 'server_error' } } },
  ]);
  // Only the two calls before the crash.
  expect(provider.calls).toHaveLength(2);
});

test('a stream that is repeated after an event has only the failure', async () => {
  expect(await repeatStream({ 'Last-Event-ID': '7' })).toMatchObject([
    { type: 'response.failed', sequence_number: 8 },
  ]);
});

test('both calls are charged for', async () => {
  const { usage } = createGatewayClient({ baseUrl: gateway.url, token: gateway.token });
  await expect
    .poll(async () => (await usage.listRecords()).items.map(({ credits }) => credits > 0))
    .toEqual([true, true]);
  const chargedCredits = (await usage.listRecords()).items.reduce((sum, { credits }) => sum + credits, 0);
  await expect.poll(() => readAvailable(gateway)).toBe(creditsBefore - chargedCredits);
});
