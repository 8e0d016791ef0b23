// Metrics and traces of a server: disabled ones do nothing, enabled ones are correct, an
// unreachable collector does no harm, and neither contains user content.
import { afterEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor, createToken } from '../../src/kernel/secrets/secret.ts';
import { boundedLabel } from '../../src/kernel/telemetry/metrics.ts';
import {
  openTelemetry,
  type Telemetry,
  type TelemetrySettings,
} from '../../src/kernel/telemetry/telemetry.ts';
import { telemetrySecrets } from '../../src/kernel/telemetry/telemetry-settings.ts';
import { withSpan } from '../../src/kernel/telemetry/traces.ts';
import { startCollector, spanKinds, type Collector } from '../support/collector.ts';
import { quickest } from '../support/quickest.ts';
import { startWorld, type World, type WorldOptions } from './world.ts';
import { until } from '../support/until.ts';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

interface ObservedWorld {
  world: World;
  telemetry: Telemetry;
  metricsUrl: string;
  lines: Record<string, unknown>[];
  read(): Promise<string>;
}

async function startObserved(
  settings: Partial<TelemetrySettings>,
  options: WorldOptions | ((telemetry: Telemetry) => WorldOptions) = {},
): Promise<ObservedWorld> {
  const lines: Record<string, unknown>[] = [];
  const redactor = createRedactor();
  redactor.hold('CANARY-held-secret');
  const log = createLog({
    level: 'debug',
    redactor,
    write: (line) => lines.push(JSON.parse(line) as Record<string, unknown>),
  });
  const telemetry = await openTelemetry({
    settings: { metrics: { host: '127.0.0.1', port: 0 }, traces: null, ...settings },
    surface: 'gateway',
    version: '1.2.3',
    hide: (text) => redactor.hide(text),
    clock: systemClock,
    log,
    batchEveryMs: 20,
  });
  const worldOptions = typeof options === 'function' ? options(telemetry) : options;
  const world = await startWorld({
    ...worldOptions,
    server: { ...worldOptions.server, log, observer: telemetry.observer },
  });
  const metricsServer = await telemetry.listen();
  closers.push(async () => {
    await world.close();
    await telemetry.close();
  });
  return {
    world,
    telemetry,
    metricsUrl: metricsServer?.url ?? '',
    lines,
    read: async () => (await fetch(metricsServer?.url ?? '')).text(),
  };
}

async function openCollector(): Promise<Collector> {
  const collector = await startCollector();
  closers.push(() => collector.close());
  return collector;
}

const traceSettings = (endpoint: string, headers?: string) => ({
  endpoint,
  headers,
  serviceName: 'test-service',
  sampledShare: 1,
});

describe('metrics', () => {
  test('count and time requests by operation, status and identity', async () => {
    const { world, read } = await startObserved({});
    await fetch(`${world.url}/v1/ai/models`, { headers: { authorization: 'Bearer user-token' } }).then(
      (answer) => answer.text(),
    );
    await fetch(`${world.url}/v1/ai/models`, { headers: { authorization: 'Bearer wrong-token' } }).then(
      (answer) => answer.text(),
    );
    await fetch(`${world.url}/nowhere/${createToken('usr')}`).then((answer) => answer.text());
    const text = await read();
    expect(text).toContain(
      'townhall_requests_total{operation="ai.listModels",status="200",identity="user"} 1',
    );
    expect(text).toContain(
      'townhall_requests_total{operation="ai.listModels",status="401",identity="guest"} 1',
    );
    expect(text).toMatch(/townhall_requests_total\{operation="[^"]*",status="404",identity="[^"]*"\} 1/);
    expect(text).toMatch(/townhall_request_duration_seconds_count\{operation="ai\.listModels"\} 2/);
    expect(text).toContain('nodejs_eventloop_lag_p99_seconds');
    expect(text).toContain('process_resident_memory_bytes');
    expect(text).not.toMatch(/th_usr_/);
  });

  test('show open streams and count disconnected readers', async () => {
    const release = Promise.withResolvers<void>();
    const { world, read } = await startObserved(
      {},
      {
        handlers: {
          'open.stream': async () => ({
            status: 200,
            events: (async function* () {
              yield { data: { n: 1 } };
              await release.promise;
            })(),
          }),
        },
      },
    );
    const reader = new AbortController();
    const answer = await fetch(`${world.url}/v1/open/stream`, { signal: reader.signal });
    await answer.body?.getReader().read();
    expect(await read()).toMatch(/townhall_open_streams 1\n/);
    reader.abort();
    await until(() => world.server.inFlight() === 0, 'the request ends');
    release.resolve();
    const text = await read();
    expect(text).toMatch(/townhall_open_streams 0\n/);
    expect(text).toContain('townhall_requests_abandoned_total{operation="open.stream"} 1');
  });

  test('omit a gauge that fails', async () => {
    const { telemetry, read, lines } = await startObserved({});
    telemetry.metrics.gauge('townhall_test_holds', 'Holds.', async () => 7);
    telemetry.metrics.gauge('townhall_test_states', 'By state.', () => [{ labels: ['open'], value: 2 }], [
      'state',
    ]);
    telemetry.metrics.gauge('townhall_test_broken', 'Broken.', () => {
      throw new Error('away');
    });
    const text = await read();
    expect(text).toContain('townhall_test_holds 7');
    expect(text).toContain('townhall_test_states{state="open"} 2');
    expect(text).toContain('townhall_requests_in_flight 0');
    expect(text).not.toMatch(/townhall_test_broken \d/);
    expect(lines).toContainEqual(
      expect.objectContaining({ msg: 'a metric could not be read', metric: 'townhall_test_broken' }),
    );
  });

  test('are read at one path', async () => {
    const { metricsUrl } = await startObserved({});
    const urlOf = (path: string) => new URL(path, metricsUrl).href;
    expect((await fetch(metricsUrl)).headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/);
    expect((await fetch(metricsUrl, { method: 'HEAD' })).status).toBe(200);
    expect((await fetch(urlOf('/'))).status).toBe(404);
    expect((await fetch(metricsUrl, { method: 'POST' })).status).toBe(405);
  });

  test('are refused to a browser page', async () => {
    const { metricsUrl } = await startObserved({});
    const { status, headers } = await fetch(metricsUrl, { headers: { origin: 'http://evil.test' } });
    expect([status, headers.get('access-control-allow-origin')]).toEqual([403, null]);
  });

  test('are not loaded without a port', async () => {
    const { metricsUrl, telemetry } = await startObserved({ metrics: null });
    expect(metricsUrl).toBe('');
    expect(telemetry.metrics.isOn).toBe(false);
    expect(telemetry.traces.isOn).toBe(false);
  });

  test("bound the number of a label's values", () => {
    const limitLabel = boundedLabel(2);
    expect(['a', 'b', 'c', 'a', 'd'].map(limitLabel)).toEqual(['a', 'b', 'other', 'a', 'other']);
  });
});

describe('the request log line', () => {
  test('names caller, operation, cost, duration and size', async () => {
    const { world, lines } = await startObserved(
      { metrics: null },
      {
        handlers: {
          'ai.generateText': async (call) => {
            call.note({ model: 'acme/large', provider: 'acme', tokens: { input: 12, output: 5 } });
            call.note({ credits: 77n, upstreamMs: 4, ttftMs: 3.14 });
            return { status: 200, body: {} };
          },
        },
        server: { nameIdentity: ({ kind }) => ({ identityId: `${kind}_1` }) },
      },
    );
    const body = JSON.stringify({ model: 'acme/large' });
    const answer = await fetch(`${world.url}/v1/ai/text`, {
      method: 'POST',
      headers: { authorization: 'Bearer user-token', 'content-type': 'application/json' },
      body,
    });
    await answer.text();
    expect(answer.headers.get('server-timing')).toMatch(/^upstream;dur=4\.0, app;dur=\d+\.\d$/);
    await until(() => lines.some(({ msg }) => msg === 'request'), 'the line');
    expect(lines.filter(({ msg }) => msg === 'request')).toEqual([
      {
        level: 'info',
        time: expect.any(String),
        requestId: expect.stringMatching(/^req_/),
        method: 'POST',
        operationId: 'ai.generateText',
        status: 200,
        ms: expect.any(Number),
        identity: 'user',
        identityId: 'user_1',
        model: 'acme/large',
        provider: 'acme',
        inputTokens: 12,
        outputTokens: 5,
        credits: 77,
        upstreamMs: 4,
        ttftMs: 3.1,
        bytesIn: body.length,
        bytesOut: expect.any(Number),
        msg: 'request',
      },
    ]);
    expect(Number(lines.find(({ msg }) => msg === 'request')?.bytesOut)).toBeGreaterThan(200);
  });
});

describe('Server-Timing', () => {
  test('excludes the upstream time from app', async () => {
    const upstreamMs = 100;
    const { world } = await startObserved(
      { metrics: null },
      {
        handlers: {
          'ai.listModels': async (call) => {
            const startedMs = performance.now();
            await new Promise((resolve) => setTimeout(resolve, upstreamMs));
            call.note({ upstreamMs: performance.now() - startedMs });
            return { status: 200, body: {} };
          },
        },
      },
    );
    const appMs = await quickest(upstreamMs / 2, async () => {
      const { headers } = await fetch(`${world.url}/v1/ai/models`, {
        headers: { authorization: 'Bearer user-token' },
      });
      const [, upstream, app] =
        /upstream;dur=([\d.]+), app;dur=([\d.]+)/.exec(headers.get('server-timing') ?? '') ?? [];
      // A timer may end a little early.
      expect(Number(upstream)).toBeGreaterThan(upstreamMs - 5);
      return Number(app);
    });
    expect(appMs).toBeLessThan(upstreamMs / 2);
  });
});

describe('traces', () => {
  const callerTraceId = '0af7651916cd43dd8448eb211c80319c';
  const callerSpanId = 'b7ad6b7169203331';

  /** A world whose generateText calls a model within a span, and its trace headers to the model. */
  async function startTracedCalls(collector: Collector) {
    const traceparents: (string | undefined)[] = [];
    const observed = await startObserved(
      { traces: traceSettings(collector.url, 'x-collector-key=CANARY-held-secret') },
      (telemetry) => ({
        handlers: {
          'ai.generateText': async (call) => {
            const span = telemetry.traces.start('chat acme/large', {
              kind: 'client',
              attributes: { 'gen_ai.request.model': 'acme/large', 'test.secret': 'is CANARY-held-secret' },
            });
            await withSpan(
              telemetry.traces,
              span,
              async () => void traceparents.push(telemetry.traces.traceparent()),
            );
            call.note({
              model: 'acme/large',
              provider: 'acme',
              tokens: { input: 10, cachedInput: 2, output: 5, reasoning: 1 },
              credits: 3n,
            });
            call.log.info({}, 'from within');
            return { status: 200, body: { text: 'CANARY-answer' } };
          },
        },
      }),
    );
    return { ...observed, traceparents };
  }

  /** Sends a prompt with the caller's trace. */
  function sendPrompt(url: string): Promise<Response> {
    return fetch(url, {
      method: 'POST',
      headers: {
        authorization: 'Bearer user-token',
        'content-type': 'application/json',
        traceparent: `00-${callerTraceId}-${callerSpanId}-01`,
      },
      body: JSON.stringify({ model: 'acme/large', messages: [{ role: 'user', content: 'CANARY-prompt' }] }),
    });
  }

  test("continue the caller's trace", async () => {
    const collector = await openCollector();
    const { world, lines, traceparents } = await startTracedCalls(collector);
    expect((await sendPrompt(`${world.url}/v1/ai/text`)).status).toBe(200);
    const client = await collector.waitFor(({ name }) => name === 'chat acme/large');
    const server = await collector.waitFor(({ spanId }) => spanId === client.parentSpanId);
    expect(client).toMatchObject({ kind: spanKinds.client, traceId: callerTraceId, failed: false });
    expect(server).toMatchObject({
      name: 'ai.generateText',
      kind: spanKinds.server,
      parentSpanId: callerSpanId,
      attributes: {
        'http.request.method': 'POST',
        'http.response.status_code': 200,
        'townhall.operation': 'ai.generateText',
        'townhall.identity': 'user',
        'gen_ai.response.model': 'acme/large',
        'gen_ai.provider.name': 'acme',
        'gen_ai.usage.input_tokens': 12,
        'gen_ai.usage.output_tokens': 6,
        'townhall.credits': 3,
      },
      resource: { 'service.name': 'test-service', 'service.version': '1.2.3', 'townhall.surface': 'gateway' },
    });
    expect(traceparents).toEqual([`00-${client.traceId}-${client.spanId}-01`]);
    expect(lines.find(({ msg }) => msg === 'from within')).toMatchObject({
      traceId: client.traceId,
      spanId: server.spanId,
    });
    expect(collector.headers[0]).toMatchObject({
      path: '/v1/traces',
      'x-collector-key': 'CANARY-held-secret',
    });
  });

  test('contain no prompts, secrets or addresses', async () => {
    const collector = await openCollector();
    const { world } = await startTracedCalls(collector);
    expect((await sendPrompt(`${world.url}/v1/ai/text?x=1`)).status).toBe(400);
    expect((await sendPrompt(`${world.url}/v1/ai/text`)).status).toBe(200);
    const { parentSpanId } = await collector.waitFor(({ name }) => name === 'chat acme/large');
    await collector.waitFor(({ spanId }) => spanId === parentSpanId);
    expect(collector.bodies.join('')).not.toMatch(/CANARY|127\.0\.0\.1|user-token/);
  });

  test('start a new trace if the caller sends no valid one', async () => {
    const collector = await openCollector();
    const { world } = await startObserved(
      { traces: traceSettings(collector.url) },
      {
        handlers: {
          'ai.listModels': async () => {
            throw new Error('CANARY-inner words');
          },
        },
      },
    );
    for (const traceparent of ['nonsense', `00-${'0'.repeat(32)}-${callerSpanId}-01`]) {
      await fetch(`${world.url}/v1/ai/models`, {
        headers: { authorization: 'Bearer user-token', traceparent },
      }).then((answer) => answer.text());
    }
    const findSpans = () => collector.spans.filter(({ name }) => name === 'ai.listModels');
    await until(() => findSpans().length === 2, 'the spans of both requests');
    for (const span of findSpans())
      expect(span).toMatchObject({ parentSpanId: '', failed: true, attributes: { 'error.type': '500' } });
    expect(new Set(findSpans().map(({ traceId }) => traceId)).size).toBe(2);
    expect(collector.bodies.join('')).not.toContain('CANARY');
  });

  test('name a failure by its code, without its message', async () => {
    const collector = await openCollector();
    const { telemetry } = await startObserved({ traces: traceSettings(collector.url) });
    await expect(
      withSpan(telemetry.traces, telemetry.traces.start('work'), () =>
        Promise.reject(Object.assign(new Error('CANARY-words'), { code: 'EPIPE' })),
      ),
    ).rejects.toThrow('CANARY-words');
    expect((await collector.waitFor(({ name }) => name === 'work')).attributes['error.type']).toBe('EPIPE');
    expect(collector.bodies.join('')).not.toContain('CANARY');
  });

  test('of an unsampled caller are propagated but not exported', async () => {
    const collector = await openCollector();
    const traceparents: (string | undefined)[] = [];
    const { world, telemetry } = await startObserved(
      { traces: traceSettings(collector.url) },
      (telemetry) => ({
        handlers: {
          'ai.listModels': async () => {
            traceparents.push(telemetry.traces.traceparent());
            return { status: 200, body: {} };
          },
        },
      }),
    );
    const traceparent = `00-${callerTraceId}-${callerSpanId}-00`;
    await fetch(`${world.url}/v1/ai/models`, {
      headers: { authorization: 'Bearer user-token', traceparent },
    }).then((answer) => answer.text());
    telemetry.traces.start('marker').end();
    await collector.waitFor(({ name }) => name === 'marker');
    expect(collector.spans.map(({ name }) => name)).toEqual(['marker']);
    expect(traceparents[0]).toMatch(new RegExp(`^00-${callerTraceId}-[0-9a-f]{16}-00$`));
  });

  test.each(['refuses connections', 'never answers'])(
    'do not delay a caller when the collector %s',
    async (failure) => {
      const collector = await startCollector({ silent: true });
      closers.push(() => collector.close());
      if (failure === 'refuses connections') await collector.close();
      const { world, telemetry, lines } = await startObserved({ traces: traceSettings(collector.url) });
      for (let count = 0; count < 20; count += 1)
        expect((await fetch(`${world.url}/health`)).status).toBe(200);
      // More spans than the queue holds: the rest is dropped, and memory stays bounded.
      for (let count = 0; count < 20_000; count += 1) telemetry.traces.start('flood').end();
      expect((await fetch(`${world.url}/health`)).status).toBe(200);
      if (failure === 'refuses connections')
        await until(
          () => lines.some(({ msg }) => String(msg).startsWith('the collector did not accept')),
          'the warning',
          60_000,
        );
      const startedMs = performance.now();
      await telemetry.close();
      // Two seconds plus an allowance for a busy machine; waiting for the exporter would take ten.
      expect(performance.now() - startedMs).toBeLessThan(8_000);
    },
  );
});

describe('telemetrySecrets', () => {
  test('has the key of a collector as it is set and as it is sent', () => {
    const settings: TelemetrySettings = {
      metrics: null,
      traces: {
        endpoint: 'http://127.0.0.1:4318',
        headers: 'authorization=Basic%20dXNlcjpwYXNz%3D%3D, x-key=abc',
        serviceName: 'test',
        sampledShare: 1,
      },
    };
    expect(telemetrySecrets(settings)).toEqual(
      expect.arrayContaining(['dXNlcjpwYXNz%3D%3D', 'dXNlcjpwYXNz==', 'abc']),
    );
  });
});
