// The agent's spans: a run, its steps and its tools in one trace, which the gateway joins. No span
// contains text of the conversation.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { definePlugin } from '../../src/agent/plugins/index.ts';
import { spanKinds, startCollector, type Collector } from '../support/collector.ts';
import { calls, says } from '../support/scripted-gateway.ts';
import { holdAnswer, openWorld, type World } from '../support/session-world.ts';

let world: World;
let collector: Collector;
beforeAll(async () => {
  collector = await startCollector();
  world = await openWorld();
});
afterAll(async () => {
  await world.close();
  await collector.close();
});

test('a run is exported as one trace that the gateway joins', async () => {
  const plugin = definePlugin({
    name: 'lookout',
    title: 'Lookout',
    description: 'Looks.',
    actions: {
      look: {
        description: 'Looks.',
        input: { type: 'object' },
        run: async () => ({ seen: 'CANARY-result' }),
      },
    },
  });
  world.gateway.answer((_, index) =>
    index === 0
      ? calls({ id: 'call_1', name: 'lookout_look', input: { at: 'CANARY-input' } })
      : says('CANARY-answer'),
  );
  const { client } = await world.start({
    createOptions: { plugins: [plugin] },
    settings: { otlpEndpoint: collector.url, name: 'watched' },
  });
  await client.sessions.execute({ instructions: 'CANARY-prompt' });
  const run = await collector.waitFor(({ name }) => name === 'invoke_agent watched');
  const steps = collector.spans.filter(({ name }) => name.startsWith('chat '));
  const tool = await collector.waitFor(({ name }) => name === 'execute_tool lookout_look');
  expect(run).toMatchObject({
    parentSpanId: '',
    failed: false,
    attributes: {
      'gen_ai.operation.name': 'invoke_agent',
      'gen_ai.agent.name': 'watched',
      'gen_ai.conversation.id': expect.any(String),
    },
  });
  expect(steps).toHaveLength(2);
  for (const step of steps)
    expect(step).toMatchObject({
      traceId: run.traceId,
      parentSpanId: run.spanId,
      kind: spanKinds.client,
      attributes: { 'gen_ai.operation.name': 'chat' },
    });
  expect(steps.map(({ spanId }) => spanId)).toContain(tool.parentSpanId);
  expect(tool.attributes).toMatchObject({
    'gen_ai.tool.name': 'lookout_look',
    'gen_ai.tool.call.id': 'call_1',
  });
  expect(world.gateway.requests.map((request) => (request as { traceparent?: string }).traceparent)).toEqual(
    steps.map(({ spanId }) => `00-${run.traceId}-${spanId}-01`),
  );
  expect(collector.bodies.join('')).not.toContain('CANARY');
});

test('a queued run links to the request that submitted it', async () => {
  const firstAnswer = holdAnswer();
  const { client } = await world.start({ settings: { otlpEndpoint: collector.url, name: 'linked' } });
  world.gateway.answer(({ prompt }) =>
    JSON.stringify(prompt.at(-1)).includes('First') ? firstAnswer.answer : says('Done.'),
  );
  await client.sessions.create({ id: 'linked' });
  const requests = [];
  for (const [text, traceId] of [
    ['First.', 'a'.repeat(32)],
    ['Second.', 'b'.repeat(32)],
  ] as const) {
    const { runId } = await client.sessions.prompt(
      { sessionId: 'linked', text },
      { headers: { traceparent: `00-${traceId}-${'c'.repeat(16)}-01` } },
    );
    requests.push({ runId, traceId });
  }
  await firstAnswer.request;
  firstAnswer.end();
  for (const { runId, traceId } of requests) {
    const request = await collector.waitFor(
      (span) => span.traceId === traceId && span.parentSpanId === 'c'.repeat(16),
    );
    const run = await collector.waitFor(({ attributes }) => attributes['townhall.run_id'] === runId);
    expect(run).toMatchObject({ parentSpanId: '', links: [{ traceId, spanId: request.spanId }] });
    expect(run.traceId).not.toBe(traceId);
  }
});
