// Agent calls with an Idempotency-Key: one key starts one run, even when the caller disconnects or
// the agent is killed.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { definePlugin } from '../../src/agent/plugins/index.ts';
import { startAgent, type AgentOptions, type TestAgent } from '../support/agent.ts';
import { testDatabase, type TestDatabase } from '../support/databases.ts';
import { says, scriptedGateway, stream, type ScriptedGateway } from '../support/scripted-gateway.ts';

let rings = 0;
const bell = definePlugin<{ ring: object; refuse: object }>({
  name: 'bell',
  title: 'Bell',
  description: 'Counts how often it was rung.',
  actions: {
    ring: {
      description: 'Rings.',
      input: { type: 'object' },
      api: true,
      run: async () => ({ rings: ++rings }),
    },
    refuse: {
      description: 'Refuses.',
      input: { type: 'object' },
      api: true,
      run: async (_, { refuse }) => {
        rings += 1;
        return refuse('Not now.');
      },
    },
  },
  services: [
    {
      name: 'tower',
      title: 'Tower',
      start: async () => {},
      stop: async () => {},
      actions: {
        ring: { description: 'Rings.', input: { type: 'object' }, run: async () => ({ rings: ++rings }) },
      },
      commands: {
        ring: { description: 'Rings.', input: { type: 'object' }, run: async () => ({ rings: ++rings }) },
      },
    },
  ],
});

let world: TestDatabase;
let gateway: ScriptedGateway;
let agents: TestAgent[];
beforeEach(async () => {
  rings = 0;
  agents = [];
  world = await testDatabase();
  gateway = await scriptedGateway();
  gateway.answer(() => says('Done.'));
});
afterEach(async () => {
  await Promise.all(agents.map((agent) => agent.close()));
  await gateway.close();
  await world.close();
});

async function start(options: Partial<AgentOptions> = {}): Promise<TestAgent> {
  const agent = await startAgent({
    gatewayUrl: gateway.url,
    // A second agent with this name is the first one after a restart: its keys are in the database.
    name: 'keyed',
    database: world.database,
    createOptions: { plugins: [bell] },
    ...options,
  });
  agents.push(agent);
  return agent;
}

interface Answer {
  status: number;
  replayed: string | null;
  body: Record<string, unknown> & { error?: { code: string; request_id: string } };
}

async function post(
  agent: TestAgent,
  path: string,
  body: unknown,
  { signal }: { signal?: AbortSignal } = {},
): Promise<Answer> {
  const response = await agent.fetch(path, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${agent.token}`,
      'content-type': 'application/json',
      'idempotency-key': 'a key',
    },
    body: JSON.stringify(body),
    ...(signal ? { signal } : {}),
  });
  return {
    status: response.status,
    replayed: response.headers.get('idempotent-replayed'),
    body: (await response.json()) as Answer['body'],
  };
}

/** Holds the gateway's answers until `open` is called. `arrival` resolves with the first request. */
function holdGateway(): { arrival: Promise<void>; open(): void } {
  const arrival = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  gateway.answer(() => ({
    respond: async (response) => {
      arrival.resolve();
      await gate.promise;
      stream(response, says('Done.'));
    },
  }));
  return { arrival: arrival.promise, open: () => gate.resolve() };
}

async function countRuns(): Promise<number> {
  const [row] = await world.database.sql<{ count: bigint }[]>`select count(*) from agent.sessions_runs`;
  return Number(row?.count);
}

/** Leaves the keys as after a crash during a call: without an answer, and with a lease. */
async function abandonKeys({ expiresInSeconds }: { expiresInSeconds: number }): Promise<void> {
  await world.database.sql`
    update agent.idempotency set state = 'running', status = null, body = null,
      lease_until = now() + ${expiresInSeconds} * interval '1 second'`;
}

describe('two calls with one Idempotency-Key', () => {
  test('execute one run and get one answer', async () => {
    const agent = await start();
    const firstAnswer = await post(agent, '/api/execute', { instructions: 'Work.' });
    const secondAnswer = await post(agent, '/api/execute', { instructions: 'Work.' });
    expect(firstAnswer).toMatchObject({ status: 200, replayed: null, body: { text: 'Done.' } });
    expect(secondAnswer).toEqual({ ...firstAnswer, replayed: 'true' });
    expect(await countRuns()).toBe(1);
  });

  test('execute one run when they arrive together', async () => {
    const { arrival, open: openGateway } = holdGateway();
    const agent = await start();
    const answers: Answer[] = [];
    const calls = [1, 2, 3].map(async () => {
      answers.push(await post(agent, '/api/execute', { instructions: 'Work.' }));
    });
    await arrival;
    await expect.poll(() => answers.length).toBe(2);
    const refusal = { status: 409, body: { error: { code: 'idempotency_key_in_use' } } };
    expect(answers).toMatchObject([refusal, refusal]);
    openGateway();
    await Promise.all(calls);
    expect(answers[2]).toMatchObject({ status: 200, body: { text: 'Done.' } });
    expect(gateway.requests).toHaveLength(1);
  });

  test('get one answer across a restart', async () => {
    const firstAgent = await start();
    const answer = await post(firstAgent, '/api/execute', { instructions: 'Work.' });
    await firstAgent.close();
    const secondAgent = await start();
    expect(await post(secondAgent, '/api/execute', { instructions: 'Work.' })).toEqual({
      ...answer,
      replayed: 'true',
    });
    expect(gateway.requests).toHaveLength(1);
  });

  test('are refused with 422 when their bodies differ', async () => {
    const agent = await start();
    await post(agent, '/api/execute', { instructions: 'Work.' });
    expect(await post(agent, '/api/execute', { instructions: 'Rest.' })).toMatchObject({
      status: 422,
      body: { error: { code: 'idempotency_key_reused', param: 'Idempotency-Key' } },
    });
    expect(await countRuns()).toBe(1);
  });

  test('get the headers of the first answer', async () => {
    const agent = await start();
    await agent.client.sessions.create({ id: 'desk' });
    const prompt = () =>
      agent.fetch('/api/sdk/sessions/desk/prompt', {
        method: 'POST',
        headers: {
          authorization: `Bearer ${agent.token}`,
          'content-type': 'application/json',
          'idempotency-key': 'a key',
          prefer: 'wait=20',
        },
        body: JSON.stringify({ text: 'Work.' }),
      });
    expect((await prompt()).headers.get('preference-applied')).toBe('wait=20');
    const repeatedAnswer = await prompt();
    expect(repeatedAnswer.headers.get('idempotent-replayed')).toBe('true');
    expect(repeatedAnswer.headers.get('preference-applied')).toBe('wait=20');
  });

  test.each(['/api/dashboard/sessions/desk/execute', '/api/sdk/sessions/desk/prompt'])(
    'are one run at %s',
    async (path) => {
      const agent = await start();
      await agent.client.sessions.create({ id: 'desk' });
      const body = path.endsWith('prompt') ? { text: 'Work.' } : { instructions: 'Work.' };
      const firstAnswer = await post(agent, path, body);
      expect(await post(agent, path, body)).toEqual({ ...firstAnswer, replayed: 'true' });
      expect(await countRuns()).toBe(1);
    },
  );

  test('are one message of a chat', async () => {
    const agent = await start();
    const message = { chatId: 'family', text: 'Hello.' };
    const firstAnswer = await post(agent, '/service/chat/send', message);
    expect(firstAnswer).toMatchObject({ status: 202, body: { serviceName: 'chat', queued: true } });
    expect(await post(agent, '/service/chat/send', message)).toEqual({ ...firstAnswer, replayed: 'true' });
    expect(await countRuns()).toBe(1);
  });

  test.each([
    ['current', { plugin_name: 'bell', action_name: 'ring' }],
    ['classic', { pluginName: 'bell', actionName: 'ring' }],
  ] as const)('call an action once in the %s variant', async (variant, body) => {
    const agent = await start({ variant });
    const firstAnswer = await post(agent, '/api/plugins/action', body);
    expect(firstAnswer).toMatchObject({ status: 200, body: { result: { rings: 1 } } });
    expect(await post(agent, '/api/plugins/action', body)).toEqual({ ...firstAnswer, replayed: 'true' });
    expect(rings).toBe(1);
  });

  test.each([
    ['/api/services/command', { serviceName: 'tower', command: 'ring' }],
    ['/service/tower/ring', {}],
  ])('call a service once at %s', async (path, body) => {
    const agent = await start();
    const firstAnswer = await post(agent, path, body);
    expect(firstAnswer).toMatchObject({ status: 200, body: { result: { rings: 1 } } });
    expect(await post(agent, path, body)).toEqual({ ...firstAnswer, replayed: 'true' });
    expect(rings).toBe(1);
  });

  test('create one session', async () => {
    const agent = await start();
    const session = await post(agent, '/api/sdk/sessions', { title: 'Desk' });
    expect(session).toMatchObject({ status: 201, replayed: null });
    expect(await post(agent, '/api/sdk/sessions', { title: 'Desk' })).toEqual({
      ...session,
      replayed: 'true',
    });
    expect(await world.database.sql`select from agent.sessions_sessions`).toHaveLength(1);
  });

  test('create one fork', async () => {
    const agent = await start();
    await agent.client.sessions.create({ id: 'desk' });
    const fork = await post(agent, '/api/sdk/sessions/desk/fork', {});
    expect(fork).toMatchObject({ status: 201, replayed: null });
    expect(await post(agent, '/api/sdk/sessions/desk/fork', {})).toEqual({ ...fork, replayed: 'true' });
    expect(await world.database.sql`select from agent.sessions_sessions`).toHaveLength(2);
  });
});

describe('a failure under an Idempotency-Key', () => {
  test('is stored when a run has failed with 402', async () => {
    gateway.answer(() => ({
      status: 402,
      error: { type: 'insufficient_credits_error', code: 'insufficient_credits', message: 'No credits.' },
    }));
    const agent = await start();
    const firstAnswer = await post(agent, '/api/execute', { instructions: 'Work.' });
    gateway.answer(() => says('Done.'));
    expect(firstAnswer).toMatchObject({ status: 402, body: { error: { code: 'insufficient_credits' } } });
    expect(await post(agent, '/api/execute', { instructions: 'Work.' })).toEqual({
      ...firstAnswer,
      replayed: 'true',
    });
    expect(await countRuns()).toBe(1);
  });

  test('frees the key when no run was started', async () => {
    const agent = await start();
    const body = { plugin_name: 'bell', action_name: 'refuse' };
    for (const count of [1, 2]) {
      expect(await post(agent, '/api/plugins/action', body)).toMatchObject({
        status: 422,
        replayed: null,
        body: { error: { code: 'action_refused' } },
      });
      expect(rings).toBe(count);
    }
  });
});

describe('a repeated call without a stored answer', () => {
  test('gets the receipt of the run when the first caller disconnected', async () => {
    const { arrival, open: openGateway } = holdGateway();
    const agent = await start();
    const caller = new AbortController();
    const firstAnswer = post(agent, '/api/execute', { instructions: 'Work.' }, { signal: caller.signal });
    await arrival;
    caller.abort();
    await expect(firstAnswer).rejects.toThrow('abort');
    const [run] = await world.database.sql<{ run_id: string }[]>`select run_id from agent.sessions_runs`;
    await expect
      .poll(() => post(agent, '/api/execute', { instructions: 'Work.' }))
      .toMatchObject({ status: 202, replayed: 'true', body: { runId: run?.run_id, queued: false } });
    openGateway();
    expect(await countRuns()).toBe(1);
  });

  test('gets the receipts of the runs when the first process died', async () => {
    const agent = await start();
    const firstAnswer = await post(agent, '/api/execute', { instructions: 'Work.' });
    const message = await post(agent, '/service/chat/send', { chatId: 'family', text: 'Hello.' });
    const prompt = await post(agent, `/api/sdk/sessions/${String(firstAnswer.body['sessionId'])}/prompt`, {
      text: 'More.',
    });
    await abandonKeys({ expiresInSeconds: -1 });
    const { sessionId, runId } = firstAnswer.body;
    expect(await post(agent, '/api/execute', { instructions: 'Work.' })).toMatchObject({
      status: 202,
      replayed: 'true',
      body: { success: true, queued: false, sessionId, runId, queueItemId: null, queuePosition: 0 },
    });
    expect(await post(agent, '/service/chat/send', { chatId: 'family', text: 'Hello.' })).toEqual({
      ...message,
      replayed: 'true',
    });
    expect(await post(agent, `/api/sdk/sessions/${String(sessionId)}/prompt`, { text: 'More.' })).toEqual({
      ...prompt,
      replayed: 'true',
    });
    expect(await countRuns()).toBe(3);
  });
});

test('a start frees the keys of calls that ended before their run', async () => {
  const firstAgent = await start();
  await post(firstAgent, '/api/plugins/action', { plugin_name: 'bell', action_name: 'ring' });
  await firstAgent.close();
  // Only one process uses the embedded engine, so a start frees keys even before their lease expires.
  await abandonKeys({ expiresInSeconds: world.database.engine === 'embedded' ? 3_600 : 0 });
  const secondAgent = await start();
  expect(
    await post(secondAgent, '/api/plugins/action', { plugin_name: 'bell', action_name: 'ring' }),
  ).toMatchObject({ status: 200, replayed: null, body: { result: { rings: 2 } } });
});
