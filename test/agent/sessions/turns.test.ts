// What a turn does beside answering: it sums the past up when the context fills, asks the plugins at every edge, and an
// input that is not begun in time is let go.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { definePlugin } from '../../../src/agent/plugins/index.ts';
import { calls, says, type ScriptedAnswer } from '../../support/scripted-gateway.ts';
import { collect, holdAnswer, openWorld, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

describe('a turn', () => {
  test('sums up what was said when the context is nearly full; the log shows it and keeps every message', async () => {
    world.gateway.catalog([{ id: 'local/echo', context_window: 2_000 }]);
    world.gateway.answer((request) =>
      says(/Sum up/.test(JSON.stringify(request.prompt.at(-1))) ? 'They spoke of fish.' : 'Noted.'),
    );
    const { client } = await world.start();
    await client.sessions.create({ id: 's' });
    const long = `Herring ${'and cod '.repeat(450)}`;
    await client.sessions.prompt({ sessionId: 's', text: long }, { headers: { prefer: 'wait=20' } });
    await client.sessions.prompt(
      { sessionId: 's', text: `Salmon ${'and eel '.repeat(450)}` },
      { headers: { prefer: 'wait=20' } },
    );
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(events.filter(({ type }) => type.startsWith('compaction.'))).toMatchObject([
      { type: 'compaction.started', reason: 'full' },
      { type: 'compaction.ended', outcome: 'completed', summary: 'They spoke of fish.' },
    ]);
    // What the summing up took is part of what the run took.
    expect(events.findLast((event) => event.type === 'run.settled')).toMatchObject({
      usage: { inputTokens: 20, outputTokens: 6 },
    });
    const shown = JSON.stringify(world.gateway.requests.at(-1)?.prompt);
    expect(shown).toContain('They spoke of fish.');
    expect(shown).toContain('Salmon');
    expect(shown).not.toContain('Herring');
    const { items } = await client.sessions.listMessages({ sessionId: 's' });
    expect(items.map(({ role }) => role)).toEqual(['user', 'assistant', 'user', 'assistant']);
    expect(items[0]?.parts).toEqual([expect.objectContaining({ type: 'text', text: long })]);
  });

  test('asks the plugins at each of its edges, in their order, and gives the model and the caller what they make of it', async () => {
    const told: string[] = [];
    const tell = (name: string) => () => void told.push(name);
    const plugin = definePlugin({
      name: 'edges',
      title: 'Edges',
      description: 'Notes where it is asked.',
      actions: {},
      hooks: {
        pipelines: {
          'enqueue.before': (value) => ({ ...value, text: `${value.text} please` }),
          'prompt.before': (value) => (
            told.push('prompt.before'),
            { ...value, system: `${value.system}\nBe brief.` }
          ),
          'tool.before': (value) => (told.push('tool.before'), value),
          'tool.after': (value) => (told.push('tool.after'), value),
          'answer.before': (value) => (told.push('answer.before'), { text: value.text.toUpperCase() }),
        },
        guards: { 'step.before': tell('step.before') },
        effects: {
          'enqueue.after': tell('enqueue.after'),
          'step.after': tell('step.after'),
          'answer.after': tell('answer.after'),
          'prompt.after': tell('prompt.after'),
        },
      },
    });
    world.gateway.answer((_, index) =>
      index === 0 ? calls({ name: 'files_list', input: {} }) : says('two files'),
    );
    const { client } = await world.start({ needs: { plugins: [plugin] } });
    expect(await client.sessions.execute({ instructions: 'Look' })).toMatchObject({ text: 'TWO FILES' });
    const asked = JSON.stringify(world.gateway.requests[0]?.prompt);
    expect(asked).toContain('Look please');
    expect(asked).toContain('Be brief.');
    await expect.poll(() => told.at(-1)).toBe('prompt.after');
    expect(told.filter((name) => name !== 'enqueue.after')).toEqual([
      'prompt.before',
      'step.before',
      'tool.before',
      'tool.after',
      'step.after',
      'step.before',
      'step.after',
      'answer.before',
      'answer.after',
      'prompt.after',
    ]);
    expect(told).toContain('enqueue.after');
  });

  test('that a guard refuses has failed with its reason, and the model was not asked', async () => {
    const plugin = definePlugin({
      name: 'closed',
      title: 'Closed',
      description: 'Refuses.',
      actions: {},
      hooks: { guards: { 'prompt.before': () => ({ refuse: 'Not on Sundays.' }) } },
    });
    const { client } = await world.start({ needs: { plugins: [plugin] } });
    await client.sessions.create({ id: 's' });
    const { runId } = await client.sessions.prompt(
      { sessionId: 's', text: 'Now?' },
      { headers: { prefer: 'wait=20' } },
    );
    expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({
      status: 'failed',
      error: { message: expect.stringContaining('Not on Sundays.') },
    });
    expect(world.gateway.requests).toHaveLength(0);
  });

  test('that waits beyond its deadline is expired, once, and what stands behind it runs', async () => {
    const { client } = await world.start();
    const first = holdAnswer();
    world.gateway.answer((_, index) => (index === 0 ? first.answer : says('Done.')));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'slow' });
    await first.asked;
    const late = await client.sessions.prompt({ sessionId: 's', text: 'soon or never', expiresInMs: 3_000 });
    const patient = await client.sessions.prompt({ sessionId: 's', text: 'patient' });
    expect([late.queuePosition, patient.queuePosition]).toEqual([1, 2]);
    await expect
      .poll(async () => (await client.sessions.getRun({ sessionId: 's', runId: late.runId })).status)
      .toBe('expired');
    first.end();
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(
      events.filter((event) => 'runId' in event && event.runId === late.runId).map(({ type }) => type),
    ).toEqual([
      'message.created',
      'message.completed',
      'queue.added',
      'queue.removed',
      'message.updated',
      'run.settled',
    ]);
    expect(
      events.find((event) => event.type === 'queue.removed' && event.runId === late.runId),
    ).toMatchObject({ reason: 'expired' });
    expect(await client.sessions.getRun({ sessionId: 's', runId: patient.runId })).toMatchObject({
      status: 'completed',
    });
    expect(JSON.stringify(world.gateway.requests.map(({ prompt }) => prompt))).not.toContain('soon or never');
  });
});

describe('a step that fails', () => {
  // A limit passes, so it is what would be tried again.
  const limited = {
    type: 'error',
    error: {
      type: 'rate_limit_error',
      code: 'rate_limited',
      message: 'Slowly.',
      param: null,
      request_id: 'req_0',
    },
  };
  const failing = (before: object[]): ScriptedAnswer => ({ parts: [...before, limited] });
  const text = [
    { type: 'text-start', id: 't' },
    { type: 'text-delta', id: 't', delta: 'A first word' },
  ];
  const tool = [{ type: 'tool-call', toolCallId: 'call_0', toolName: 'files_list', input: '{}' }];

  test.each([
    ['text', text],
    ['a tool call', tool],
  ])('is not tried again once %s has come', async (_, before) => {
    const { client } = await world.start({ settings: { modelRetries: 2 } });
    world.gateway.answer((_request, index) => (index === 0 ? failing(before) : says('A second answer.')));
    await client.sessions.create({ id: 's' });
    const { runId } = await client.sessions.prompt(
      { sessionId: 's', text: 'Go.' },
      { headers: { prefer: 'wait=20' } },
    );
    expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({ status: 'failed' });
    expect(world.gateway.requests).toHaveLength(1);
  });

  const cut: ScriptedAnswer = {
    async respond(response) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      await new Promise((resolve) =>
        response.write(`data: ${JSON.stringify({ type: 'stream-start', warnings: [] })}\n\n`, resolve),
      );
      response.destroy();
    },
  };
  const ways: [string, ScriptedAnswer][] = [
    ['an error in the stream', failing([])],
    ['a cut connection', cut],
    ['a status', { status: 503, error: { type: 'server_error', code: 'not_ready' } }],
  ];

  test.each(ways)('is tried again after %s before the first of its answer', async (_, first) => {
    const { client } = await world.start({ settings: { modelRetries: 2 } });
    world.gateway.answer((_request, index) => (index === 0 ? first : says('A second answer.')));
    expect(await client.sessions.execute({ instructions: 'Go.' })).toMatchObject({
      text: 'A second answer.',
    });
    expect(world.gateway.requests).toHaveLength(2);
  });
});
