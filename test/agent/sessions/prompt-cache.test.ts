// Prompt caching: a provider caches by the prefix of a prompt, so repeated content must have the same bytes.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { definePlugin } from '../../../src/agent/plugins/index.ts';
import { calls, finish, promptBytes, says, type ScriptedAnswer } from '../../support/scripted-gateway.ts';
import { collect, openWorld, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

const wait = { headers: { prefer: 'wait=20' } };

// jsonb would order these members by length and rewrite the numbers.
const output = {
  zebra: 1,
  b: { long: [1.5, 1e21, -0], a: 'first' },
  '10': 'ten',
  '9': 'nine',
  text: 'a\u0000b \ud800 ü',
  absent: null,
};
const lookup = definePlugin({
  name: 'lookup',
  title: 'Lookup',
  description: 'Looks things up.',
  actions: {
    find: {
      description: 'Finds.',
      input: { type: 'object', additionalProperties: true },
      run: async (input) => ({ ...output, input }),
    },
  },
});

const metadata = { anthropic: { signature: 'c2ln', aa: { zz: 1, b: 2 } } };

/** A step with reasoning, a text and two calls. */
function step(index: number): ScriptedAnswer {
  const id = String(index);
  return {
    parts: [
      { type: 'reasoning-start', id },
      { type: 'reasoning-delta', id, delta: `Thought ${index}.` },
      { type: 'reasoning-end', id, providerMetadata: metadata },
      { type: 'text-start', id: `t${id}` },
      { type: 'text-delta', id: `t${id}`, delta: `Step ${index}.` },
      { type: 'text-end', id: `t${id}` },
      ...['a', 'b'].map((name) => ({
        type: 'tool-call',
        toolCallId: `call_${index}_${name}`,
        toolName: name === 'a' ? 'lookup_find' : 'lookup_lost',
        input: `{"zz":${index},"a":{"c":1,"b":2}}`,
        providerMetadata: { google: { thoughtSignature: 's', a: 1 } },
      })),
      finish('tool-calls'),
    ],
  };
}

const tools = (body: string) => JSON.stringify((JSON.parse(body) as { tools: object }).tools);

describe('the prompts of a session', () => {
  async function runTwentySteps(name: string, dataDir?: string) {
    world.gateway.answer((_, index) => (index < 19 ? step(index) : says('Done.')));
    const agent = await world.start({
      name,
      createOptions: { plugins: [lookup] },
      ...(dataDir === undefined ? {} : { dataDir }),
    });
    await agent.client.sessions.create({ id: 's' });
    await agent.client.sessions.prompt(
      {
        sessionId: 's',
        text: 'Work.',
        attachments: [
          { type: 'document', fileName: 'a.txt', contentType: 'text/plain', content: 'One <file>.' },
        ],
      },
      { headers: { prefer: 'wait=60' } },
    );
    expect(world.gateway.bodies).toHaveLength(20);
    return agent;
  }

  test('begin with the same bytes in every step of a run', async () => {
    await runTwentySteps('steps');
    const { bodies } = world.gateway;
    for (const [index, body] of bodies.entries()) {
      if (index === 0) continue;
      const promptBefore = promptBytes(bodies[index - 1] as string);
      expect(promptBytes(body).slice(0, promptBefore.length)).toEqual(promptBefore);
      expect(tools(body)).toBe(tools(bodies[0] as string));
    }
    expect(bodies.at(-1)).toContain('c2ln');
    expect(bodies.at(-1)).toContain('thoughtSignature');
  });

  const lastPrompt = () => promptBytes(world.gateway.bodies.at(-1) as string);

  test('begin with the same bytes in the next run', async () => {
    const { client } = await runTwentySteps('continued');
    const promptBefore = lastPrompt();
    expect(promptBefore.length).toBeGreaterThan(30);
    await client.sessions.prompt({ sessionId: 's', text: 'On.' }, wait);
    expect(lastPrompt().slice(0, promptBefore.length)).toEqual(promptBefore);
  });

  test('begin with the same bytes after a restart', async () => {
    const dataDir = await mkdtemp(join(tmpdir(), 'townhall-prompt-'));
    onTestFinished(() => rm(dataDir, { recursive: true }));
    const agent = await runTwentySteps('restarted', dataDir);
    const promptBefore = lastPrompt();
    await agent.close();
    const { client } = await world.start({
      name: 'restarted',
      dataDir,
      createOptions: { plugins: [lookup] },
    });
    await client.sessions.prompt({ sessionId: 's', text: 'On.' }, wait);
    expect(lastPrompt().slice(0, promptBefore.length)).toEqual(promptBefore);
  });

  test('begin with the same bytes in a fork', async () => {
    const { client } = await runTwentySteps('forked');
    const promptBefore = lastPrompt();
    const { id } = (await client.sessions.fork({ sessionId: 's' })) as { id: string };
    await client.sessions.prompt({ sessionId: id, text: 'On.' }, wait);
    expect(lastPrompt().slice(0, promptBefore.length)).toEqual(promptBefore);
  });

  test('leave out the reasoning of another model', async () => {
    const { client } = await world.start({ createOptions: { plugins: [lookup] } });
    world.gateway.answer((_, index) => (index === 0 ? step(0) : says('Done.')));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'Work.', model: 'acme/first' }, wait);
    expect(world.gateway.bodies.at(-1)).toContain('c2ln');
    await client.sessions.prompt({ sessionId: 's', text: 'On.', model: 'acme/second' }, wait);
    expect(world.gateway.bodies.at(-1)).not.toContain('c2ln');
    expect(world.gateway.bodies.at(-1)).not.toContain('Thought 0.');
    expect(world.gateway.bodies.at(-1)).toContain('Step 0.');
  });
});

describe('a request to a model', () => {
  test.each([
    ['has', 'Anthropic by its provider', [{ id: 'acme/one', owned_by: 'anthropic' }], 'acme/one', true],
    ['has', 'Anthropic by its name', [], 'bedrock/claude-x', true],
    ['lacks', 'another provider', [{ id: 'acme/two', owned_by: 'acme' }], 'acme/two', false],
  ])('%s a cache mark for %s', async (_effect, _source, models, model, isMarked) => {
    world.gateway.catalog(models);
    world.gateway.answer(() => says('Hello.'));
    const { client } = await world.start();
    await client.sessions.execute({ instructions: 'Hello?', model });
    expect(world.gateway.requests.at(-1)?.providerOptions).toEqual(
      isMarked ? { anthropic: { cacheControl: { type: 'ephemeral' } } } : undefined,
    );
  });
});

test('tokens and credits are counted for the step, the run and the session', async () => {
  const usage = {
    inputTokens: { total: 100, cacheRead: 80 },
    outputTokens: { total: 20, reasoning: 5 },
  };
  const end = {
    type: 'finish',
    usage,
    providerMetadata: { townhall: { credits: 7 } },
  };
  const [call] = (calls({ name: 'files_list', input: {} }) as { parts: object[] }).parts;
  world.gateway.answer((_, index) => ({
    parts:
      index === 0
        ? [call as object, { ...end, finishReason: { unified: 'tool-calls' } }]
        : [{ ...end, finishReason: { unified: 'stop' } }],
  }));
  const { client } = await world.start();
  await client.sessions.create({ id: 's' });
  const { runId } = await client.sessions.prompt({ sessionId: 's', text: 'Go.' }, wait);
  const sum = {
    inputTokens: 200,
    outputTokens: 40,
    cachedInputTokens: 160,
    reasoningTokens: 10,
    credits: 14,
  };
  expect((await client.sessions.getRun({ sessionId: 's', runId })).usage).toEqual(sum);
  expect((await client.sessions.get({ sessionId: 's' })).usage).toEqual(sum);
  const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
  expect(events.find(({ type }) => type === 'run.step.ended')).toMatchObject({
    usage: { cachedInputTokens: 80, reasoningTokens: 5, credits: 7 },
  });
});
