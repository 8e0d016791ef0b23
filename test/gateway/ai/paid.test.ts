// Paid calls through a gateway with a real ledger and database: holds, charges, records and
// reported prices.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { waitForEnd, waitForVideo } from './media/media-world.ts';
import { wavFile } from './wav.ts';

const messages = [{ role: 'user' as const, content: 'hi' }];
const rates = {
  input: 1_000_000,
  output: 2_000_000,
  image: 40,
  speech_character: 10,
  audio_second: 100,
  video_second: 25,
};
const scripts = {
  ok: 'ok',
  slow: 'ok?chunks=500&gap=10',
  delayed: 'delay?ms=400',
  broken: 'status?code=500',
  torn: 'usage-then-cut',
  painter: 'images',
  'slow-painter': 'images-slow',
  'broken-painter': 'status?code=400',
  speaker: 'speech',
  whisper: 'whisper',
  listener: 'listener',
  'counting-listener': 'counting-listener',
};

let provider: ScriptedProvider;
let world: GatewayWorld;
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-paid-'));
  provider = await startProvider();
  const modelsFile = join(folder, 'models.json');
  const film = {
    id: 'paid/film',
    provider: 'local',
    upstream_model: 'storyboard',
    modalities: ['video'],
    rates,
  };
  await writeFile(
    modelsFile,
    provider.modelsFile(scripts, {
      provider: { output_limit_member: 'max_tokens' },
      model: {
        rates,
        max_output_tokens: 1_000,
        modalities: ['text', 'stream', 'openai', 'image', 'tts', 'asr'],
      },
      providers: [{ id: 'claude', kind: 'anthropic', base_url: provider.url, api_key_env: 'ACME_API_KEY' }],
      models: [film, { id: 'claude/broken', provider: 'claude', upstream_model: scripts.broken, rates }],
    }),
  );
  world = await startGateway({
    withAdmin: true,
    env: {
      ACME_API_KEY: 'key-of-acme',
      STORAGE_PATH: join(folder, 'storage'),
      MODELS_FILE: modelsFile,
      STARTING_CREDITS: '1000000',
      TIMEOUT_DRAIN_MS: '1000',
    },
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
  await rm(folder, { recursive: true, force: true });
});
beforeEach(() => provider.reset());

const balance = async () => world.user.credits.getBalance();
const post = (path: string, body: object, headers: Record<string, string> = {}) =>
  fetch(`${world.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${world.userToken}`, ...headers },
    body: JSON.stringify(body),
  });
const chat = (model: string, members: object = {}, headers: Record<string, string> = {}) =>
  post('/v1/ai/chat/completions', { model, messages, ...members }, headers);

/** The price of the work, measured once no credits are held. */
async function costOf(work: () => Promise<unknown>): Promise<number> {
  const balanceBefore = await balance();
  expect(balanceBefore.held).toBe(0);
  await work();
  await expect.poll(async () => (await balance()).held, { interval: 20 }).toBe(0);
  return balanceBefore.posted - (await balance()).posted;
}

describe('a paid call', () => {
  // The provider reports 10 input tokens, and 4 output tokens or 5 in a stream, at 1 and 2 credits each.
  test.each<[string, number, () => Promise<unknown>]>([
    ['a whole answer', 18, () => world.user.ai.generateText({ model: 'acme/ok', prompt: 'hi' })],
    ['a stream', 20, async () => (await chat('acme/ok', { stream: true })).text()],
  ])('is charged when %s ends', async (_kind, price, call) => {
    const balanceBefore = await balance();
    await call();
    expect(await balance()).toEqual({
      ...balanceBefore,
      posted: balanceBefore.posted - price,
      available: balanceBefore.available - price,
    });
  });

  test('holds its highest price while it runs', async () => {
    const call = chat('acme/delayed', { max_tokens: 100 });
    await provider.until((calls) => calls.length === 1);
    // 100 output tokens at 2 credits. The provider may be called before the hold is written.
    await expect.poll(async () => (await balance()).held).toBeGreaterThanOrEqual(200);
    await (await call).text();
    expect((await balance()).held).toBe(0);
  });

  test('is charged for the output so far when the caller disconnects', async () => {
    const cost = await costOf(async () => {
      const disconnection = new AbortController();
      const response = await fetch(`${world.url}/v1/ai/chat/completions`, {
        method: 'POST',
        signal: disconnection.signal,
        headers: { 'content-type': 'application/json', authorization: `Bearer ${world.userToken}` },
        body: JSON.stringify({ model: 'acme/slow', messages, stream: true }),
      });
      await response.body?.getReader().read();
      disconnection.abort();
      await provider.until((calls) => calls[0]?.abortedAt !== undefined);
    });
    // An output token costs 2 credits. The input is fewer than 20 tokens by the gateway's count, and a piece of the
    // output, of at most seven bytes, is at most 7 / 4 tokens.
    expect(cost).toBeGreaterThan(2);
    expect(cost).toBeLessThan(20 + 2 * ((provider.lastCall().tokens * 7) / 4));
  });

  test('is free and recorded for an administrator', async () => {
    const cost = await costOf(async () => {
      const response = await post(
        '/v1/ai/text',
        { model: 'acme/ok', prompt: 'hi' },
        { authorization: `Bearer ${world.adminToken}` },
      );
      expect(await response.json()).toMatchObject({ metadata: { credits: 0 } });
      const requestId = String(response.headers.get('x-request-id'));
      const { items } = await world.admin.usage.listRecords({ request_id: requestId });
      expect(items).toMatchObject([{ model: 'acme/ok', credits: 0 }]);
    });
    expect(cost).toBe(0);
  });
});

describe('the usage record of a call', () => {
  const recordOf = async (response: Response) => {
    await response.text();
    const requestId = String(response.headers.get('x-request-id'));
    const list = () => world.user.usage.listRecords({ request_id: requestId });
    await expect.poll(async () => (await list()).items.length, { interval: 20 }).toBe(1);
    return (await list()).items[0];
  };

  test('counts the attempts of an answered call', async () => {
    expect(await recordOf(await chat('acme/ok'))).toMatchObject({
      outcome: 'completed',
      failure_code: null,
      attempts: 1,
    });
  });

  test('has the error code and attempts of a call without an answer', async () => {
    const response = await chat('acme/broken');
    const attempts = String(response.headers.get('x-townhall-attempts')).split(', ').length;
    const { code } = ((await response.clone().json()) as { error: { code: string } }).error;
    expect(attempts).toBeGreaterThan(1);
    expect(await recordOf(response)).toMatchObject({
      outcome: 'upstream_failed',
      failure_code: code,
      attempts,
    });
  });

  test('has the error code of a stream that broke', async () => {
    expect(await recordOf(await chat('acme/torn', { stream: true }))).toMatchObject({
      outcome: 'upstream_failed',
      failure_code: 'upstream_truncated',
      attempts: 1,
    });
  });
});

// Headers that belong to one request, or that a replay adds.
const headersOfOneRequest =
  /^(?:date|x-request-id|server-timing|ratelimit|idempotent-replayed|content-length)$/;
const lastingHeaders = ({ headers }: Response) =>
  Object.fromEntries([...headers].filter(([name]) => !headersOfOneRequest.test(name)));

describe('a paid call with an Idempotency-Key', () => {
  test('is replayed with the headers of its first answer', async () => {
    const key = { 'idempotency-key': randomUUID() };
    const firstAnswer = await chat('acme/ok', {}, key);
    expect(lastingHeaders(firstAnswer)).toMatchObject({
      'x-townhall-model': 'acme/ok',
      'x-townhall-attempts': 'acme/ok;answered',
      'x-townhall-credits': '18',
    });
    const secondAnswer = await chat('acme/ok', {}, key);
    expect(secondAnswer.headers.get('idempotent-replayed')).toBe('true');
    expect(lastingHeaders(secondAnswer)).toEqual(lastingHeaders(firstAnswer));
  });

  test('is charged once for concurrent repetitions', async () => {
    const key = { 'idempotency-key': randomUUID() };
    const cost = await costOf(async () => {
      const answers = await Promise.all(Array.from({ length: 20 }, () => chat('acme/delayed', {}, key)));
      const statuses = answers.map(({ status }) => status).sort((a, b) => a - b);
      expect(statuses[0]).toBe(200);
      expect(statuses.every((status) => status === 200 || status === 409)).toBe(true);
      await Promise.all(answers.map((answer) => answer.text()));
    });
    expect(cost).toBe(18);
    expect(provider.calls).toHaveLength(1);
    const secondAnswer = await chat('acme/delayed', {}, key);
    expect(secondAnswer.headers.get('idempotent-replayed')).toBe('true');
    expect(await secondAnswer.json()).toMatchObject({
      model: 'acme/delayed',
      choices: [{ message: { content: 'Hello from the provider.' } }],
    });
    expect(provider.calls).toHaveLength(1);
  });

  test('is 422 for another body', async () => {
    const key = { 'idempotency-key': randomUUID() };
    expect((await chat('acme/ok', {}, key)).status).toBe(200);
    expect((await chat('acme/ok', { temperature: 1 }, key)).status).toBe(422);
    expect(provider.calls).toHaveLength(1);
  });

  test('replays a failure of messages with the error types of Anthropic', async () => {
    const key = { 'idempotency-key': randomUUID() };
    const send = async () => {
      return (await post('/v1/ai/messages', { model: 'claude/broken', max_tokens: 5, messages }, key)).json();
    };
    const firstAnswer = await send();
    expect(firstAnswer).toMatchObject({ type: 'error', error: { type: 'api_error' } });
    expect(await send()).toEqual(firstAnswer);
  });

  test.each(['acme/delayed', 'acme/slow'])(
    'is charged once when its caller disconnects: %s',
    async (model) => {
      const key = { 'idempotency-key': randomUUID() };
      const isStream = model === 'acme/slow';
      const repeatCall = () => chat(model, { stream: isStream }, key);
      const firstCost = await costOf(async () => {
        const disconnection = new AbortController();
        const request = fetch(`${world.url}/v1/ai/chat/completions`, {
          method: 'POST',
          signal: disconnection.signal,
          headers: { 'content-type': 'application/json', authorization: `Bearer ${world.userToken}`, ...key },
          body: JSON.stringify({ model, messages, stream: isStream }),
        });
        await provider.until((calls) => calls.length === 1);
        disconnection.abort();
        await expect(request.then((response) => response.text())).rejects.toThrow('aborted');
        const code = async () =>
          ((await (await repeatCall()).json()) as { error: { code: string } }).error.code;
        expect(['idempotency_key_in_use', 'result_not_replayable']).toContain(await code());
        await expect.poll(code, { interval: 20 }).toBe('result_not_replayable');
      });
      expect(firstCost).toBeGreaterThan(0);
      const cost = await costOf(async () => expect((await repeatCall()).status).toBe(409));
      expect(cost).toBe(0);
      expect(provider.calls).toHaveLength(1);
    },
  );

  test('replays text with its price', async () => {
    const key = { 'idempotency-key': randomUUID() };
    const text = () => post('/v1/ai/text', { model: 'acme/ok', prompt: 'hi' }, key);
    const firstAnswer = await (await text()).json();
    expect(firstAnswer).toMatchObject({ metadata: { credits: 18 } });
    expect(await (await text()).json()).toEqual(firstAnswer);
    expect(provider.calls).toHaveLength(1);
  });

  test('answers 409 to a repeated stream', async () => {
    const key = { 'idempotency-key': randomUUID() };
    const streamOnce = () =>
      post(
        '/v1/ai/stream',
        { model: 'acme/ok', prompt: [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }] },
        key,
      );
    expect(await (await streamOnce()).text()).toContain('[DONE]');
    const repeatedAnswer = await streamOnce();
    expect(repeatedAnswer.status).toBe(409);
    expect(await repeatedAnswer.json()).toMatchObject({ error: { code: 'result_not_replayable' } });
    expect(provider.calls).toHaveLength(1);
  });
});

describe('the price of speech and recognition', () => {
  const speak = (members: object, headers: Record<string, string> = {}) =>
    post('/v1/ai/tts', { model: 'acme/speaker', ...members }, headers);
  const recognize = (model: string, audio: Buffer, members: object = {}) =>
    post('/v1/ai/asr', { model, audio: audio.toString('base64'), media_type: 'audio/wav', ...members });
  const costOfAnswer = (call: () => Promise<Response>) =>
    costOf(async () => {
      const response = await call();
      expect(response.status).toBe(200);
      await response.arrayBuffer();
    });

  // Speech costs 10 credits per character, and recognition 100 credits per second of audio.
  test('counts the characters of speech', async () => {
    expect(await costOfAnswer(() => speak({ text: 'Grüße 🌍' }))).toBe(70);
  });

  test('is in a header of speech as JSON', async () => {
    const cost = await costOf(async () => {
      const { headers } = await speak({ text: 'abc' }, { accept: 'application/json' });
      expect(headers.get('x-townhall-credits')).toBe('30');
    });
    expect(cost).toBe(30);
  });

  test('counts the characters of speech instructions', async () => {
    expect(await costOfAnswer(() => speak({ text: 'abc', instructions: 'be glad' }))).toBe(100);
  });

  test('counts the prompt of a recognition', async () => {
    // 1,500 characters count as 10 seconds (promptCharactersPerSecond in handlers/audio.ts), and 16,000 bytes of
    // audio are one second.
    const prompt = 'word '.repeat(300);
    expect(await costOfAnswer(() => recognize('acme/listener', wavFile(16_000), { prompt }))).toBe(1_100);
  });

  test('counts the seconds of audio', async () => {
    expect(await costOfAnswer(() => recognize('acme/whisper', wavFile(24_000)))).toBe(150);
  });

  // 1.5 seconds of audio whose header declares 4 GB a second.
  const shortenedAudio = wavFile(24_000, {
    declared: { bytesPerSecond: 0xffff_ffff, contentBytes: 0xffff_0000 },
  });

  test('ignores the duration in the header of the audio', async () => {
    expect(await costOfAnswer(() => recognize('acme/listener', shortenedAudio))).toBe(150);
  });

  test('counts the seconds that the provider reports', async () => {
    // The scripted provider reports 2 seconds.
    expect(await costOfAnswer(() => recognize('acme/counting-listener', shortenedAudio))).toBe(200);
  });
});

describe('a paid job', () => {
  test('is charged once for its results', async () => {
    const cost = await costOf(async () => {
      const { job_id: jobId } = await world.user.ai.createImage({ model: 'acme/painter', prompt: 'x', n: 3 });
      expect(await waitForEnd(world.user, jobId)).toMatchObject({
        status: 'succeeded',
        metadata: { credits: 120 },
      });
    });
    expect(cost).toBe(120);
  });

  test('holds its price until it ends', async () => {
    const cost = await costOf(async () => {
      const { job_id: jobId } = await world.user.ai.createImage({
        model: 'acme/slow-painter',
        prompt: 'x',
        n: 2,
      });
      expect((await balance()).held).toBe(80);
      await provider.until((calls) => calls.length === 1, 20_000);
      expect((await balance()).held).toBe(80);
      expect(await world.user.ai.cancelImage({ job_id: jobId })).toMatchObject({
        status: 'canceled',
        metadata: { credits: 0 },
      });
    });
    expect(cost).toBe(0);
  });

  test('costs nothing when it fails', async () => {
    const cost = await costOf(async () => {
      const { job_id: jobId } = await world.user.ai.createImage({
        model: 'acme/broken-painter',
        prompt: 'x',
      });
      expect(await waitForEnd(world.user, jobId)).toMatchObject({
        status: 'failed',
        metadata: { credits: 0 },
      });
    });
    expect(cost).toBe(0);
  });

  test('is not created without credits', async () => {
    const count = async () => {
      const [row] = await world.sql<{ count: bigint }[]>`select count(*) as count from gateway.ai_jobs`;
      return Number(row?.count);
    };
    const countBefore = await count();
    const { available } = await balance();
    const { user } = await world.user.accounts.getMe();
    // Less than the 40 credits of an image remain.
    const change = { user_id: user.user_id, credits: available - 30, reason: 'test' };
    await world.admin.credits.deductCredits(change);
    try {
      await expect(world.user.ai.createImage({ model: 'acme/painter', prompt: 'x' })).rejects.toMatchObject({
        status: 402,
      });
      expect(await count()).toBe(countBefore);
    } finally {
      await world.admin.credits.grantCredits(change);
    }
  });

  test('charges a video by its seconds', { timeout: 120_000 }, async () => {
    const cost = await costOf(async () => {
      const job = await world.user.ai.startVideo({
        model: 'paid/film',
        prompt: 'A red sun rises.',
        duration_seconds: 1,
      });
      expect(await waitForVideo(world.user, job.job_id)).toMatchObject({
        status: 'succeeded',
        metadata: { credits: 25 },
      });
    });
    expect(cost).toBe(25);
  });
});
