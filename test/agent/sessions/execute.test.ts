// `sessions.execute` against a scripted gateway: the model loop, failing tools, and the events in the log.
import { randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { AgentError } from '@townhall/agent';
import { definePlugin } from '../../../src/agent/plugins/index.ts';
import { startAgent, type AgentOptions, type TestAgent } from '../../support/agent.ts';
import { testDatabase, type TestDatabase } from '../../support/databases.ts';
import {
  calls,
  says,
  scriptedGateway,
  stream,
  toolResults,
  type ScriptedGateway,
  type StreamRequest,
} from '../../support/scripted-gateway.ts';

const trouble = definePlugin<{
  throw: object;
  hang: object;
  cycle: object;
  huge: object;
  echo: { text: string };
}>({
  name: 'trouble',
  title: 'Trouble',
  description: 'Fails in several ways.',
  actions: {
    throw: {
      description: 'Throws.',
      input: { type: 'object' },
      run: () => Promise.reject(new Error('secret sk-live-123 at /etc/passwd')),
    },
    hang: { description: 'Never ends.', input: { type: 'object' }, run: () => new Promise(() => {}) },
    cycle: {
      description: 'Returns what is no JSON.',
      input: { type: 'object' },
      run: async () => {
        const cycle: Record<string, unknown> = {};
        cycle['self'] = cycle;
        return cycle;
      },
    },
    huge: {
      description: 'Returns too much.',
      input: { type: 'object' },
      run: async () => 'x'.repeat(600 * 1024),
    },
    echo: {
      description: 'Gives its text back.',
      input: {
        type: 'object',
        required: ['text'],
        properties: { text: { type: 'string', maxLength: 50 } },
        additionalProperties: false,
      },
      run: async ({ text }) => ({ text }),
    },
  },
});

let world: TestDatabase;
let gateway: ScriptedGateway;
const agents: TestAgent[] = [];
// All agents share a database.
const start = async (options: Partial<AgentOptions> = {}) => {
  const name = `agent-${randomUUID()}`;
  const agent = await startAgent({
    gatewayUrl: gateway.url,
    name,
    model: 'local/echo',
    database: world.database,
    createOptions: { plugins: [trouble] },
    ...options,
  });
  agents.push(agent);
  return agent;
};
beforeAll(async () => {
  world = await testDatabase();
});
afterAll(() => world.close());
beforeEach(async () => {
  gateway = await scriptedGateway();
});
afterEach(async () => {
  await Promise.all(agents.splice(0).map((agent) => agent.close()));
  await gateway.close();
});

const execute = (agent: TestAgent, body: unknown) =>
  agent.fetch('/api/execute', {
    method: 'POST',
    headers: { authorization: `Bearer ${agent.token}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
const eventsOf = async (agent: TestAgent, sessionId: string) =>
  (
    await agent.sql<{ seq: number; type: string; data: Record<string, unknown> }[]>`
    select seq, type, data from agent.sessions_events where session_id = ${sessionId} order by seq`
  ).map((row) => ({ ...row }));

const resultsIn = (request: StreamRequest | undefined) => (request === undefined ? [] : toolResults(request));

const runsOf = (agent: TestAgent) =>
  agent.sql<{ run_id: string; status: string; error: unknown }[]>`
    select run_id, status, error from agent.sessions_runs join agent.tokens_agents using (agent_id)
    where name = ${agent.name}`;

describe('the input of sessions.execute', () => {
  test('refuses a text beyond two million characters with 413', async () => {
    const agent = await start();
    const text = 'x'.repeat(2 * 1024 * 1024);
    gateway.answer(() => says('Read.'));
    expect((await agent.client.sessions.execute({ instructions: text })).success).toBe(true);
    await expect(agent.client.sessions.execute({ instructions: `${text}x` })).rejects.toMatchObject({
      status: 413,
      code: 'request_too_large',
      param: 'instructions',
    });
  });

  test('summarizes a conversation that exceeds the gateway’s limit', async () => {
    const agent = await start();
    gateway.answer(() => says('Read.'));
    // Two of these exceed the 10 MiB that the gateway accepts in one request.
    const attachment = {
      type: 'document' as const,
      fileName: 'a.txt',
      contentType: 'text/plain',
      content: 'x'.repeat(7 * 1024 * 1024),
    };
    const chat = await agent.client.sessions.create({});
    const prompt = async () => {
      const answer = await agent.fetch(`/api/dashboard/sessions/${chat.id}/execute`, {
        method: 'POST',
        headers: { authorization: `Bearer ${agent.token}`, 'content-type': 'application/json' },
        body: JSON.stringify({ instructions: 'Read it.', attachments: [attachment] }),
      });
      return [answer.status, (await answer.json()) as unknown];
    };
    expect(await prompt()).toMatchObject([200, { success: true }]);
    expect(await prompt()).toMatchObject([200, { success: true }]);
    expect(gateway.requests).toHaveLength(3);
    expect(JSON.stringify(gateway.requests[1]?.prompt)).toContain('Sum up');
  });

  // The gateway takes 10 MiB of JSON, in which a control character has six bytes and a quote two.
  test.each([
    ['clips', 'control characters', '\u0001', 2 * 1024 * 1024],
    ['clips', 'quotes', '"', 6 * 1024 * 1024],
    ['keeps', 'letters of three bytes', '\u20ac', 2.6 * 1024 * 1024],
    ['keeps', 'text', 'Good morning.\n', 7 * 1024 * 1024],
  ])('%s an attachment of many %s', async (effect, _content, unit, length) => {
    const agent = await start();
    gateway.answer(() => says('Read.'));
    const content = unit.repeat(length / unit.length);
    const { sessionId } = await agent.client.sessions.execute({
      instructions: 'Read it.',
      attachments: [{ type: 'document', fileName: 'a.txt', contentType: 'text/plain', content }],
    });
    expect(gateway.requests).toHaveLength(1);
    const types = (await eventsOf(agent, sessionId)).map(({ type }) => type);
    expect(types.includes('run.warning')).toBe(effect === 'clips');
  });
});

describe('a run of sessions.execute', () => {
  test('answers with the text of the last step', async () => {
    const agent = await start();
    gateway.answer((_, index) => {
      if (index === 0)
        return calls({ name: 'files_write', input: { path: 'notes/day.md', content: 'Sunny.' } });
      if (index === 1)
        return calls(
          { name: 'files_read', input: { path: 'notes/day.md' } },
          { name: 'files_list', input: {} },
        );
      return says('It was sunny.');
    });
    const result = await agent.client.sessions.execute({ instructions: 'Note the weather.' });
    expect(result).toMatchObject({
      success: true,
      queued: false,
      text: 'It was sunny.',
      finishReason: 'stop',
      // Three steps, each of 10 and 3 tokens.
      usage: { inputTokens: 30, outputTokens: 9 },
      message: { role: 'assistant', metadata: { status: 'completed', model: 'local/echo' } },
    });
    expect(await readFile(join(agent.workspace, 'notes/day.md'), 'utf8')).toBe('Sunny.');
    expect(resultsIn(gateway.requests[2]).map(({ toolName, output }) => [toolName, output.value])).toEqual([
      ['files_write', { path: 'notes/day.md', bytes: 6, created: true }],
      ['files_read', { path: 'notes/day.md', bytes: 6, content: 'Sunny.' }],
      ['files_list', { path: '.', entries: [{ name: 'notes', type: 'folder' }] }],
    ]);
    expect('message' in result && result.message.parts.map((part) => part.type)).toEqual([
      'step-start',
      'dynamic-tool',
      'step-start',
      'dynamic-tool',
      'dynamic-tool',
      'step-start',
      'text',
    ]);
  });

  test('logs its events in order and without a gap', async () => {
    const agent = await start();
    gateway.answer((_, index) => (index === 0 ? calls({ name: 'files_list', input: {} }) : says('Empty.')));
    const { sessionId, runId } = await agent.client.sessions.execute({ instructions: 'Look around.' });
    const log = await eventsOf(agent, sessionId);
    expect(log.map(({ seq }) => seq)).toEqual(log.map((_, index) => index + 1));
    expect(log.map(({ type }) => type)).toEqual([
      'session.created',
      'message.created',
      'message.completed',
      'run.started',
      'status.changed',
      'message.created',
      'run.step.started',
      'tool.started',
      'tool.output',
      'run.step.ended',
      'run.step.started',
      'part.started',
      'part.ended',
      'run.step.ended',
      'message.completed',
      'run.settled',
      'status.changed',
    ]);
    expect(log.at(-2)?.data).toMatchObject({ outcome: 'completed', finishReason: 'stop', error: null });
    const [run] = await agent.sql`
      select status, usage, settled_at is not null as is_settled from agent.sessions_runs
      where run_id = ${runId}`;
    expect(run).toMatchObject({
      status: 'completed',
      is_settled: true,
      usage: { inputTokens: 20, outputTokens: 6 },
    });
    const [session] = await agent.sql`
      select kind, head_seq, active_run_id from agent.sessions_sessions where session_id = ${sessionId}`;
    expect({ ...session }).toEqual({ kind: 'execute', head_seq: log.length, active_run_id: null });
  });

  test('continues after failing tools and shows their errors to the model', async () => {
    const agent = await start({ settings: { toolTimeoutMs: 200 } });
    const names = ['throw', 'hang', 'cycle', 'huge'];
    gateway.answer((_, index) =>
      index === 0
        ? calls(...names.map((name) => ({ name: `trouble_${name}`, input: {}, id: name })), {
            name: 'trouble_echo',
            input: { text: 'fine' },
            id: 'echo',
          })
        : says('One of five.'),
    );
    const result = await agent.client.sessions.execute({ instructions: 'Try all.' });
    expect(result).toMatchObject({ text: 'One of five.' });
    const results = Object.fromEntries(
      resultsIn(gateway.requests[1]).map(({ toolCallId, output }) => [toolCallId, output]),
    );
    expect(results).toEqual({
      throw: { type: 'error-text', value: 'The action failed.' },
      hang: { type: 'error-text', value: 'The action did not end within 0.2 seconds.' },
      cycle: { type: 'error-text', value: 'The action failed.' },
      huge: { type: 'error-text', value: 'The result of the action is larger than 512 KiB.' },
      echo: { type: 'json', value: { text: 'fine' } },
    });
    expect(JSON.stringify(await eventsOf(agent, result.sessionId))).not.toContain('sk-live');
  });

  test('reports unknown tools and invalid input to the model', async () => {
    const agent = await start();
    gateway.answer((_, index) =>
      index === 0
        ? calls(
            { name: 'constructor', input: {}, id: 'unknown' },
            { name: 'trouble_echo', input: { text: 'a', more: 1 }, id: 'more' },
            { name: 'trouble_echo', input: {}, id: 'less' },
            { name: 'trouble_echo', input: '{not json', id: 'broken' },
          )
        : says('None of them.'),
    );
    const { sessionId } = await agent.client.sessions.execute({ instructions: 'Misuse the tools.' });
    const results = Object.fromEntries(
      resultsIn(gateway.requests[1]).map(({ toolCallId, output }) => [toolCallId, output]),
    );
    expect(results['unknown']).toMatchObject({
      type: 'error-text',
      value: expect.stringContaining('constructor'),
    });
    expect(results['more']).toEqual({
      type: 'error-text',
      value: 'The input does not match the schema of the action: more is not known here.',
    });
    expect(results['less']).toEqual({
      type: 'error-text',
      value: 'The input does not match the schema of the action: text is required.',
    });
    expect(results['broken']?.type).toBe('error-text');
    const failures = (await eventsOf(agent, sessionId)).filter(({ type }) => type === 'tool.failed');
    expect(new Set(failures.map(({ data }) => data['toolCallId']))).toEqual(
      new Set(['broken', 'less', 'more', 'unknown']),
    );
  });

  test('fails a run at the step limit', async () => {
    const agent = await start({ settings: { maxSteps: 3 } });
    gateway.answer(() => calls({ name: 'files_list', input: {} }));
    await expect(agent.client.sessions.execute({ instructions: 'Go on for ever.' })).rejects.toMatchObject({
      status: 422,
      code: 'step_limit_reached',
    });
    expect(gateway.requests).toHaveLength(3);
    const [run] = await runsOf(agent);
    expect(run).toMatchObject({ status: 'failed', error: { code: 'step_limit_reached' } });
  });

  test('replaces characters that PostgreSQL cannot store', async () => {
    const agent = await start();
    gateway.answer(() => says('a\u0000b \\u0000 \ud83d\ude00'));
    const result = await agent.client.sessions.execute({ instructions: 'Speak \u0000 oddly.' });
    expect(result).toMatchObject({ text: 'a\u0000b \\u0000 \ud83d\ude00' });
    const log = await eventsOf(agent, result.sessionId);
    expect(log.find(({ type }) => type === 'message.completed')?.data).toMatchObject({
      message: { parts: [{ text: 'Speak \ufffd oddly.' }] },
    });
    expect(log.findLast(({ type }) => type === 'message.completed')?.data).toMatchObject({
      message: { parts: [{ type: 'step-start' }, { text: 'a\ufffdb \\u0000 \ud83d\ude00' }] },
    });
  });
});

describe('sessions.execute and the gateway', () => {
  test('uses the requested model and the agent’s token', async () => {
    const agent = await start({ gatewayToken: 'th_usr_of-the-agent' });
    gateway.answer(() => says('Done.'));
    await agent.client.sessions.execute({ instructions: 'Speak.', model: 'acme/fast' });
    expect(gateway.requests[0]).toMatchObject({
      model: 'acme/fast',
      authorization: 'Bearer th_usr_of-the-agent',
    });
    expect(gateway.requests[0]?.tools?.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['files_list', 'files_read', 'files_write']),
    );
    expect(JSON.stringify(gateway.requests[0]?.prompt)).not.toContain(agent.workspace);
  });

  test('rereads the token file for each run', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'townhall-token-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const file = join(folder, 'gateway.token');
    const agent = await start({ gatewayTokenFile: file });
    gateway.answer(() => says('Done.'));
    await expect(agent.client.sessions.execute({ instructions: 'Speak.' })).rejects.toMatchObject({
      status: 503,
      code: 'not_ready',
    });
    await writeFile(file, 'th_usr_first\n');
    await agent.client.sessions.execute({ instructions: 'Speak.' });
    await writeFile(file, 'th_usr_second\n');
    await agent.client.sessions.execute({ instructions: 'Speak.' });
    expect(gateway.requests.map(({ authorization }) => authorization)).toEqual([
      'Bearer th_usr_first',
      'Bearer th_usr_second',
    ]);
  });

  test.each([
    [401, { code: 'invalid_token', type: 'authentication_error' }, 502, 'provider_credentials'],
    [402, { code: 'insufficient_credits', type: 'insufficient_credits' }, 402, 'insufficient_credits'],
    [404, { code: 'model_not_found' }, 404, 'model_not_found'],
    [
      400,
      { code: 'context_length_exceeded', message: 'This model takes 8192 tokens.' },
      422,
      'upstream_refused',
    ],
    [422, { code: 'unsupported_by_model' }, 422, 'unsupported_by_model'],
    [429, { code: 'rate_limited', type: 'rate_limit_error' }, 429, 'rate_limited'],
    [500, { code: 'internal_error', type: 'server_error' }, 502, 'upstream_failed'],
    [502, { code: 'upstream_failed', type: 'upstream_error' }, 502, 'upstream_failed'],
    [503, { code: 'draining', type: 'server_error' }, 503, 'not_ready'],
    [504, { code: 'upstream_timeout', type: 'upstream_error' }, 504, 'upstream_timeout'],
  ])(
    'maps a gateway’s %i to a failed run without addresses or tokens',
    async (status, error, expectedStatus, code) => {
      const agent = await start();
      gateway.answer(() => ({ status, error }));
      const response = await execute(agent, { instructions: 'Speak.' });
      const body = await response.text();
      expect([response.status, JSON.parse(body)]).toMatchObject([
        expectedStatus,
        { success: false, error: { code } },
      ]);
      expect(body).not.toContain(gateway.url);
      expect(body).not.toContain('th_usr_test');
      const [run] = await runsOf(agent);
      expect(run?.status).toBe('failed');
      expect(body).toContain(run?.run_id);
    },
  );

  test('answers 502 when the gateway ends its answer early', async () => {
    const agent = await start();
    gateway.answer(() => ({
      respond: async (response) =>
        void response
          .writeHead(200, { 'content-type': 'text/event-stream' })
          .end('data: {"type":"text-start","id":"t"}\n\n'),
    }));
    await expect(agent.client.sessions.execute({ instructions: 'Speak.' })).rejects.toMatchObject({
      status: 502,
      code: 'upstream_truncated',
    });
  });

  test('answers 502 for an error within the answer of the gateway', async () => {
    const agent = await start();
    const error = { type: 'upstream_error', code: 'upstream_failed', message: 'It broke.' };
    gateway.answer(() => ({
      parts: [
        { type: 'error', error },
        { type: 'finish', finishReason: { unified: 'error' }, usage: { inputTokens: {}, outputTokens: {} } },
      ],
    }));
    await expect(agent.client.sessions.execute({ instructions: 'Speak.' })).rejects.toMatchObject({
      status: 502,
      code: 'upstream_failed',
    });
  });

  test('answers 502 when the gateway does not listen', async () => {
    const agent = await start({ gatewayUrl: 'http://127.0.0.1:1' });
    await expect(agent.client.sessions.execute({ instructions: 'Speak.' })).rejects.toMatchObject({
      status: 502,
      code: 'upstream_failed',
    });
  });
});

describe('a run beyond its request', () => {
  test('answers 202 after the wait limit while the run goes on', async () => {
    const agent = await start({ settings: { executeWaitMs: 100 } });
    const { promise, resolve } = Promise.withResolvers<void>();
    gateway.answer(() => ({
      async respond(response) {
        await promise;
        stream(response, says('Late.'));
      },
    }));
    const response = await execute(agent, { instructions: 'Take your time.' });
    const receipt = (await response.json()) as { runId: string };
    expect([response.status, receipt]).toMatchObject([202, { success: true, queued: false }]);
    resolve();
    await waitForStatus(agent, receipt.runId, 'completed');
  });

  test('continues the run of a caller that disconnects', async () => {
    const agent = await start();
    const { promise, resolve } = Promise.withResolvers<void>();
    const request = Promise.withResolvers<void>();
    gateway.answer((_, index) => {
      if (index > 0) return says('Written.');
      return {
        async respond(response) {
          request.resolve();
          await promise;
          stream(
            response,
            calls({ name: 'files_write', input: { path: 'alone.txt', content: 'still here' } }),
          );
        },
      };
    });
    const caller = new AbortController();
    const call = agent.client.sessions.execute({ instructions: 'Write.' }, { signal: caller.signal });
    // It may fail before its rejection is checked below.
    call.catch(() => {});
    await request.promise;
    caller.abort();
    await expect(call).rejects.toThrow(/abort/i);
    resolve();
    const [run] = await runsOf(agent);
    await waitForStatus(agent, run?.run_id as string, 'completed');
    expect(await readFile(join(agent.workspace, 'alone.txt'), 'utf8')).toBe('still here');
  });

  test('settles a run as interrupted when the agent stops', async () => {
    const agent = await start({ settings: { drainMs: 1_200 } });
    const request = Promise.withResolvers<void>();
    gateway.answer(() => ({ respond: () => new Promise(() => request.resolve()) }));
    const outcome = Promise.allSettled([agent.client.sessions.execute({ instructions: 'Wait.' })]);
    await request.promise;
    const [run] = await runsOf(agent);
    agents.splice(agents.indexOf(agent), 1);
    await agent.close();
    const [rejection] = await outcome;
    expect(rejection).toMatchObject({ status: 'rejected', reason: { status: 503, code: 'run_interrupted' } });
    expect(AgentError.isInstance((rejection as PromiseRejectedResult).reason)).toBe(true);
    expect(String((rejection as PromiseRejectedResult).reason)).toContain(run?.run_id);
    expect(await runsOf(agent)).toMatchObject([
      { status: 'interrupted', error: { code: 'run_interrupted' } },
    ]);
  });

  test('refuses runs beyond its capacity where none may wait', async () => {
    const agent = await start({ settings: { maxRuns: 1, maxQueuedRuns: 0, drainMs: 0 } });
    const request = Promise.withResolvers<void>();
    gateway.answer(() => ({ respond: () => new Promise(() => request.resolve()) }));
    const firstRun = agent.client.sessions.execute({ instructions: 'Wait.' });
    // The end of the test interrupts it.
    firstRun.catch(() => {});
    await request.promise;
    await expect(agent.client.sessions.execute({ instructions: 'Me too.' })).rejects.toMatchObject({
      status: 429,
      code: 'rate_limited',
    });
  });

  test.each([
    ['no instructions', {}],
    ['empty instructions', { instructions: '' }],
    ['an unknown member', { instructions: 'a', chatID: 'b' }],
    ['a chat that is a path', { instructions: 'a', chatId: '../b' }],
    ['a wrong type', { instructions: ['a'] }],
    ['an invalid model', { instructions: 'a', model: '../../etc\n' }],
  ])('starts no run for a body with %s', async (_, body) => {
    const agent = await start();
    const response = await execute(agent, body);
    expect([response.status, await response.json()]).toMatchObject([
      400,
      { success: false, error: { code: 'invalid_request' } },
    ]);
    expect(await runsOf(agent)).toHaveLength(0);
  });
});

async function waitForStatus(agent: TestAgent, runId: string, status: string): Promise<void> {
  await expect
    .poll(
      async () =>
        (await agent.sql`select status from agent.sessions_runs where run_id = ${runId}`)[0]?.['status'],
      { interval: 20 },
    )
    .toBe(status);
}
