// Runs: compaction when the context fills, hooks of plugins, expiry of inputs, and retries of
// failed steps.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { AgentClient } from '@townhall/agent';
import { definePlugin } from '../../../src/agent/plugins/index.ts';
import {
  breaksAfter,
  calls,
  promptBytes,
  says,
  type ScriptedAnswer,
} from '../../support/scripted-gateway.ts';
import { collect, holdAnswer, openWorld, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

/** Creates the session `s`, sends it the text, and returns once the run has settled. */
async function promptAndWait(client: AgentClient, text: string): Promise<{ runId: string }> {
  await client.sessions.create({ id: 's' });
  return client.sessions.prompt({ sessionId: 's', text }, { headers: { prefer: 'wait=20' } });
}

describe('a run that compacts its conversation', () => {
  const longText = `Herring ${'and cod '.repeat(450)}`;

  /** The second of two prompts fills the context window. */
  async function compact(): Promise<AgentClient> {
    world.gateway.catalog([{ id: 'local/echo', context_window: 2_000 }]);
    world.gateway.answer((request) =>
      says(/Sum up/.test(JSON.stringify(request.prompt.at(-1))) ? 'They spoke of fish.' : 'Noted.'),
    );
    const { client } = await world.start();
    await promptAndWait(client, longText);
    await client.sessions.prompt(
      { sessionId: 's', text: `Salmon ${'and eel '.repeat(450)}` },
      { headers: { prefer: 'wait=20' } },
    );
    return client;
  }

  test('reports the compaction with its summary', async () => {
    const client = await compact();
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(events.filter(({ type }) => type.startsWith('compaction.'))).toMatchObject([
      { type: 'compaction.started', reason: 'full' },
      { type: 'compaction.ended', outcome: 'completed', summary: 'They spoke of fish.' },
    ]);
  });

  test('includes the usage of the summary in its own', async () => {
    const client = await compact();
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(events.findLast((event) => event.type === 'run.settled')).toMatchObject({
      // The summary and the answer, each of 10 and 3 tokens.
      usage: { inputTokens: 20, outputTokens: 6 },
    });
  });

  test('sends the summary instead of the older messages', async () => {
    await compact();
    const prompt = JSON.stringify(world.gateway.requests.at(-1)?.prompt);
    expect(prompt).toContain('They spoke of fish.');
    expect(prompt).toContain('Salmon');
    expect(prompt).not.toContain('Herring');
  });

  test('keeps the messages in the session', async () => {
    const client = await compact();
    const { items } = await client.sessions.listMessages({ sessionId: 's' });
    expect(items.map(({ role }) => role)).toEqual(['user', 'assistant', 'user', 'assistant']);
    expect(items[0]?.parts).toEqual([expect.objectContaining({ type: 'text', text: longText })]);
  });
});

describe('a run', () => {
  test('passes its values through the hooks in order', async () => {
    const hookNames: string[] = [];
    const note = (name: string) => () => void hookNames.push(name);
    const plugin = definePlugin({
      name: 'edges',
      title: 'Edges',
      description: 'Notes which hooks run.',
      actions: {},
      hooks: {
        pipelines: {
          'enqueue.before': (value) => ({ ...value, text: `${value.text} please` }),
          'prompt.before': (value) => (
            hookNames.push('prompt.before'),
            { ...value, system: `${value.system}\nBe brief.` }
          ),
          'tool.before': (value) => (hookNames.push('tool.before'), value),
          'tool.after': (value) => (hookNames.push('tool.after'), value),
          'answer.before': (value) => (hookNames.push('answer.before'), { text: value.text.toUpperCase() }),
        },
        guards: { 'step.before': note('step.before') },
        effects: {
          'enqueue.after': note('enqueue.after'),
          'step.after': note('step.after'),
          'answer.after': note('answer.after'),
          'prompt.after': note('prompt.after'),
        },
      },
    });
    world.gateway.answer((_, index) =>
      index === 0 ? calls({ name: 'files_list', input: {} }) : says('two files'),
    );
    const { client } = await world.start({ createOptions: { plugins: [plugin] } });
    expect(await client.sessions.execute({ instructions: 'Look' })).toMatchObject({ text: 'TWO FILES' });
    const prompt = JSON.stringify(world.gateway.requests[0]?.prompt);
    expect(prompt).toContain('Look please');
    expect(prompt).toContain('Be brief.');
    await expect.poll(() => hookNames.at(-1)).toBe('prompt.after');
    // The run may start before the effect of its submission, so the place of `enqueue.after` varies.
    expect(hookNames.filter((name) => name !== 'enqueue.after')).toEqual([
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
    expect(hookNames).toContain('enqueue.after');
  });

  test('shows the input of a tool call as a hook has changed it', async () => {
    const plugin = definePlugin({
      name: 'censor',
      title: 'Censor',
      description: 'Changes inputs.',
      actions: {},
      hooks: { pipelines: { 'tool.before': (value) => ({ ...value, input: { path: 'open' } }) } },
    });
    world.gateway.answer((_, index) =>
      index === 0 ? calls({ name: 'files_list', input: { path: 'secret' } }) : says('Done.'),
    );
    const { client } = await world.start({ createOptions: { plugins: [plugin] } });
    const result = await client.sessions.execute({ instructions: 'Look' });
    const events = await collect(client.sessions.follow({ sessionId: result.sessionId, until: 'idle' }));
    expect(events.find(({ type }) => type === 'tool.started')).toMatchObject({ input: { path: 'open' } });
    expect(result).toMatchObject({
      message: {
        parts: expect.arrayContaining([
          expect.objectContaining({ type: 'dynamic-tool', input: { path: 'open' } }),
        ]),
      },
    });
    expect(JSON.stringify(world.gateway.requests[1]?.prompt)).not.toContain('secret');
  });

  test('fails with the reason of the guard that refuses it', async () => {
    const plugin = definePlugin({
      name: 'closed',
      title: 'Closed',
      description: 'Refuses.',
      actions: {},
      hooks: { guards: { 'prompt.before': () => ({ refuse: 'Not on Sundays.' }) } },
    });
    const { client } = await world.start({ createOptions: { plugins: [plugin] } });
    const { runId } = await promptAndWait(client, 'Now?');
    expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({
      status: 'failed',
      error: { message: expect.stringContaining('Not on Sundays.') },
    });
    expect(world.gateway.requests).toHaveLength(0);
  });

  test('runs the next input when one waited too long', async () => {
    const { client } = await world.start();
    const firstAnswer = holdAnswer();
    world.gateway.answer((_, index) => (index === 0 ? firstAnswer.answer : says('Done.')));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'slow' });
    await firstAnswer.request;
    const expiringRun = await client.sessions.prompt({
      sessionId: 's',
      text: 'soon or never',
      expiresInMs: 3_000,
    });
    const nextRun = await client.sessions.prompt({ sessionId: 's', text: 'next' });
    expect([expiringRun.queuePosition, nextRun.queuePosition]).toEqual([1, 2]);
    await expect
      .poll(async () => (await client.sessions.getRun({ sessionId: 's', runId: expiringRun.runId })).status)
      .toBe('expired');
    firstAnswer.end();
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(
      events.filter((event) => 'runId' in event && event.runId === expiringRun.runId).map(({ type }) => type),
    ).toEqual([
      'message.created',
      'message.completed',
      'queue.added',
      'queue.removed',
      'message.updated',
      'run.settled',
    ]);
    expect(
      events.find((event) => event.type === 'queue.removed' && event.runId === expiringRun.runId),
    ).toMatchObject({ reason: 'expired' });
    expect(await client.sessions.getRun({ sessionId: 's', runId: nextRun.runId })).toMatchObject({
      status: 'completed',
    });
    expect(JSON.stringify(world.gateway.requests.map(({ prompt }) => prompt))).not.toContain('soon or never');
  });
});

describe('a step that fails', () => {
  // An error event within the stream; the agent retries the step, since a rate limit is transient.
  const limitError = {
    type: 'error',
    error: {
      type: 'rate_limit_error',
      code: 'rate_limited',
      message: 'Slowly.',
      param: null,
      request_id: 'req_0',
    },
  };
  const text = [
    { type: 'text-start', id: 't' },
    { type: 'text-delta', id: 't', delta: 'A first word' },
  ];
  const tool = [{ type: 'tool-call', toolCallId: 'call_0', toolName: 'files_list', input: '{}' }];

  test('continues a truncated text without a repetition', async () => {
    const { client } = await world.start({ settings: { modelRetries: 2 } });
    world.gateway.answer((_request, index) => (index === 0 ? breaksAfter(...text) : says(' and a second.')));
    const { runId } = await promptAndWait(client, 'Go.');
    const run = await client.sessions.getRun({ sessionId: 's', runId });
    expect(run).toMatchObject({ status: 'completed', text: 'A first word and a second.' });
    const prompt = world.gateway.requests[1]?.prompt ?? [];
    expect(prompt.slice(-2)).toMatchObject([
      { role: 'assistant', content: [{ type: 'text', text: 'A first word' }] },
      { role: 'user', content: [{ text: expect.stringContaining('Continue it exactly where it stops') }] },
    ]);
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(events.flatMap((event) => (event.type === 'part.ended' ? [event.text] : []))).toEqual([
      'A first word',
      ' and a second.',
    ]);
    expect(events.find(({ type }) => type === 'run.retrying')).toMatchObject({ step: 1, attempt: 1 });
  });

  test('sends the results of tools that were called before the disconnection', async () => {
    const { client } = await world.start({ settings: { modelRetries: 2 } });
    world.gateway.answer((_request, index) => (index === 0 ? breaksAfter(...tool) : says('Listed.')));
    const { runId } = await promptAndWait(client, 'Go.');
    expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({ text: 'Listed.' });
    expect(world.gateway.requests[1]?.prompt.map(({ role }) => role)).toEqual([
      'system',
      'user',
      'assistant',
      'tool',
    ]);
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(events.filter(({ type }) => type === 'tool.started')).toHaveLength(1);
    const { messageId } = events.find((event) => event.type === 'part.started') ?? {};
    for (const type of ['tool.started', 'tool.output'] as const)
      expect(events.find((event) => event.type === type)).toMatchObject({ messageId });
  });

  test('is retried without incomplete reasoning', async () => {
    const { client } = await world.start({ settings: { modelRetries: 2 } });
    const reasoningParts = [
      { type: 'reasoning-start', id: 'r' },
      { type: 'reasoning-delta', id: 'r', delta: 'Let me' },
    ];
    world.gateway.answer((_request, index) => (index === 0 ? breaksAfter(...reasoningParts) : says('Well.')));
    expect(await client.sessions.execute({ instructions: 'Go.' })).toMatchObject({ text: 'Well.' });
    const [firstBytes, secondBytes] = world.gateway.bodies.map(promptBytes);
    expect(secondBytes).toEqual(firstBytes);
  });

  test('keeps its text when all retries fail', async () => {
    const { client } = await world.start({ settings: { modelRetries: 1 } });
    world.gateway.answer(() => breaksAfter(...text));
    const { runId } = await promptAndWait(client, 'Go.');
    expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({
      status: 'failed',
      error: { code: 'upstream_failed' },
      text: 'A first wordA first word',
    });
    expect(world.gateway.requests).toHaveLength(2);
  });

  test.each([
    ['a limit', { status: 429, error: { type: 'rate_limit_error', code: 'rate_limited' } }, 'rate_limited'],
    [
      'an open breaker',
      { status: 502, error: { type: 'api_error', code: 'upstream_failed' } },
      'model_unavailable',
    ],
  ])('waits after %s for the time that the gateway requests', async (_, refusal, reason) => {
    const { client } = await world.start({ settings: { modelWaitMs: 30_000 } });
    world.gateway.answer((_request, index) =>
      index === 0 ? { ...refusal, headers: { 'retry-after': '2' } } : says('At last.'),
    );
    const startedMs = Date.now();
    const { runId } = await promptAndWait(client, 'Go.');
    expect(Date.now() - startedMs).toBeGreaterThanOrEqual(2_000);
    expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({ text: 'At last.' });
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    const waitingEvent = events.find((event) => event.type === 'run.waiting');
    expect(waitingEvent).toMatchObject({ step: 1, reason });
    expect(Date.parse(waitingEvent?.until ?? '') - startedMs).toBeGreaterThanOrEqual(2_000);
    expect(events.some(({ type }) => type === 'run.retrying')).toBe(false);
  });

  test('fails at once when the wait would be longer than allowed', async () => {
    const { client } = await world.start({ settings: { modelWaitMs: 1_000 } });
    world.gateway.answer(() => ({
      status: 429,
      error: { type: 'rate_limit_error', code: 'rate_limited' },
      headers: { 'retry-after': '60' },
    }));
    await expect(client.sessions.execute({ instructions: 'Go.' })).rejects.toMatchObject({
      status: 429,
      code: 'rate_limited',
    });
    expect(world.gateway.requests).toHaveLength(1);
  });

  const transientFailures: [string, ScriptedAnswer][] = [
    ['an error event', { parts: [limitError] }],
    ['a disconnection', breaksAfter()],
    ['status 503', { status: 503, error: { type: 'server_error', code: 'not_ready' } }],
  ];

  test.each(transientFailures)('is retried after %s before its first output', async (_, firstResponse) => {
    const { client } = await world.start({ settings: { modelRetries: 2, modelWaitMs: 10_000 } });
    world.gateway.answer((_request, index) => (index === 0 ? firstResponse : says('A second answer.')));
    expect(await client.sessions.execute({ instructions: 'Go.' })).toMatchObject({
      text: 'A second answer.',
    });
    expect(world.gateway.requests).toHaveLength(2);
  });
});
