// Background responses and joined streams through a whole gateway, with the official client.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { storedResponsesStore } from '../../../src/gateway/ai/responses/stored/store.ts';
import { id } from '../../../src/kernel/ids.ts';
import { makeDatabase } from '../../support/databases.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { quickest } from '../../support/quickest.ts';

const rates = { input: 1_000_000, output: 2_000_000 };

let provider: ScriptedProvider;
let world: GatewayWorld;
let folder: string;
let env: Record<string, string>;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-background-'));
  provider = await startProvider();
  const modelsFile = join(folder, 'models.json');
  await writeFile(
    modelsFile,
    provider.modelsFile(
      {
        ok: 'ok',
        slow: 'ok?chunks=500&gap=20',
        short: 'ok?chunks=10&gap=20',
        broken: 'status?code=400',
        never: 'never-headers',
      },
      {
        model: { rates, max_output_tokens: 1_000 },
        provider: { output_limit_member: 'max_tokens' },
        providers: [{ id: 'openai', kind: 'openai', base_url: provider.url, api_key_env: 'ACME_API_KEY' }],
        models: [
          { id: 'openai/ok', provider: 'openai', upstream_model: 'ok', rates, max_output_tokens: 1_000 },
          { id: 'openai/cut', provider: 'openai', upstream_model: 'cut', rates, max_output_tokens: 1_000 },
        ],
      },
    ),
  );
  env = {
    ACME_API_KEY: 'x',
    MODELS_FILE: modelsFile,
    STARTING_CREDITS: '1000000000',
    // A stream with an Idempotency-Key is aborted after this time without a reader.
    RESPONSES_REJOIN_MS: '200',
  };
  world = await startGateway({ env });
});
afterAll(async () => {
  await world.close();
  await provider.close();
  await rm(folder, { recursive: true, force: true });
});

type Response = OpenAI.Responses.Response;
type Event = OpenAI.Responses.ResponseStreamEvent;

const client = ({ url, userToken } = world) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey: userToken, maxRetries: 0 });

const start = (members: object = {}, gateway = world) =>
  client(gateway).responses.create({
    model: 'acme/ok',
    input: 'hi',
    background: true,
    ...members,
  }) as Promise<Response>;

/** Polls until the status is final, as the guide describes. */
async function waitForEnd(responseId: string): Promise<Response> {
  const read = () => client().responses.retrieve(responseId);
  await expect.poll(async () => (await read()).status).toMatch(/^(?:completed|failed|cancelled)$/);
  return read();
}

async function collect(events: AsyncIterable<Event>): Promise<Event[]> {
  const all: Event[] = [];
  for await (const event of events) all.push(event);
  return all;
}

const sequenceOf = (events: readonly Event[]) => events.map((event) => event.sequence_number);

async function readRecordsSince(count: number) {
  const { items } = await world.user.usage.listRecords({});
  return items.slice(0, items.length - count);
}
const recordCount = async () => (await world.user.usage.listRecords({})).items.length;

describe.each(['local/echo', 'acme/ok', 'openai/ok'])('a background response of %s', (model) => {
  test('is queued at once and completed later', async () => {
    const queuedResponse = await start({ model });
    expect(queuedResponse).toMatchObject({
      status: 'queued',
      background: true,
      store: true,
      model,
      output: [],
    });
    const response = await waitForEnd(queuedResponse.id);
    expect(response).toMatchObject({
      id: queuedResponse.id,
      status: 'completed',
      background: true,
      store: true,
    });
    expect(response.output_text).not.toBe('');
  });

  test('can be read from any of its events', async () => {
    const { id: responseId } = await start({ model });
    const all = await collect(await client().responses.retrieve(responseId, { stream: true }));
    expect(all.at(-1)).toMatchObject({ type: 'response.completed', response: { id: responseId } });
    expect(sequenceOf(all)).toEqual(all.map((_, index) => index));
    const laterEvents = await collect(
      await client().responses.retrieve(responseId, { stream: true, starting_after: 2 }),
    );
    expect(laterEvents).toEqual(all.slice(3));
  });

  test('streams its events to the first call', async () => {
    const events = await collect(
      (await client().responses.create({
        model,
        input: 'hi',
        background: true,
        stream: true,
      })) as AsyncIterable<Event>,
    );
    const finalEvent = events.at(-1) as OpenAI.Responses.ResponseCompletedEvent;
    expect(finalEvent.type).toBe('response.completed');
    expect(await client().responses.retrieve(finalEvent.response.id)).toMatchObject(
      JSON.parse(JSON.stringify({ output: finalEvent.response.output })),
    );
  });
});

describe('a background response', () => {
  test('keeps running when its first reader disconnects', async () => {
    const stream = (await client().responses.create({
      model: 'acme/short',
      input: 'hi',
      background: true,
      stream: true,
    })) as AsyncIterable<Event>;
    let responseId = '';
    for await (const event of stream)
      if (event.type === 'response.created') {
        responseId = event.response.id;
        break;
      }
    expect(await waitForEnd(responseId)).toMatchObject({ status: 'completed' });
  });

  test('is charged once', async () => {
    const count = await recordCount();
    const { id: responseId } = await start();
    await Promise.all([
      client().responses.retrieve(responseId, { stream: true }).then(collect),
      client().responses.retrieve(responseId, { stream: true }).then(collect),
    ]);
    expect(await readRecordsSince(count)).toMatchObject([{ outcome: 'completed' }]);
  });

  test('is canceled at the provider within 50 ms', async () => {
    const canceledIds: string[] = [];
    const count = await recordCount();
    const lifetime = async () => {
      provider.reset();
      const { id: responseId } = await start({ model: 'acme/slow' });
      await provider.until((calls) => calls.length === 1);
      const canceledMs = performance.now();
      const response = await client().responses.cancel(responseId);
      expect(response).toMatchObject({ id: responseId, status: 'cancelled' });
      canceledIds.push(responseId);
      await provider.until(([call]) => call?.abortedAt !== undefined);
      return (provider.lastCall().abortedAt ?? Number.POSITIVE_INFINITY) - canceledMs;
    };
    expect(await quickest(50, lifetime)).toBeLessThan(50);
    const records = await readRecordsSince(count);
    expect(records).toHaveLength(canceledIds.length);
    for (const record of records) {
      expect(record).toMatchObject({ outcome: 'client_closed' });
      expect(record.credits).toBeGreaterThan(0);
    }
    expect(await client().responses.cancel(canceledIds[0] as string)).toMatchObject({ status: 'cancelled' });
  });

  test('is canceled when another gateway requests it', async () => {
    provider.reset();
    const { id: responseId } = await start({ model: 'acme/slow' });
    await world.sql`
      update gateway.ai_responses set cancel_requested = true where response_id = ${responseId}`;
    await provider.until(([call]) => call?.abortedAt !== undefined);
    expect(await waitForEnd(responseId)).toMatchObject({ status: 'cancelled' });
  });

  test('is aborted at the provider when it is deleted', async () => {
    provider.reset();
    const { id: responseId } = await start({ model: 'acme/slow' });
    await client().responses.delete(responseId);
    await provider.until(([call]) => call?.abortedAt !== undefined);
    await expect(client().responses.retrieve(responseId)).rejects.toMatchObject({ status: 404 });
  });

  test("fails with the provider's error", async () => {
    const { id: responseId } = await start({ model: 'acme/broken' });
    expect(await waitForEnd(responseId)).toMatchObject({
      status: 'failed',
      error: { code: expect.any(String), message: expect.any(String) },
    });
  });

  test("fails when the provider's stream breaks off", async () => {
    const { id: responseId } = await start({ model: 'openai/cut' });
    expect(await waitForEnd(responseId)).toMatchObject({ status: 'failed' });
    const events = await collect(await client().responses.retrieve(responseId, { stream: true }));
    expect(events.at(-1)).toMatchObject({ type: 'response.failed' });
  });

  test('is reported as failed when its gateway has stopped', async () => {
    const { id: responseId } = await start();
    await waitForEnd(responseId);
    // A gateway that stopped while it ran the response would leave an expired lease behind.
    await world.sql`
      update gateway.ai_responses set run_lease = now() - interval '1 second'
      where response_id = ${responseId}`;
    expect(await client().responses.retrieve(responseId)).toMatchObject({
      status: 'failed',
      error: { code: 'server_error', message: expect.stringContaining('stopped') },
    });
  });

  test('is not abandoned while it runs in the same process', async () => {
    const { id: responseId } = await start({ model: 'acme/slow' });
    const store = storedResponsesStore(world.database);
    const findAbandonedIds = async (runningIds: string[]) => {
      const rows = await store.findAbandoned({ all: true, runningIds: new Set(runningIds), limit: 100 });
      return rows.map((row) => row.responseId);
    };
    expect(await findAbandonedIds([])).toContain(responseId);
    expect(await findAbandonedIds([responseId])).not.toContain(responseId);
    await client().responses.cancel(responseId);
  });

  test('is stored without readable text while it runs', async () => {
    const { id: responseId } = await start({ model: 'acme/slow', input: 'the secret of the sea' });
    expect(await client().responses.retrieve(responseId)).toMatchObject({ status: 'in_progress' });
    const rows = await world.sql<Record<string, unknown>[]>`
      select * from gateway.ai_responses where response_id = ${responseId}`;
    expect(rows).toHaveLength(1);
    expect(Object.values(rows[0] ?? {}).join()).toContain(responseId);
    expect(Object.values(rows[0] ?? {}).join()).not.toContain('secret');
    await client().responses.cancel(responseId);
  });

  test('cannot be continued while it runs', async () => {
    const { id: responseId } = await start({ model: 'acme/slow' });
    expect(await client().responses.retrieve(responseId)).toMatchObject({ status: 'in_progress' });
    await expect(start({ previous_response_id: responseId })).rejects.toMatchObject({
      status: 400,
      code: 'previous_response_not_found',
    });
    await client().responses.cancel(responseId);
  });

  test.each([
    ['without a store', { store: false }, { status: 400, param: 'store' }],
    ['for an unknown model', { model: 'acme/none' }, { status: 404 }],
    ['with an unsupported tool', { tools: [{ type: 'local_shell' }] }, { status: 422 }],
    ['beyond the credits', { max_output_tokens: 1_000_000_000_000 }, { status: 402 }],
  ])('is refused at once %s', async (_case, members, refusal) => {
    await expect(start(members)).rejects.toMatchObject(refusal);
  });

  test('is one response under an Idempotency-Key', async () => {
    const key = { headers: { 'Idempotency-Key': id('key') } };
    const body = { model: 'acme/short', input: 'hi', background: true };
    const firstResponse = await client().responses.create(body, key);
    const secondResponse = await client().responses.create(body, key);
    expect(secondResponse.id).toBe(firstResponse.id);
    await waitForEnd(firstResponse.id);
    expect(await client().responses.create(body, key)).toMatchObject({
      id: firstResponse.id,
      status: 'completed',
    });
  });
});

test('a background response fails when its gateway is stopped', async () => {
  const database = await makeDatabase();
  const firstGateway = await startGateway({ env, place: database });
  const { id: responseId } = await start({ model: 'acme/slow' }, firstGateway);
  await firstGateway.gateway.close();
  const secondGateway = await startGateway({ env, place: database });
  try {
    expect(await client(secondGateway).responses.retrieve(responseId)).toMatchObject({
      status: 'failed',
      error: { code: 'draining' },
    });
  } finally {
    await secondGateway.close();
    await database.remove();
  }
});

// The embedded database has one process.
test.skipIf(inject('databaseSource')?.engine !== 'postgres')(
  'a background response can be read and canceled at another gateway',
  async () => {
    const database = await makeDatabase();
    const firstGateway = await startGateway({ env, place: database });
    const secondGateway = await startGateway({ env, place: database });
    try {
      provider.reset();
      const { id: responseId } = await start({ model: 'acme/slow' }, firstGateway);
      expect(await client(secondGateway).responses.retrieve(responseId)).toMatchObject({
        status: 'in_progress',
      });
      await expect(
        client(secondGateway).responses.retrieve(responseId, { stream: true }),
      ).rejects.toMatchObject({
        status: 409,
        code: 'stream_not_available',
      });
      expect(await client(secondGateway).responses.cancel(responseId)).toMatchObject({ status: 'cancelled' });
      await provider.until(([call]) => call?.abortedAt !== undefined);
    } finally {
      await Promise.all([firstGateway.close(), secondGateway.close()]);
      await database.remove();
    }
  },
);

describe('responses under /v1/ai', () => {
  const send = async (method: string, path: string) => {
    const response = await fetch(`${world.url}/v1/ai/responses${path}`, {
      method,
      headers: { authorization: `Bearer ${world.userToken}` },
    });
    return { status: response.status, body: (await response.json()) as object };
  };

  const createInForeground = () =>
    client().responses.create({ model: 'local/echo', input: 'hi', store: true });

  test('the events of a foreground response are 409', async () => {
    const { id: responseId } = await createInForeground();
    expect(await send('GET', `/${responseId}?stream=true`)).toMatchObject({
      status: 409,
      body: { error: { code: 'stream_not_available' } },
    });
  });

  test('a foreground response cannot be canceled', async () => {
    const { id: responseId } = await createInForeground();
    expect(await send('POST', `/${responseId}/cancel`)).toMatchObject({
      status: 400,
      body: { error: { code: 'invalid_request' } },
    });
  });

  test('a response that does not exist cannot be canceled', async () => {
    expect(await send('POST', '/resp_none/cancel')).toMatchObject({
      status: 404,
      body: { error: { code: 'response_not_found' } },
    });
  });
});

describe.each(['acme/short', 'openai/ok'])('a stream of %s with an Idempotency-Key', (model) => {
  const send = (key: string, headers: Record<string, string> = {}) =>
    fetch(`${world.url}/v1/responses`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        authorization: `Bearer ${world.userToken}`,
        'Idempotency-Key': key,
        ...headers,
      },
      body: JSON.stringify({ model, input: 'hi', stream: true }),
    });

  test('is joined during and after its run', async () => {
    provider.reset();
    const count = await recordCount();
    const key = id('key');
    const [firstText, secondText] = await Promise.all([
      send(key).then((response) => response.text()),
      provider
        .until((calls) => calls.length === 1)
        .then(() => send(key))
        .then((response) => response.text()),
    ]);
    expect(firstText).toContain('response.completed');
    expect(secondText).toBe(firstText);
    expect(await (await send(key)).text()).toBe(firstText);
    expect(provider.calls).toHaveLength(1);
    expect(await readRecordsSince(count)).toMatchObject([{ outcome: 'completed' }]);
  });

  test('is joined after the event of Last-Event-ID', async () => {
    const key = id('key');
    const text = await (await send(key)).text();
    const laterText = await (await send(key, { 'Last-Event-ID': '1' })).text();
    expect(text).toMatch(/"sequence_number":1\b/);
    expect(text.endsWith(laterText)).toBe(true);
    expect(laterText).toMatch(/"sequence_number":2\b/);
    expect(laterText).not.toMatch(/"sequence_number":[01]\b/);
  });
});

test('a stream with an Idempotency-Key is aborted once it has no reader', async () => {
  provider.reset();
  const key = id('key');
  const body = { model: 'acme/slow', input: 'hi', stream: true } as const;
  const options = { headers: { 'Idempotency-Key': key } };
  for await (const _event of await client().responses.create(body, options)) break;
  await provider.until(([call]) => call?.abortedAt !== undefined);
  await expect(client().responses.create(body, options).then(collect)).rejects.toThrow(
    'its answer was not stored',
  );
});
