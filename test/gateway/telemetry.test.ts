// The metrics, spans, log line and Server-Timing of a call to a provider agree. They contain no prompt, no
// answer and no key.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { spanKinds, startCollector, type CollectedSpan, type Collector } from '../support/collector.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway, type GatewayWorld } from '../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../support/provider.ts';

const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
let provider: ScriptedProvider;
let collector: Collector;
let world: GatewayWorld;
let folder: string;
let metricsUrl: string;

const paidModel = (id: string, script: string) => ({
  id,
  provider: 'acme',
  upstream_model: script,
  rates: { input: 1_000_000, output: 2_000_000 },
  max_output_tokens: 1_000,
});

beforeAll(async () => {
  provider = await startProvider();
  collector = await startCollector();
  folder = await mkdtemp(join(tmpdir(), 'townhall-telemetry-'));
  const modelsFile = join(folder, 'models.json');
  await writeFile(
    modelsFile,
    provider.modelsFile(
      {
        fast: 'ok',
        vectors: 'ok',
        broken: 'status?code=500',
        refused: 'key-echo?code=400',
        unpaid: 'status?code=401&message=Your+account+is+suspended',
        // The key begins within the 500 characters of a message that are logged, and ends behind them.
        wordy: `status?code=422&message=${'long+'.repeat(98)}CANARY-key-of-acme+end`,
        cut: 'error-event',
        flaky: 'flaky?fails=1&code=503&message=scripted+failure',
      },
      {
        provider: { formats: ['chat', 'embeddings', 'rerank'] },
        models: [
          {
            id: 'acme/painter',
            provider: 'acme',
            upstream_model: 'images',
            rates: null,
            modalities: ['image'],
          },
          { id: 'twin/fast', provider: 'twin', upstream_model: 'ok', rates: null },
          paidModel('acme/background', 'ok?chunks=5&gap=20'),
          paidModel('acme/keyed', 'ok?chunks=20&gap=20'),
        ],
        providers: [
          {
            id: 'twin',
            kind: 'openai-compatible',
            base_url: provider.url,
            keys: [{ env: 'TWIN_KEY_1' }, { env: 'TWIN_KEY_2' }],
          },
        ],
      },
    ),
  );
  const port = await freePort();
  metricsUrl = `http://127.0.0.1:${port}/metrics`;
  world = await startGateway({
    env: {
      MODELS_FILE: modelsFile,
      STORAGE_PATH: join(folder, 'storage'),
      ACME_API_KEY: 'CANARY-key-of-acme',
      STARTING_CREDITS: '1000000',
      TWIN_KEY_1: 'CANARY-first-key',
      TWIN_KEY_2: 'CANARY-second-key',
      METRICS_PORT: String(port),
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_HEADERS: 'x-key=CANARY-collector-key',
    },
  });
});
afterAll(async () => {
  await world?.close();
  await collector.close();
  await provider.close();
  await rm(folder, { recursive: true });
});

const metrics = async (): Promise<string> => (await fetch(metricsUrl)).text();

/** Waits for a span with the name, other than the first `count` spans that were collected. */
const waitForSpan = (name: string, count: number) =>
  collector.waitFor((span) => span.name === name && collector.spans.indexOf(span) >= count);

/** The log line of the request, as soon as it is written. */
async function lineOf(requestId: string | null): Promise<Record<string, unknown>> {
  return vi.waitFor(
    () => {
      const requestLine = world.logLines
        .map((line) => JSON.parse(line) as Record<string, unknown>)
        .find((line) => line.msg === 'request' && line.requestId === requestId);
      expect(requestLine).toBeDefined();
      return requestLine as Record<string, unknown>;
    },
    { timeout: 30_000, interval: 20 },
  );
}

function ask(model: string, members: object = {}): Promise<Response> {
  return fetch(`${world.url}/v1/ai/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${world.userToken}`, 'content-type': 'application/json', traceparent },
    body: JSON.stringify({ model, messages: [{ role: 'user', content: 'CANARY-prompt' }], ...members }),
  });
}

function createResponse(
  model: string,
  members: object,
  { headers = {}, ...init }: { headers?: Record<string, string>; signal?: AbortSignal } = {},
): Promise<Response> {
  return fetch(`${world.url}/v1/ai/responses`, {
    ...init,
    method: 'POST',
    headers: { authorization: `Bearer ${world.userToken}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ model, input: 'CANARY-prompt', ...members }),
  });
}

/** Expects that the only call of the model has a duration, a first piece, tokens and credits. */
function expectWholeMeasurement(text: string, model: string): void {
  const labels = `provider="acme",model="${model}"`;
  expect(valueOf(text, `townhall_upstream_duration_seconds_count{${labels}}`)).toBe(1);
  expect(valueOf(text, `townhall_upstream_first_piece_seconds_count{${labels}}`)).toBe(1);
  // Longer than the first piece, which arrives before the end.
  const sumOf = (name: string) => valueOf(text, `townhall_upstream_${name}_seconds_sum{${labels}}`);
  expect(sumOf('duration')).toBeGreaterThan(sumOf('first_piece'));
  expect(valueOf(text, `townhall_tokens_total{model="${model}",kind="output"}`)).toBeGreaterThan(0);
  expect(valueOf(text, `townhall_credits_total{model="${model}"}`)).toBeGreaterThan(0);
}

test('the metrics count the keys of a provider by their variables', async () => {
  provider.answerKey('CANARY-first-key', { status: 401 });
  provider.answerKey('CANARY-second-key', { status: 402 });
  const answer = await ask('twin/fast');
  expect(answer.status).toBe(502);
  await answer.text();
  await lineOf(answer.headers.get('x-request-id'));
  const text = await metrics();
  for (const [key, outcome] of [
    ['TWIN_KEY_1', 'provider_credentials'],
    ['TWIN_KEY_2', 'upstream_failed'],
  ]) {
    const labels = `provider="twin",key="${key}"`;
    expect(text).toContain(`townhall_upstream_key_requests_total{${labels},outcome="${outcome}"} 1`);
    expect(text).toContain(`townhall_upstream_key_cooling{${labels},endpoint=""} 1`);
    expect(text).toContain(`townhall_upstream_key_running{${labels},endpoint=""} 0`);
  }
  expect(text).not.toContain('CANARY');
});

describe.each([false, true])('a call to a provider (stream: %s)', (stream) => {
  let headers: Headers;
  let line: Record<string, unknown>;
  let clientSpan: CollectedSpan;
  beforeAll(async () => {
    const spanCount = collector.spans.length;
    const answer = await ask('acme/fast', { stream });
    expect(answer.status).toBe(200);
    await answer.text();
    headers = answer.headers;
    line = await lineOf(headers.get('x-request-id'));
    clientSpan = await waitForSpan('chat acme/fast', spanCount);
  });

  test('is logged with its caller, model, usage and trace', () => {
    expect(line).toMatchObject({
      operationId: 'ai.createChatCompletion',
      status: 200,
      identity: 'user',
      identityId: expect.stringMatching(/^usr_/),
      tokenId: expect.stringMatching(/^tok_/),
      bureauId: 'local',
      model: 'acme/fast',
      provider: 'acme',
      traceId: '0af7651916cd43dd8448eb211c80319c',
      inputTokens: expect.any(Number),
      outputTokens: expect.any(Number),
      credits: expect.any(Number),
      upstreamMs: expect.any(Number),
    });
  });

  test('has its times in Server-Timing', () => {
    expect(headers.get('server-timing')).toMatch(/upstream;dur=[\d.]+, app;dur=[\d.]+$/);
  });

  test('has a client span with its usage', () => {
    expect(clientSpan).toMatchObject({
      kind: spanKinds.client,
      failed: false,
      attributes: {
        'gen_ai.operation.name': 'chat',
        'gen_ai.provider.name': 'acme',
        'gen_ai.request.model': 'acme/fast',
        'gen_ai.usage.output_tokens': line.outputTokens,
      },
    });
  });

  test('has a server span within the trace of the caller', async () => {
    expect(await collector.waitFor(({ spanId }) => spanId === clientSpan.parentSpanId)).toMatchObject({
      name: 'ai.createChatCompletion',
      kind: spanKinds.server,
      parentSpanId: 'b7ad6b7169203331',
      attributes: { 'townhall.credits': line.credits, 'gen_ai.response.model': 'acme/fast' },
    });
  });

  test('passes its span to the provider', () => {
    const { traceId, spanId } = clientSpan;
    expect(provider.lastCall().headers.traceparent).toBe(`00-${traceId}-${spanId}-01`);
  });
});

/** The value of a series, such as `name{label="x"}`. */
function valueOf(text: string, series: string): number {
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${series} `));
  return Number(line?.slice(series.length));
}

describe('a call to a provider', () => {
  // Counts the two calls that the tests above made.
  test('appears in the metrics with its tokens and retries', async () => {
    const failedResponse = await ask('acme/broken');
    expect(failedResponse.status).toBe(502);
    await failedResponse.text();
    await lineOf(failedResponse.headers.get('x-request-id'));
    const text = await metrics();
    const fast = 'provider="acme",model="acme/fast"';
    const broken = 'provider="acme",model="acme/broken"';
    const requests = 'townhall_upstream_requests_total';
    expect(valueOf(text, `${requests}{${fast},outcome="answered"}`)).toBe(2);
    expect(valueOf(text, `${requests}{${broken},outcome="upstream_failed"}`)).toBeGreaterThan(0);
    expect(valueOf(text, `townhall_upstream_retries_total{${broken}}`)).toBeGreaterThan(0);
    expect(valueOf(text, `townhall_upstream_breaker_open{${fast}}`)).toBe(0);
    // Only the stream has a first piece.
    expect(valueOf(text, `townhall_upstream_first_piece_seconds_count{${fast}}`)).toBe(1);
    expect(valueOf(text, 'townhall_tokens_total{model="acme/fast",kind="output"}')).toBeGreaterThan(0);
    const chat = 'operation="ai.createChatCompletion",status="200",identity="user"';
    expect(valueOf(text, `townhall_requests_total{${chat}}`)).toBe(2);
    expect(valueOf(text, 'townhall_ledger_open_holds')).toBe(0);
    expect(valueOf(text, 'townhall_database_connections{state="idle"}')).toBeGreaterThanOrEqual(0);
  });

  test('that fails is a failed span with the code of the error', async () => {
    const spanCount = collector.spans.length;
    await (await ask('acme/unpaid')).text();
    expect(await waitForSpan('chat acme/unpaid', spanCount)).toMatchObject({
      failed: true,
      attributes: { 'error.type': 'provider_credentials' },
    });
  });

  test('at an alias is counted and traced as its operation', async () => {
    const spanCount = collector.spans.length;
    const answer = await fetch(`${world.url}/v1/embeddings`, {
      method: 'POST',
      headers: { authorization: `Bearer ${world.userToken}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'acme/vectors', input: 'CANARY-text' }),
    });
    expect(answer.status).toBe(200);
    await answer.text();
    const client = await waitForSpan('embeddings acme/vectors', spanCount);
    const server = await collector.waitFor(({ spanId }) => spanId === client.parentSpanId);
    expect(server.name).toBe('ai.embedText');
    const text = await metrics();
    expect(text).toContain(
      'townhall_requests_total{operation="ai.embedText",status="200",identity="user"} 1',
    );
    // The id of an alias is that of its operation with `AtV1…` at its end.
    expect(text).not.toContain('AtV1');
  });

  test.each([
    ['embeddings', 'embedding-model', { values: ['a'] }],
    ['rerank', 'reranking-model', { query: 'a', documents: { type: 'text', values: ['b'] } }],
  ])('of the AI SDK is traced as %s', async (operation, path, body) => {
    const spanCount = collector.spans.length;
    const answer = await fetch(`${world.url}/v1/ai/${path}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${world.userToken}`,
        'content-type': 'application/json',
        'ai-model-id': 'acme/vectors',
      },
      body: JSON.stringify(body),
    });
    expect(answer.status).toBe(200);
    await answer.text();
    await waitForSpan(`${operation} acme/vectors`, spanCount);
  });

  test('of an image job has a span without a parent', async () => {
    const spanCount = collector.spans.length;
    const headers = { authorization: `Bearer ${world.userToken}`, 'content-type': 'application/json' };
    // Two images: only the first job starts the queue, and it may not give the queue its own span.
    for (const prompt of ['CANARY-one', 'CANARY-two']) {
      const body = JSON.stringify({ model: 'acme/painter', prompt });
      const answer = await fetch(`${world.url}/v1/images/generations`, { method: 'POST', headers, body });
      await answer.text();
      expect(answer.status).toBe(200);
    }
    expect(await metrics()).toMatch(
      /townhall_upstream_duration_seconds_count\{provider="acme",model="acme\/painter"\} 2\n/,
    );
    const findSpans = () =>
      collector.spans.slice(spanCount).filter(({ name }) => name === 'generate_content acme/painter');
    await expect.poll(findSpans).toHaveLength(2);
    expect(findSpans().map(({ parentSpanId }) => parentSpanId)).toEqual(['', '']);
  });

  test('in the background is measured to its end', async () => {
    const spanCount = collector.spans.length;
    const answer = await createResponse('acme/background', { background: true });
    expect(await answer.json()).toMatchObject({ status: 'queued' });
    const { attributes } = await waitForSpan('chat acme/background', spanCount);
    expect(attributes['gen_ai.usage.output_tokens']).toBeGreaterThan(0);
    expect(attributes['townhall.credits']).toBeGreaterThan(0);
    expectWholeMeasurement(await metrics(), 'acme/background');
  });

  test('whose client leaves a keyed stream is measured to its end', async () => {
    const spanCount = collector.spans.length;
    const abort = new AbortController();
    const answer = await createResponse(
      'acme/keyed',
      { stream: true },
      { headers: { 'idempotency-key': 'CANARY-keyed' }, signal: abort.signal },
    );
    await answer.body?.getReader().read();
    abort.abort();
    const { attributes } = await waitForSpan('chat acme/keyed', spanCount);
    expect(attributes['gen_ai.usage.output_tokens']).toBeGreaterThan(0);
    expectWholeMeasurement(await metrics(), 'acme/keyed');
  });

  test('to an unknown model adds no metric label', async () => {
    for (let count = 0; count < 5; count += 1) await (await ask(`acme/CANARY-${count}`)).text();
    expect(await metrics()).not.toContain('CANARY');
  });

  test('leaves no content or secret in metrics, spans or the log', async () => {
    const output = [await metrics(), ...collector.bodies, ...world.logLines].join('\n');
    expect(output).not.toContain('CANARY');
    expect(output).not.toContain(world.userToken);
    expect(output).not.toMatch(/Hello from the provider|tok0 tok1/);
  });
});

test('the guide names exactly the exposed metrics', async () => {
  const guide = await readFile(new URL('../../docs/guides/telemetry.md', import.meta.url), 'utf8');
  const documentedMetrics = [...guide.matchAll(/^\| `(townhall_\w+)`/gm)]
    .map(([, name = '']) => name)
    .sort((a, b) => a.localeCompare(b));
  const exposedMetrics = [...(await metrics()).matchAll(/^# TYPE (townhall_\w+) /gm)]
    .map(([, name = '']) => name)
    .sort((a, b) => a.localeCompare(b));
  expect(documentedMetrics).toEqual(exposedMetrics);
});

describe('the log of a call that fails', () => {
  test.each([
    [
      'refused',
      400,
      'upstream_refused',
      /^Bad request with Bearer \[redacted\] at \[redacted\] \(\[redacted\]\)$/,
      400,
    ],
    ['unpaid', 502, 'provider_credentials', /^Your account is suspended$/, 401],
    ['broken', 502, 'upstream_failed', /^scripted 500$/, 500],
    ['wordy', 422, 'upstream_refused', /^(?:long )+\[redacted\]$/, 422],
  ])('has the error of the provider for the model %s', async (model, status, code, words, providerStatus) => {
    const answer = await ask(`acme/${model}`);
    expect(answer.status).toBe(status);
    await answer.text();
    const line = await lineOf(answer.headers.get('x-request-id'));
    expect(line).toMatchObject({
      level: 'info',
      requestId: answer.headers.get('x-request-id'),
      status,
      code,
      model: `acme/${model}`,
      provider: 'acme',
      providerStatus,
      providerWords: expect.stringMatching(words),
    });
    expect(line.attempts).toBe(answer.headers.get('x-townhall-attempts'));
    expect(String(line.attempts)).toMatch(new RegExp(`^acme/${model};${code}`));
    expect(String(line.providerWords).length).toBeLessThanOrEqual(500);
    expect(JSON.stringify(line)).not.toMatch(/CANARY/);
  });

  test('names the model of an interrupted stream', async () => {
    const answer = await ask('acme/cut', { stream: true });
    expect(answer.status).toBe(200);
    await answer.text();
    const requestId = answer.headers.get('x-request-id');
    expect(await lineOf(requestId)).toMatchObject({
      status: 200,
      model: 'acme/cut',
      code: 'upstream_failed',
      providerWords: expect.stringMatching(/^boom Bearer \[redacted\]$/),
    });
    expect(world.logLines.join('')).not.toContain('CANARY-key-of-acme');
  });

  test('omits the provider’s error when a retry succeeds', async () => {
    const answer = await ask('acme/flaky');
    expect(answer.headers.get('x-townhall-attempts')).toBe('acme/flaky;upstream_failed, acme/flaky;answered');
    await answer.text();
    const line = await lineOf(answer.headers.get('x-request-id'));
    expect(line).not.toHaveProperty('providerWords');
    expect(line).not.toHaveProperty('code');
  });

  test('has the code of a request that reached no model', async () => {
    const answer = await ask('acme/none');
    await answer.text();
    expect(await lineOf(answer.headers.get('x-request-id'))).toMatchObject({
      status: 404,
      code: 'model_not_found',
    });
  });
});
