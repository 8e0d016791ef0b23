// Regenerating answers, and the state of messages as lists, events and forks report it.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { UiMessage } from '@townhall/agent';
import { calls, finish, says, type StreamRequest } from '../../support/scripted-gateway.ts';
import {
  collect,
  holdAnswer,
  openWorld,
  type ControlledAnswer,
  type World,
} from '../../support/session-world.ts';
import type { TestAgent } from '../../support/agent.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

const wait = { headers: { prefer: 'wait=20' } };

/** The texts of a prompt after its system message. */
const promptTexts = (request: StreamRequest | undefined): string[] =>
  (request?.prompt ?? [])
    .slice(1)
    .flatMap(({ content }) =>
      (content as { type: string; text?: string }[]).flatMap(({ text }) => text ?? []),
    );

const textOf = ({ parts }: UiMessage) =>
  parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('');

/** Text and status of each message. */
async function listMessages({ client }: TestAgent, sessionId: string): Promise<[string, unknown][]> {
  const { items } = await client.sessions.listMessages({ sessionId });
  return items.map((message) => [textOf(message), message.metadata?.['status']]);
}

async function startWith(turns: readonly string[]): Promise<TestAgent> {
  const agent = await world.start();
  world.gateway.answer((_, index) => says(`Answer ${index + 1}.`));
  await agent.client.sessions.create({ id: 's' });
  for (const text of turns) await agent.client.sessions.prompt({ sessionId: 's', text }, wait);
  return agent;
}

const untilIdle = ({ client }: TestAgent) =>
  collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));

const nothingToRegenerate = { status: 409, code: 'nothing_to_regenerate' };

describe('sessions.regenerate', () => {
  test('answers the last input again without the previous answer', async () => {
    const agent = await startWith(['One.', 'Two.']);
    const { client } = agent;
    const receipt = await client.sessions.regenerate({ sessionId: 's' });
    await untilIdle(agent);
    expect(promptTexts(world.gateway.requests.at(-1))).toEqual(['One.', 'Answer 1.', 'Two.']);
    expect(await listMessages(agent, 's')).toEqual([
      ['One.', undefined],
      ['Answer 1.', 'completed'],
      ['Two.', undefined],
      ['Answer 2.', 'replaced'],
      ['Answer 3.', 'completed'],
    ]);
    const { items } = await client.sessions.listMessages({ sessionId: 's' });
    expect(items[3]?.metadata).toMatchObject({ replacedBy: receipt.runId });
    expect(receipt).toMatchObject({ messageId: items[2]?.id, status: 'running', queued: false });
    expect(await client.sessions.getRun({ sessionId: 's', runId: receipt.runId })).toMatchObject({
      status: 'completed',
      inputMessageId: items[2]?.id,
      messageId: items[4]?.id,
      text: 'Answer 3.',
    });
    await client.sessions.prompt({ sessionId: 's', text: 'Three.' }, wait);
    expect(promptTexts(world.gateway.requests.at(-1))).toEqual([
      'One.',
      'Answer 1.',
      'Two.',
      'Answer 3.',
      'Three.',
    ]);
  });

  test.each(['answer', 'input'])('replaces all that follows the %s of an earlier turn', async (by) => {
    const agent = await startWith(['One.', 'Two.']);
    const { client } = agent;
    const { items } = await client.sessions.listMessages({ sessionId: 's' });
    const messageId = items[by === 'input' ? 0 : 1]?.id as string;
    await client.sessions.regenerate({ sessionId: 's', messageId, model: 'local/other' });
    await untilIdle(agent);
    expect(world.gateway.requests.at(-1)?.model).toBe('local/other');
    expect(promptTexts(world.gateway.requests.at(-1))).toEqual(['One.']);
    expect((await listMessages(agent, 's')).map(([, status]) => status)).toEqual([
      undefined,
      'replaced',
      'replaced',
      'replaced',
      'completed',
    ]);
  });

  test('keeps the previous answer in a fork at an earlier point', async () => {
    const agent = await startWith(['One.']);
    const { client, name } = agent;
    const { headSeq } = await client.sessions.get({ sessionId: 's' });
    await client.sessions.regenerate({ sessionId: 's' });
    await untilIdle(agent);
    // The next process has no conversation in its cache, so the forks are read from the log.
    await agent.close();
    const restartedAgent = await world.start({ name });
    const forkBefore = (await restartedAgent.client.sessions.fork({ sessionId: 's', seq: headSeq })) as {
      id: string;
    };
    const forkAfter = (await restartedAgent.client.sessions.fork({ sessionId: 's' })) as { id: string };
    expect((await listMessages(restartedAgent, forkBefore.id)).at(-1)).toEqual(['Answer 1.', 'completed']);
    expect((await listMessages(restartedAgent, forkAfter.id)).slice(1)).toEqual([
      ['Answer 1.', 'replaced'],
      ['Answer 2.', 'completed'],
    ]);
    for (const [id, answer] of [
      [forkBefore.id, 'Answer 1.'],
      [forkAfter.id, 'Answer 2.'],
    ] as const) {
      await restartedAgent.client.sessions.prompt({ sessionId: id, text: 'Go on.' }, wait);
      expect(promptTexts(world.gateway.requests.at(-1))).toEqual(['One.', answer, 'Go on.']);
    }
  });

  test('answers an input again whose run failed', async () => {
    const agent = await world.start();
    world.gateway.answer((_, index) =>
      index === 0 ? { status: 400, error: { code: 'invalid_request' } } : says('Now.'),
    );
    await agent.client.sessions.create({ id: 's' });
    await agent.client.sessions.prompt({ sessionId: 's', text: 'One.' }, wait);
    await agent.client.sessions.regenerate({ sessionId: 's' });
    await untilIdle(agent);
    expect(await listMessages(agent, 's')).toEqual([
      ['One.', undefined],
      ['', 'replaced'],
      ['Now.', 'completed'],
    ]);
  });

  test('replaces an answer that has only reasoning', async () => {
    const agent = await world.start();
    const reasoning = [
      { type: 'reasoning-start', id: 'r' },
      { type: 'reasoning-delta', id: 'r', delta: 'Let me think.' },
      { type: 'reasoning-end', id: 'r' },
    ];
    world.gateway.answer((_, index) =>
      index === 0 ? { parts: [...reasoning, finish('stop')] } : says('Now.'),
    );
    await agent.client.sessions.create({ id: 's' });
    await agent.client.sessions.prompt({ sessionId: 's', text: 'One.' }, wait);
    await agent.client.sessions.regenerate({ sessionId: 's' });
    await untilIdle(agent);
    expect((await listMessages(agent, 's')).map(([, status]) => status)).toEqual([
      undefined,
      'replaced',
      'completed',
    ]);
  });

  test('replaces a failed answer more than twenty messages ago', async () => {
    const agent = await world.start();
    const { client } = agent;
    world.gateway.answer((_, index) =>
      index === 0 ? { status: 400, error: { code: 'invalid_request' } } : says('Done.'),
    );
    await client.sessions.create({ id: 's' });
    const { messageId } = await client.sessions.prompt({ sessionId: 's', text: 'First.' }, wait);
    const laterTurns = 11;
    for (let turn = 0; turn < laterTurns; turn += 1)
      await client.sessions.prompt({ sessionId: 's', text: 'Next.' }, wait);
    await client.sessions.regenerate({ sessionId: 's', messageId });
    await untilIdle(agent);
    const statuses = (await listMessages(agent, 's')).map(([, status]) => status);
    // The failed answer, and the input and the answer of each later turn.
    const replaced = Array.from({ length: 1 + 2 * laterTurns }, () => 'replaced');
    expect(statuses).toEqual([undefined, ...replaced, 'completed']);
  });

  test('replaces a failed answer once', async () => {
    const agent = await world.start();
    const { client } = agent;
    world.gateway.answer(() => ({ status: 400, error: { code: 'invalid_request' } }));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'One.' }, wait);
    const { runId } = await client.sessions.regenerate({ sessionId: 's' });
    await untilIdle(agent);
    await client.sessions.regenerate({ sessionId: 's' });
    await untilIdle(agent);
    const { items } = await client.sessions.listMessages({ sessionId: 's' });
    expect(items[1]?.metadata).toMatchObject({ status: 'replaced', replacedBy: runId });
  });

  test('refuses an unknown message', async () => {
    const { client } = await startWith([]);
    await expect(client.sessions.regenerate({ sessionId: 's', messageId: 'unknown' })).rejects.toMatchObject({
      status: 404,
      code: 'message_not_found',
    });
  });

  test('refuses a busy session', async () => {
    const agent = await startWith(['One.']);
    const { client } = agent;
    const modelAnswer = holdAnswer();
    world.gateway.answer(() => modelAnswer.answer);
    await client.sessions.regenerate({ sessionId: 's' });
    await modelAnswer.request;
    await expect(client.sessions.regenerate({ sessionId: 's' })).rejects.toMatchObject({
      status: 409,
      code: 'session_busy',
    });
    modelAnswer.end();
    await untilIdle(agent);
  });

  test('refuses a session without an input', async () => {
    const { client } = await startWith([]);
    await expect(client.sessions.regenerate({ sessionId: 's' })).rejects.toMatchObject(nothingToRegenerate);
  });

  test('refuses a message that was replaced', async () => {
    const agent = await startWith(['One.']);
    const { client } = agent;
    const { items } = await client.sessions.listMessages({ sessionId: 's' });
    await client.sessions.regenerate({ sessionId: 's' });
    await untilIdle(agent);
    await expect(
      client.sessions.regenerate({ sessionId: 's', messageId: items[1]?.id as string }),
    ).rejects.toMatchObject(nothingToRegenerate);
  });

  test('refuses an input that was summarized', async () => {
    const agent = await startWith(['One.']);
    const { client } = agent;
    await client.sessions.compact({ sessionId: 's' });
    await untilIdle(agent);
    await expect(client.sessions.regenerate({ sessionId: 's' })).rejects.toMatchObject(nothingToRegenerate);
  });

  test('runs once when its call is repeated with one key', async () => {
    const agent = await startWith(['One.']);
    const options = { headers: { 'idempotency-key': 'again-1' } };
    const firstReceipt = await agent.client.sessions.regenerate({ sessionId: 's' }, options);
    await untilIdle(agent);
    expect(await agent.client.sessions.regenerate({ sessionId: 's' }, options)).toEqual(firstReceipt);
    expect(world.gateway.requests).toHaveLength(2);
  });
});

describe('sessions.listMessages', () => {
  const inputs = [
    ['Running.', undefined],
    ['Waiting.', 'waiting'],
    ['Dropped.', 'cancelled'],
    ['Late.', 'expired'],
  ];

  /** A session with one input in each of these states. */
  async function queueInputs(): Promise<{ agent: TestAgent; modelAnswer: ControlledAnswer }> {
    const agent = await world.start();
    const { client } = agent;
    const modelAnswer = holdAnswer();
    world.gateway.answer((_, index) => (index === 0 ? modelAnswer.answer : says('Done.')));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'Running.' });
    await modelAnswer.request;
    await client.sessions.prompt({ sessionId: 's', text: 'Waiting.' });
    const droppedInput = await client.sessions.prompt({ sessionId: 's', text: 'Dropped.' });
    await client.sessions.removeQueueItem({
      sessionId: 's',
      queueItemId: droppedInput.queueItemId as string,
    });
    await client.sessions.prompt({ sessionId: 's', text: 'Late.', expiresInMs: 1 });
    await collect(
      client.sessions.follow({ sessionId: 's' }),
      (event) => event.type === 'run.settled' && event.outcome === 'expired',
    );
    return { agent, modelAnswer };
  }

  test('has the state of each input', async () => {
    const { agent, modelAnswer } = await queueInputs();
    expect(await listMessages(agent, 's')).toEqual(inputs);
    modelAnswer.end();
    await untilIdle(agent);
    expect((await listMessages(agent, 's')).filter(([, status]) => status === 'waiting')).toEqual([]);
  });

  test('shows a waiting input as cancelled in a fork', async () => {
    const { agent, modelAnswer } = await queueInputs();
    const { client } = agent;
    const fork = (await client.sessions.fork({ sessionId: 's' })) as { id: string };
    const inFork = inputs.map(([text, status]) => [text, status === 'waiting' ? 'cancelled' : status]);
    expect((await listMessages(agent, fork.id)).filter(([text]) => text !== '')).toEqual(inFork);
    const events = await collect(client.sessions.follow({ sessionId: fork.id, until: 'idle' }));
    const queueItemIds = new Set<string>();
    for (const event of events) {
      if (event.type === 'queue.added') queueItemIds.add(event.queueItemId);
      if (event.type === 'queue.removed') queueItemIds.delete(event.queueItemId);
    }
    expect([...queueItemIds]).toEqual([]);
    modelAnswer.end();
    await untilIdle(agent);
  });

  test('shows a denied call as denied', async () => {
    const agent = await world.start();
    const { client } = agent;
    world.gateway.answer((_, index) =>
      index === 0 ? calls({ name: 'shell_run', input: { command: 'true' } }) : says('Then not.'),
    );
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'Go.' }, wait);
    const { items } = await client.sessions.listMessages({ sessionId: 's' });
    const part = items.at(-1)?.parts.find(({ type }) => type === 'dynamic-tool');
    const denial = (await untilIdle(agent)).find((event) => event.type === 'tool.denied');
    expect(part).toMatchObject({
      state: 'output-denied',
      approval: { id: denial?.approvalId, approved: false, reason: denial?.reason },
    });
    expect(part).not.toHaveProperty('errorText');
    expect(JSON.stringify(world.gateway.requests.at(-1)?.prompt.at(-1))).toContain(denial?.reason);
  });
});
