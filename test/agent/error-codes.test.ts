// Error codes of the contract that no test of a feature provokes: unknown ids, refused commands, full
// queues, guards. `npm run lint:observed-codes` lists the codes that no test sees.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { definePlugin } from '../../src/agent/plugins/index.ts';
import { startAgent, type AgentOptions, type TestAgent } from '../support/agent.ts';
import { testDatabase, type TestDatabase } from '../support/databases.ts';
import { rawRequest } from '../support/raw-http.ts';
import { says, scriptedGateway, type ScriptedGateway } from '../support/scripted-gateway.ts';

const anyObject = { type: 'object' };
const probe = definePlugin<{ large: object }>({
  name: 'probe',
  title: 'Probe',
  description: 'Fails in each way.',
  actions: {
    large: {
      description: 'Returns more than can be stored for a key.',
      input: anyObject,
      api: true,
      run: async () => 'x'.repeat(100_000),
    },
  },
  services: [
    {
      name: 'tower',
      title: 'Tower',
      start: async () => {},
      stop: async () => {},
      actions: {
        refuse: {
          description: 'Refuses.',
          input: anyObject,
          run: async (_, { refuse }) => refuse('Not now.'),
        },
      },
      commands: {
        refuse: {
          description: 'Refuses.',
          input: anyObject,
          run: async (_, { refuse }) => refuse('Not now.'),
        },
        fail: {
          description: 'Fails.',
          input: anyObject,
          run: async () => {
            throw new Error('The service failed.');
          },
        },
        hang: { description: 'Hangs.', input: anyObject, run: () => new Promise(() => {}) },
      },
    },
  ],
  hooks: {
    guards: {
      'prompt.before': ({ text }) => (text.includes('forbidden') ? { refuse: 'Never.' } : undefined),
    },
  },
});

let world: TestDatabase;
let gateway: ScriptedGateway;
let agents: TestAgent[];
beforeEach(async () => {
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

async function start(settings: AgentOptions['settings'] = {}): Promise<TestAgent> {
  const agent = await startAgent({
    gatewayUrl: gateway.url,
    database: world.database,
    settings: { drainMs: 0, ...settings },
    createOptions: { plugins: [probe] },
  });
  agents.push(agent);
  return agent;
}

const unknownId = 'none_01jd6zv0c5e9fsr8m2w4x1k7qa';

describe('an unknown id', () => {
  test.each<[string, (agent: TestAgent) => Promise<unknown>, string]>([
    [
      'of a run',
      ({ client }) => client.sessions.getRun({ sessionId: 'desk', runId: unknownId }),
      'run_not_found',
    ],
    [
      'of a queue item',
      ({ client }) => client.sessions.removeQueueItem({ sessionId: 'desk', queueItemId: unknownId }),
      'queue_item_not_found',
    ],
    [
      'of an approval',
      ({ client }) =>
        client.sessions.decideApproval({ sessionId: 'desk', approvalId: unknownId, decision: 'approve' }),
      'approval_not_found',
    ],
    [
      'of the session of permissions',
      ({ client }) => client.permissions.list({ sessionId: unknownId }),
      'session_not_found',
    ],
  ])('%s is 404', async (_kind, call, code) => {
    const agent = await start();
    await agent.client.sessions.create({ id: 'desk' });
    await expect(call(agent)).rejects.toMatchObject({ status: 404, code });
  });
});

describe('a service', () => {
  test.each([
    ['refuse', 422, 'action_refused'],
    ['fail', 502, 'action_failed'],
    ['hang', 504, 'action_timeout'],
  ])('answers its command %s with %i %s', async (command, status, code) => {
    const { client } = await start({ commandTimeoutMs: 500 });
    await expect(client.services.callCommand({ serviceName: 'tower', command })).rejects.toMatchObject({
      status,
      code,
    });
  });

  test('refuses an action with its reason', async () => {
    const { client } = await start();
    await expect(
      client.services.callAction({ serviceName: 'tower', actionName: 'refuse' }),
    ).rejects.toMatchObject({ status: 422, code: 'action_refused', message: 'Not now.' });
  });
});

describe('an instruction', () => {
  /** Lets the model never answer, so that the session stays busy. */
  function answerNever(): void {
    gateway.answer(() => ({
      respond: (response) => new Promise((resolve) => response.once('close', () => resolve())),
    }));
  }

  test('is refused by a full queue', async () => {
    answerNever();
    const { client } = await start({ maxWaiting: 1 });
    await client.sessions.create({ id: 'desk' });
    const prompt = (text: string) => client.sessions.prompt({ sessionId: 'desk', text });
    await prompt('First.');
    await prompt('Second.');
    await expect(prompt('Third.')).rejects.toMatchObject({ status: 429, code: 'queue_full' });
  });

  test('that is cancelled ends its call', async () => {
    answerNever();
    const { client } = await start();
    await client.sessions.create({ id: 'desk' });
    const call = client.sessions.executeInSession({ sessionId: 'desk', instructions: 'Work.' });
    const failure = call.catch((error: unknown) => error);
    await expect.poll(() => gateway.requests.length).toBe(1);
    await client.sessions.cancel({ sessionId: 'desk' });
    expect(await failure).toMatchObject({ status: 409, code: 'run_cancelled' });
  });

  test('that a plugin refuses is 403', async () => {
    const { client } = await start();
    await expect(client.sessions.execute({ instructions: 'This is forbidden.' })).rejects.toMatchObject({
      status: 403,
      code: 'plugin_refused',
    });
  });

  test('with an effort that the model lacks is 422', async () => {
    gateway.answer(() => ({ status: 422, error: { code: 'unsupported_reasoning_effort' } }));
    const { client } = await start();
    await expect(client.sessions.execute({ instructions: 'Think.' })).rejects.toMatchObject({
      status: 422,
      code: 'unsupported_reasoning_effort',
    });
  });
});

test('a repeated call is 409 if the answer was too large to be stored', async () => {
  const { client } = await start();
  const call = () =>
    client.plugins.callAction(
      { plugin_name: 'probe', action_name: 'large' },
      { headers: { 'Idempotency-Key': 'a key' } },
    );
  await call();
  await expect(call()).rejects.toMatchObject({ status: 409, code: 'result_not_replayable' });
});

describe('the guard of the agent', () => {
  test('refuses a page of another origin', async () => {
    const agent = await start();
    const response = await agent.fetch('/api/status', { headers: { origin: 'https://elsewhere.example' } });
    expect([response.status, await response.json()]).toMatchObject([
      403,
      { success: false, error: { code: 'forbidden_origin' } },
    ]);
  });

  test('refuses another host', async () => {
    const agent = await start();
    const { status, body } = await rawRequest(agent.url, 'GET', '/api/status', [
      ['Host', 'elsewhere.example'],
    ]);
    expect([status, JSON.parse(body)]).toMatchObject([403, { error: { code: 'forbidden_host' } }]);
  });
});
