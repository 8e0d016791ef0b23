// Stored responses of a whole gateway, with the official client: of a local model, of a provider that
// supports the format, and of translated models.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createToken, tokenDigest } from '../../../src/kernel/secrets/secret.ts';
import { id } from '../../../src/kernel/ids.ts';
import { storedResponsesStore } from '../../../src/gateway/ai/index.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';

const rates = { input: 1_000_000, output: 2_000_000 };

/** A chat completion that ends at its output limit. */
const incompleteAnswer = JSON.stringify({
  id: 'x',
  object: 'chat.completion',
  created: 1,
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Half a' }, finish_reason: 'length' }],
  usage: { prompt_tokens: 9, completion_tokens: 3, total_tokens: 12 },
});

let provider: ScriptedProvider;
let world: GatewayWorld;
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-stored-'));
  provider = await startProvider();
  const modelsFile = join(folder, 'models.json');
  const kinds = { openai: 'openai', claude: 'anthropic', gemini: 'google' };
  await writeFile(
    modelsFile,
    provider.modelsFile(
      { ok: 'ok', incomplete: `verbatim?${new URLSearchParams({ json: incompleteAnswer })}` },
      {
        model: { rates, max_output_tokens: 1_000 },
        provider: { output_limit_member: 'max_tokens' },
        providers: Object.entries(kinds).map(([name, kind]) => ({
          id: name,
          kind,
          base_url: provider.url,
          api_key_env: 'ACME_API_KEY',
        })),
        models: Object.keys(kinds).map((name) => ({
          id: `${name}/ok`,
          provider: name,
          upstream_model: 'ok',
          rates,
          max_output_tokens: 1_000,
        })),
      },
    ),
  );
  world = await startGateway({
    env: {
      ACME_API_KEY: 'x',
      MODELS_FILE: modelsFile,
      STARTING_CREDITS: '1000000000',
      RESPONSES_QUOTA_MB: '1',
    },
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
  await rm(folder, { recursive: true, force: true });
});

const client = (bearer = world.userToken) =>
  new OpenAI({ baseURL: `${world.url}/v1`, apiKey: bearer, maxRetries: 0 });

async function issueStrangerToken(): Promise<string> {
  const newToken = createToken('usr');
  const userId = id('usr');
  await world.sql`insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, 'local')`;
  await world.sql`
    insert into gateway.accounts_tokens (token_id, kind, digest, last4, user_id, expires_at)
    values (
      ${id('tok')}, 'user', ${tokenDigest(newToken)}, ${newToken.slice(-4)}, ${userId},
      now() + interval '1 day')`;
  return newToken;
}

const upstreamModels = ['acme/ok', 'openai/ok', 'claude/ok', 'gemini/ok'];
const models = ['local/echo', ...upstreamModels];

/** Resolves at the last event of the stream, before its end. */
async function readFinalResponse(
  body: OpenAI.Responses.ResponseCreateParamsStreaming,
): Promise<OpenAI.Responses.Response> {
  for await (const event of await client().responses.create(body))
    if (event.type === 'response.completed') return event.response;
  throw new Error('The stream has no final response.');
}

describe.each(models)('a stored response of %s', (model) => {
  test('is read exactly as it was answered', async () => {
    const response = await client().responses.create({ model, input: 'Good morning', store: true });
    expect(response).toMatchObject({ id: expect.stringMatching(/^resp_[0-9a-z]{26}$/), store: true, model });
    expect(await client().responses.retrieve(response.id)).toEqual(response);
  });

  test('is stored from a stream before its last event', async () => {
    const finalAnswer = await readFinalResponse({ model, input: 'Good morning', store: true, stream: true });
    expect(finalAnswer).toMatchObject({ id: expect.stringMatching(/^resp_[0-9a-z]{26}$/), store: true });
    expect(await client().responses.retrieve(finalAnswer.id)).toMatchObject({
      id: finalAnswer.id,
      output: finalAnswer.output,
    });
  });

  test('lists the items of the conversation that it continues', async () => {
    const firstResponse = await client().responses.create({ model, input: 'first question', store: true });
    const secondResponse = await client().responses.create({
      model,
      input: 'second question',
      previous_response_id: firstResponse.id,
      store: true,
    });
    const items = await client().responses.inputItems.list(secondResponse.id, { order: 'asc' });
    expect(items.data.map((item) => ('role' in item ? item.role : item.type))).toEqual([
      'user',
      'assistant',
      'user',
    ]);
  });

  test('is continued by a response that is not stored', async () => {
    const response = await client().responses.create({ model, input: 'first question', store: true });
    const nextResponse = await client().responses.create({
      model,
      input: 'second question',
      previous_response_id: response.id,
    });
    expect(nextResponse).toMatchObject({ previous_response_id: response.id, store: false });
  });
});

test.each(upstreamModels)('a continued response sends its conversation to %s', async (model) => {
  let previousId: string | undefined;
  for (const input of ['first question', 'second question', 'third question']) {
    const response = await client().responses.create({
      model,
      input,
      store: true,
      ...(previousId === undefined ? {} : { previous_response_id: previousId }),
    });
    previousId = response.id;
  }
  const request = provider.lastCall().body.toString();
  expect(request).toMatch(/first question.*second question.*third question/);
  expect(request).not.toContain('resp_');
});

describe('a stored response', () => {
  const create = (members: object = {}) =>
    client().responses.create({
      model: 'local/echo',
      input: 'hi',
      store: true,
      ...members,
    }) as Promise<OpenAI.Responses.Response>;

  test('does not exist for another user', async () => {
    const { id: responseId } = await create();
    const otherClient = client(await issueStrangerToken());
    await expect(otherClient.responses.retrieve(responseId)).rejects.toMatchObject({
      status: 404,
      code: 'response_not_found',
    });
    await expect(otherClient.responses.delete(responseId)).rejects.toMatchObject({ status: 404 });
    await expect(otherClient.responses.inputItems.list(responseId)).rejects.toMatchObject({ status: 404 });
    await expect(
      otherClient.responses.create({ model: 'local/echo', input: 'x', previous_response_id: responseId }),
    ).rejects.toMatchObject({
      status: 400,
      code: 'previous_response_not_found',
      param: 'previous_response_id',
    });
  });

  test('is 401 for a guest', async () => {
    const { id: responseId } = await create();
    expect((await fetch(`${world.url}/v1/responses/${responseId}`)).status).toBe(401);
  });

  test('is deleted', async () => {
    const { id: responseId } = await create();
    expect(await client().delete(`/responses/${responseId}`)).toEqual({
      id: responseId,
      object: 'response',
      deleted: true,
    });
    await expect(client().responses.retrieve(responseId)).rejects.toMatchObject({ status: 404 });
    await expect(client().responses.delete(responseId)).rejects.toMatchObject({ status: 404 });
    await expect(create({ previous_response_id: responseId })).rejects.toMatchObject({ status: 400 });
  });

  test('is deleted after it expires', async () => {
    const { id: responseId } = await create();
    await world.sql`
      update gateway.ai_responses set keep_until = now() - interval '1 second'
      where response_id = ${responseId}`;
    await expect(client().responses.retrieve(responseId)).rejects.toMatchObject({ status: 404 });
    await expect(client().responses.delete(responseId)).rejects.toMatchObject({ status: 404 });
    expect(await storedResponsesStore(world.database).deleteExpired(100)).toBeGreaterThan(0);
    const rows = await world.sql`select 1 from gateway.ai_responses where response_id = ${responseId}`;
    expect(rows).toHaveLength(0);
  });

  test('keeps the responses that it continues as long as itself', async () => {
    // A response is kept for 720 hours by default.
    const response = await create();
    await world.sql`
      update gateway.ai_responses set keep_until = now() + interval '1 hour'
      where response_id = ${response.id}`;
    await create({ previous_response_id: response.id });
    const [row] = await world.sql<{ isProlonged: boolean }[]>`
      select keep_until > now() + interval '700 hours' as "isProlonged"
      from gateway.ai_responses where response_id = ${response.id}`;
    expect(row?.isProlonged).toBe(true);
  });

  test('is sealed in the database', async () => {
    const { id: responseId } = await create({ input: 'the secret of the sea' });
    const [row] = await world.sql<{ input: string; response: string }[]>`
      select input, response from gateway.ai_responses where response_id = ${responseId}`;
    expect(row?.input).toMatch(/^v1\./);
    expect(row?.response).toMatch(/^v1\./);
    expect(JSON.stringify(row)).not.toContain('secret');
  });

  test('is 404 when its sealed answer is copied from another row', async () => {
    const response = await create({ input: 'one' });
    const otherResponse = await create({ input: 'other' });
    await world.sql`
      update gateway.ai_responses
      set response = (select response from gateway.ai_responses where response_id = ${response.id})
      where response_id = ${otherResponse.id}`;
    await expect(client().responses.retrieve(otherResponse.id)).rejects.toMatchObject({ status: 404 });
  });

  test('is not stored without store: true', async () => {
    const { id: responseId, store } = (await create({ store: false })) as { id: string; store?: boolean };
    expect(store).toBe(false);
    await expect(client().responses.retrieve(responseId)).rejects.toMatchObject({ status: 404 });
  });

  test('is deleted when newer responses exceed the quota', async () => {
    // A sealed input takes about 400 kB of the quota of 1 MB.
    const input = 'x'.repeat(300_000);
    const ids: string[] = [];
    for (let count = 0; count < 4; count += 1) ids.push((await create({ model: 'acme/ok', input })).id);
    await expect
      .poll(async () => {
        const rows = await world.sql<{ responseId: string }[]>`
          select response_id as "responseId" from gateway.ai_responses
          where response_id = any(${world.sql.array(ids, 25)}) order by 1`;
        return rows.map(({ responseId }) => responseId);
      })
      .toEqual(ids.slice(-2));
  });

  test('reserves the price of the conversation that it continues', async () => {
    const response = await create({ model: 'openai/ok', input: 'word '.repeat(2_000) });
    const { available } = await world.user.credits.getBalance();
    // The balance covers the new input, but not the 10,000 bytes of the stored conversation in addition.
    const members = { model: 'openai/ok', max_output_tokens: Math.floor((available - 5_000) / 2) };
    await expect(create(members)).resolves.toMatchObject({ status: 'completed' });
    await expect(create({ ...members, previous_response_id: response.id })).rejects.toMatchObject({
      status: 402,
      code: 'insufficient_credits',
    });
  });

  test('is not stored by the provider', async () => {
    await create({ model: 'openai/ok' });
    expect(JSON.parse(provider.lastCall().body.toString())).toMatchObject({ store: false });
  });

  test('is replayed under its Idempotency-Key', async () => {
    const key = { headers: { 'Idempotency-Key': id('key') } };
    const body = { model: 'openai/ok', input: 'hi', store: true };
    const firstResponse = await client().responses.create(body, key);
    const secondResponse = await client().responses.create(body, key);
    expect(secondResponse.id).toBe(firstResponse.id);
    expect(await client().responses.retrieve(firstResponse.id)).toMatchObject({ id: firstResponse.id });
  });
});

describe('ai.getResponseTokens', () => {
  const count = (body: object) =>
    client()
      .responses.inputTokens.count(body)
      .then(({ input_tokens: tokens }) => tokens);

  test.each(models)('estimates the input of %s without a call', async (model) => {
    provider.reset();
    // 2,000 bytes, at about four bytes a token.
    const tokens = await count({ model, input: 'word '.repeat(400) });
    expect(tokens).toBeGreaterThan(400);
    expect(tokens).toBeLessThan(700);
    expect(provider.calls).toHaveLength(0);
  });

  test('counts the conversation that the request continues', async () => {
    const firstResponse = await client().responses.create({
      model: 'local/echo',
      input: 'word '.repeat(400),
      store: true,
    });
    const members = { model: 'local/echo', input: 'hi' };
    const countAlone = await count(members);
    // local/echo repeats the 500 tokens of the first input, so the conversation has about 1,000.
    expect(await count({ ...members, previous_response_id: firstResponse.id })).toBeGreaterThan(
      countAlone + 900,
    );
  });

  test.each([
    ['an unknown model', { model: 'acme/none' }, { status: 404, code: 'model_not_found' }],
    [
      'an unknown response',
      { previous_response_id: 'resp_none' },
      { status: 400, code: 'previous_response_not_found' },
    ],
    ['a conversation that a provider stores', { conversation: 'conv_1' }, { status: 422 }],
  ])('refuses %s', async (_what, members, refusal) => {
    const body = { model: 'local/echo', input: 'hi', ...members };
    await expect(count(body)).rejects.toMatchObject(refusal);
  });
});

describe('ai.listResponseInputItems', () => {
  test('pages in both orders', async () => {
    const input = ['a', 'b', 'c', 'd', 'e'].map((content) => ({ role: 'user' as const, content }));
    const { id: responseId } = await client().responses.create({ model: 'local/echo', input, store: true });
    const textsOf = (data: readonly unknown[]) =>
      data.map((item) => (item as { content: { text: string }[] }).content[0]?.text);
    const page = await client().responses.inputItems.list(responseId, { order: 'asc', limit: 2 });
    expect([textsOf(page.data), page.has_more]).toEqual([['a', 'b'], true]);
    const items: unknown[] = [];
    for await (const item of client().responses.inputItems.list(responseId, { limit: 2 })) items.push(item);
    expect(textsOf(items)).toEqual(['e', 'd', 'c', 'b', 'a']);
  });

  test('refuses an item of another response', async () => {
    const { id: responseId } = await client().responses.create({
      model: 'local/echo',
      input: 'a',
      store: true,
    });
    await expect(
      client().responses.inputItems.list(responseId, { after: 'msg_of_another' }),
    ).rejects.toMatchObject({ status: 400, param: 'after' });
  });
});

describe('a conversation', () => {
  test('keeps tool calls when it moves between models', async () => {
    const tools = [
      {
        type: 'function' as const,
        name: 'get_weather',
        parameters: { type: 'object', properties: {} },
        strict: false,
      },
    ];
    const firstResponse = await client().responses.create({
      model: 'local/echo',
      input: '@reasoning hm\n@tool get_weather {"city":"Oslo"}',
      tools,
      store: true,
    });
    const answer = { type: 'function_call_output' as const, call_id: 'call_1', output: 'It rains.' };
    const secondResponse = await client().responses.create({
      model: 'claude/ok',
      previous_response_id: firstResponse.id,
      input: [answer],
      tools,
      store: true,
    });
    expect(provider.lastCall().body.toString()).toContain('It rains.');
    await client().responses.create({
      model: 'openai/ok',
      previous_response_id: secondResponse.id,
      input: 'And now?',
    });
    const request = JSON.parse(provider.lastCall().body.toString()) as { input: { type: string }[] };
    // The reasoning of another provider is left out.
    expect(request.input.map(({ type }) => type)).toEqual([
      'message',
      'function_call',
      'function_call_output',
      'message',
      'message',
    ]);
  });

  test('is 413 when it is longer than a request may be', async () => {
    // A user of its own, since these bytes would exceed the quota of the other tests' user.
    const bearer = await issueStrangerToken();
    const firstResponse = await client(bearer).responses.create({
      model: 'local/echo',
      input: 'x',
      store: true,
    });
    await world.sql`
      update gateway.ai_responses set bytes = 100000000 where response_id = ${firstResponse.id}`;
    await expect(
      client(bearer).responses.create({
        model: 'local/echo',
        input: 'x',
        previous_response_id: firstResponse.id,
      }),
    ).rejects.toMatchObject({ status: 413, param: 'previous_response_id' });
  });

  test('that a provider stores is refused', async () => {
    await expect(
      client().responses.create({ model: 'openai/ok', input: 'x', conversation: 'conv_1' }),
    ).rejects.toMatchObject({ status: 422, param: 'conversation' });
  });
});

describe('ai.compactResponse', () => {
  const items = [
    { role: 'user' as const, content: 'Find the harbour' },
    { type: 'function_call' as const, call_id: 'call_1', name: 'search', arguments: '{"place":"quay 7"}' },
    { type: 'function_call_output' as const, call_id: 'call_1', output: 'It is closed.' },
    { role: 'assistant' as const, content: 'The harbour is closed.' },
  ];
  const compact = (members: object = {}, bearer?: string) =>
    client(bearer).responses.compact({
      model: 'acme/ok',
      input: items,
      ...members,
    } as unknown as OpenAI.Responses.ResponseCompactParams);
  const summaryOf = (response: OpenAI.Responses.CompactedResponse) =>
    response.output.find((item) => item.type === 'compaction') as OpenAI.Responses.ResponseCompactionItem;

  test.each(models)('returns a sealed summary by %s', async (model) => {
    const compaction = await compact({ model });
    expect(compaction).toMatchObject({
      object: 'response.compaction',
      output: [{ type: 'message', role: 'user' }, { type: 'compaction' }],
      usage: { input_tokens: expect.any(Number), output_tokens: expect.any(Number) },
    });
    expect(compaction.output).toHaveLength(2);
    const { encrypted_content: sealedSummary } = summaryOf(compaction);
    expect(sealedSummary).toMatch(/^townhall\.c1\./);
  });

  test.each(upstreamModels)('sends the whole conversation to %s', async (model) => {
    await compact({ model });
    const request = provider.lastCall().body.toString();
    for (const part of ['Find the harbour', 'quay 7', 'It is closed.', 'The harbour is closed.'])
      expect(request).toContain(part);
  });

  test.each(upstreamModels)('gives the next call the summary of %s', async (model) => {
    const compaction = await compact({ model });
    const { encrypted_content: sealedSummary } = summaryOf(compaction);
    const next = await client().responses.create({
      model,
      input: [...compaction.output, { role: 'user', content: 'And now?' }] as OpenAI.Responses.ResponseInput,
    });
    expect(next.status).toBe('completed');
    const continuedRequest = provider.lastCall().body.toString();
    expect(continuedRequest).toContain('Summary of the conversation so far');
    expect(continuedRequest).not.toContain(sealedSummary);
    expect(continuedRequest).not.toContain('quay 7');
  });

  test('compacts a stored conversation', async () => {
    const firstResponse = await client().responses.create({
      model: 'acme/ok',
      input: 'the first words',
      store: true,
    });
    const compaction = await compact({ input: 'more', previous_response_id: firstResponse.id });
    expect(provider.lastCall().body.toString()).toContain('the first words');
    expect(compaction.output.map(({ type }) => type)).toEqual(['message', 'message', 'compaction']);
  });

  test('charges for the tokens of the summary', async () => {
    const availableBefore = (await world.user.credits.getBalance()).available;
    const { usage } = await compact();
    const price = usage.input_tokens + 2 * usage.output_tokens;
    await expect
      .poll(async () => availableBefore - (await world.user.credits.getBalance()).available)
      .toBe(price);
  });

  test('returns all items when the model writes no complete summary', async () => {
    const compaction = await compact({ model: 'acme/incomplete' });
    expect(compaction.output.map(({ type }) => type)).toEqual([
      'message',
      'function_call',
      'function_call_output',
      'message',
    ]);
  });

  test('returns a summary that only its owner can use', async () => {
    const { output } = await compact();
    const body = { model: 'acme/ok', input: output as OpenAI.Responses.ResponseInput };
    await expect(client(await issueStrangerToken()).responses.create(body)).rejects.toMatchObject({
      status: 400,
      param: 'input',
    });
  });

  test('replays one compaction under an Idempotency-Key', async () => {
    const body = { model: 'openai/ok', input: items } as unknown as OpenAI.Responses.ResponseCompactParams;
    const key = { headers: { 'Idempotency-Key': id('key') } };
    const compaction = await client().responses.compact(body, key);
    expect(await client().responses.compact(body, key)).toEqual(compaction);
  });

  test('refuses an empty conversation', async () => {
    await expect(compact({ input: [] })).rejects.toMatchObject({ status: 400, param: 'input' });
  });

  test.each([
    ['an unknown response', { previous_response_id: 'resp_none' }, 400, 'previous_response_not_found'],
    ['an unknown effort', { reasoning: { effort: 'high' } }, 422, 'unsupported_reasoning_effort'],
    ['a conversation that a provider stores', { conversation: 'conv_1' }, 422, 'unsupported_by_model'],
  ])('refuses %s', async (_what, members, status, code) => {
    const response = await fetch(`${world.url}/v1/ai/responses/compact`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${world.userToken}` },
      body: JSON.stringify({ model: 'acme/ok', input: 'x', ...members }),
    });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { code } });
  });
});
