// The WebSocket of /v1/responses over a real socket: with the official client, and as Codex sends it.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { ResponsesWS } from 'openai/resources/responses/ws';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { quickest } from '../../support/quickest.ts';

const rates = { input: 1_000_000, output: 2_000_000 };

let provider: ScriptedProvider;
let world: GatewayWorld;
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-socket-'));
  provider = await startProvider();
  const modelsFile = join(folder, 'models.json');
  await writeFile(
    modelsFile,
    provider.modelsFile(
      { ok: 'ok', slow: 'ok?chunks=500&gap=20', broken: 'status?code=400' },
      {
        model: { rates, max_output_tokens: 1_000 },
        provider: { output_limit_member: 'max_tokens' },
        providers: [{ id: 'openai', kind: 'openai', base_url: provider.url, api_key_env: 'ACME_API_KEY' }],
        models: [
          { id: 'openai/ok', provider: 'openai', upstream_model: 'ok', rates, max_output_tokens: 1_000 },
        ],
      },
    ),
  );
  world = await startGateway({
    env: { ACME_API_KEY: 'x', MODELS_FILE: modelsFile, STARTING_CREDITS: '1000000000' },
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
  await rm(folder, { recursive: true, force: true });
});

type Message = Record<string, unknown> & { type: string; response?: { id: string; output: unknown[] } };

/** Opens a socket. `closeCode` resolves when it is closed. */
async function connect({ url, userToken }: GatewayWorld, path: string, headers: Record<string, string>) {
  // The types of Node.js lack the option `headers`.
  const options: object = { headers: { authorization: `Bearer ${userToken}`, ...headers } };
  const socket = new WebSocket(`${url.replace('http', 'ws')}${path}`, options as string[]);
  const closeCode = new Promise<number>((resolve) =>
    socket.addEventListener('close', ({ code }) => resolve(code), { once: true }),
  );
  await new Promise<void>((resolve, reject) => {
    socket.addEventListener('open', () => resolve(), { once: true });
    socket.addEventListener('error', () => reject(new Error('The socket was refused.')), { once: true });
  });
  return { socket, closeCode };
}

/** Opens a socket that records its messages. */
async function open(path = '/v1/responses', headers: Record<string, string> = {}) {
  const { socket, closeCode } = await connect(world, path, headers);
  const messages: Message[] = [];
  const watchers = new Set<() => void>();
  socket.addEventListener('message', ({ data }) => {
    messages.push(JSON.parse(data as string) as Message);
    for (const watcher of watchers) watcher();
  });
  const waitUntil = (matches: (message: Message) => boolean) =>
    new Promise<Message>((resolve) => {
      const watcher = (): void => {
        const message = messages.find(matches);
        if (message === undefined) return;
        watchers.delete(watcher);
        resolve(message);
      };
      watchers.add(watcher);
      watcher();
    });
  return {
    messages,
    closeCode,
    close: () => socket.close(),
    until: waitUntil,
    send: (message: object) => socket.send(JSON.stringify(message)),
    /** Sends a call and waits for its last event. */
    async call(body: object): Promise<Message> {
      messages.length = 0;
      socket.send(JSON.stringify({ type: 'response.create', ...body }));
      return waitUntil(({ type }) => /^(error|response\.(completed|incomplete|failed))$/.test(type));
    },
  };
}

async function countRecords(): Promise<number> {
  return (await world.user.usage.listRecords({})).items.length;
}

/** The status of the handshake and the error code of a refusal. */
function readHandshake(path: string, headers: Record<string, string>): Promise<[number, string]> {
  return new Promise((resolve, reject) => {
    const outgoing = request(`${world.url}${path}`, {
      headers: {
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': Buffer.alloc(16, 1).toString('base64'),
        ...headers,
      },
    });
    outgoing.on('error', reject);
    outgoing.on('upgrade', (_response, socket) => {
      socket.destroy();
      resolve([101, '']);
    });
    outgoing.on('response', (response) => {
      let text = '';
      response.on('data', (chunk) => (text += String(chunk)));
      response.on('end', () => {
        const { error } = JSON.parse(text) as { error: { code: string } };
        resolve([response.statusCode ?? 0, error.code]);
      });
    });
    outgoing.end();
  });
}

describe.each(['local/echo', 'acme/ok', 'openai/ok'])('a socket with %s', (model) => {
  test('answers the official client', async () => {
    const client = new OpenAI({ baseURL: `${world.url}/v1`, apiKey: world.userToken });
    const socket = new ResponsesWS(client);
    const types: string[] = [];
    socket.send({ type: 'response.create', model, input: 'hi' });
    for await (const event of socket) {
      if (event.type === 'error') throw event.error;
      if (event.type !== 'message') continue;
      types.push(event.message.type);
      if (event.message.type === 'response.completed') break;
    }
    socket.close();
    expect(types[0]).toBe('response.created');
    expect(types).toContain('response.output_text.delta');
  });

  test('continues its last response without store', async () => {
    const socket = await open();
    const firstResponse = await socket.call({ model, store: false, input: 'the first question' });
    expect(firstResponse).toMatchObject({ type: 'response.completed', response: { status: 'completed' } });
    const secondResponse = await socket.call({
      model,
      store: false,
      previous_response_id: firstResponse.response?.id,
      input: [{ role: 'user', content: 'the second question' }],
    });
    expect(secondResponse.type).toBe('response.completed');
    socket.close();
  });
});

describe('a socket', () => {
  test.each(['acme/ok', 'openai/ok'])('sends the conversation to the provider of %s', async (model) => {
    const socket = await open();
    const { response } = await socket.call({ model, store: false, input: 'the first question' });
    await socket.call({
      model,
      store: false,
      previous_response_id: response?.id,
      input: [{ role: 'user', content: 'the second question' }],
    });
    expect(provider.lastCall().body.toString()).toMatch(/the first question.*the second question/);
    socket.close();
  });

  test('answers the messages of Codex', async () => {
    provider.reset();
    const socket = await open('/v1/ai/responses', { 'openai-beta': 'responses_websockets=2026-02-06' });
    const input = [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'warm words' }] }];
    const warmup = await socket.call({ model: 'acme/ok', input, generate: false });
    expect(provider.calls).toHaveLength(0);
    const next = await socket.call({
      model: 'acme/ok',
      previous_response_id: warmup.response?.id,
      input: [{ role: 'user', content: 'go on' }],
    });
    expect(next.type).toBe('response.completed');
    expect(provider.lastCall().body.toString()).toContain('warm words');
    socket.send({ type: 'response.processed', response_id: next.response?.id });
    expect(await socket.call({ model: 'acme/ok', input: 'again' })).toMatchObject({
      type: 'response.completed',
    });
    socket.close();
  });

  test('forgets the response whose continuation fails', async () => {
    const socket = await open();
    const firstResponse = await socket.call({ model: 'acme/ok', store: false, input: 'the first question' });
    const continuedRequest = {
      model: 'acme/ok',
      store: false,
      previous_response_id: firstResponse.response?.id,
    };
    const orphanOutput = { type: 'function_call_output', call_id: 'call_none', output: 'x' };
    expect(await socket.call({ ...continuedRequest, input: [orphanOutput] })).toMatchObject({
      type: 'error',
      status: 400,
    });
    expect(await socket.call({ ...continuedRequest, input: 'go on' })).toMatchObject({
      type: 'error',
      error: { code: 'previous_response_not_found' },
    });
    socket.close();
  });

  test('keeps its last response after another message was refused', async () => {
    const socket = await open();
    const firstResponse = await socket.call({ model: 'acme/ok', store: false, input: 'the first question' });
    expect(await socket.call({ type: 'response.steer' })).toMatchObject({ type: 'error' });
    expect(
      await socket.call({
        model: 'acme/ok',
        previous_response_id: firstResponse.response?.id,
        input: 'go on',
      }),
    ).toMatchObject({ type: 'response.completed' });
    socket.close();
  });

  test('runs its calls one after another', async () => {
    const socket = await open();
    socket.send({ type: 'response.create', stream_id: 'one', model: 'acme/ok', input: 'a' });
    socket.send({ type: 'response.create', stream_id: 'two', model: 'acme/ok', input: 'b' });
    await socket.until(({ type, stream_id: id }) => type === 'response.completed' && id === 'two');
    const streamIds = socket.messages.map(({ stream_id: streamId }) => streamId);
    expect(streamIds).toEqual(streamIds.toSorted((a, b) => String(a).localeCompare(String(b))));
    expect(new Set(streamIds)).toEqual(new Set(['one', 'two']));
    socket.close();
  });

  test('charges a call once', async () => {
    const count = await countRecords();
    const socket = await open();
    await socket.call({ model: 'acme/ok', input: 'hi' });
    expect(await countRecords()).toBe(count + 1);
    socket.close();
  });

  test('logs each call with its operation', async () => {
    const socket = await open();
    world.logLines.length = 0;
    await socket.call({ model: 'acme/ok', input: 'hi' });
    socket.close();
    const line = world.logLines.find((text) => text.includes('socket call'));
    expect(JSON.parse(line ?? '{}')).toMatchObject({ operationId: 'ai.createResponse', status: 200 });
  });

  test('aborts its call to the provider within 50 ms of a disconnect', async () => {
    const measureAbortMs = async () => {
      provider.reset();
      const socket = await open();
      socket.send({ type: 'response.create', model: 'acme/slow', input: 'hi' });
      await socket.until(({ type }) => type === 'response.output_text.delta');
      const closedMs = performance.now();
      socket.close();
      await provider.until(([call]) => call?.abortedAt !== undefined);
      return (provider.lastCall().abortedAt ?? Number.POSITIVE_INFINITY) - closedMs;
    };
    expect(await quickest(50, measureAbortMs)).toBeLessThan(50);
  });

  test('ends its call when its token is revoked', async () => {
    provider.reset();
    const { userToken: bearer } = await world.gateway.issueLocalToken();
    const socket = await open('/v1/responses', { authorization: `Bearer ${bearer}` });
    socket.send({ type: 'response.create', model: 'acme/slow', input: 'hi' });
    await socket.until(({ type }) => type === 'response.output_text.delta');
    await world.as(bearer).accounts.logout();
    expect(await socket.until(({ type }) => type === 'error')).toMatchObject({
      error: { code: 'invalid_token' },
    });
    await provider.until(([call]) => call?.abortedAt !== undefined);
    expect(await socket.call({ model: 'acme/ok', input: 'hi' })).toMatchObject({
      type: 'error',
      status: 401,
    });
    socket.close();
  });

  test.each([
    ['an unknown model', { model: 'acme/none' }, { status: 404, error: { code: 'model_not_found' } }],
    ['an error of the provider', { model: 'acme/broken' }, { status: 400 }],
    [
      'an unknown response',
      { model: 'acme/ok', previous_response_id: 'resp_none' },
      { status: 400, error: { code: 'previous_response_not_found' } },
    ],
    ['background', { model: 'acme/ok', background: true }, { status: 400, error: { param: 'background' } }],
    ['another message', { type: 'response.steer' }, { status: 400, error: { param: 'type' } }],
  ])('stays open after it refuses a call for %s', async (_reason, members, refusal) => {
    const socket = await open();
    expect(await socket.call({ input: 'hi', ...members })).toMatchObject({ type: 'error', ...refusal });
    expect(await socket.call({ model: 'acme/ok', input: 'hi' })).toMatchObject({
      type: 'response.completed',
    });
    socket.close();
  });

  test('is closed for a message that is too long', async () => {
    const socket = await open();
    socket.send({ type: 'response.create', model: 'acme/ok', input: 'x'.repeat(11 * 2 ** 20) });
    expect(await socket.closeCode).toBe(1009);
  });

  test('is refused without a valid credential', async () => {
    expect(await readHandshake('/v1/responses', {})).toEqual([401, 'authentication_required']);
    expect(await readHandshake('/v1/responses', { authorization: 'Bearer usr_wrong' })).toEqual([
      401,
      'invalid_token',
    ]);
  });

  test('is refused for a page of another origin', async () => {
    const headers = { authorization: `Bearer ${world.userToken}`, origin: 'https://evil.example' };
    expect(await readHandshake('/v1/responses', headers)).toEqual([403, 'forbidden_origin']);
  });

  test('is refused at a path without a socket', async () => {
    const authorization = `Bearer ${world.userToken}`;
    expect(await readHandshake('/v1/ai/text', { authorization })).toEqual([405, 'method_not_allowed']);
  });

  test('is refused when its user has 32 open sockets', async () => {
    const authorization = `Bearer ${world.userToken}`;
    const sockets = await Promise.all(Array.from({ length: 32 }, () => open()));
    expect(await readHandshake('/v1/responses', { authorization })).toEqual([429, 'rate_limited']);
    for (const socket of sockets) socket.close();
    await Promise.all(sockets.map(({ closeCode }) => closeCode));
    await expect.poll(() => readHandshake('/v1/responses', { authorization })).toEqual([101, '']);
  });
});

test('a stopping server closes its sockets', async () => {
  const otherGateway = await startGateway();
  const { closeCode } = await connect(otherGateway, '/v1/responses', {});
  await otherGateway.close();
  expect(await closeCode).toBe(1001);
});
