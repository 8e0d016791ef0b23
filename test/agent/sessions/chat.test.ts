// Chats: one session per chat, a queue in order, and an answer that does not wait for the model.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { says } from '../../support/scripted-gateway.ts';
import { collect, holdAnswer, openWorld, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

describe('sessions.execute with a chat', () => {
  test('runs a hundred queued messages once each in order', async () => {
    const { client } = await world.start();
    world.gateway.answer(() => says('Done.'));
    const receipts = await Promise.all(
      Array.from({ length: 100 }, (_, index) =>
        client.sessions.execute({ chatId: 'room', instructions: `message ${index}.` }),
      ),
    );
    const inputs = receipts.map((receipt) => {
      if (!('queuePosition' in receipt) || receipt.queuePosition === undefined || receipt.seq === undefined)
        throw new Error('The message was not queued.');
      return { ...receipt, queuePosition: receipt.queuePosition, seq: receipt.seq };
    });
    const queuedReceipt = { success: true, queued: true, queueItemId: expect.any(String) };
    expect(inputs).toMatchObject(inputs.map(() => queuedReceipt));
    expect(new Set(inputs.map(({ sessionId }) => sessionId)).size).toBe(1);
    expect(new Set(inputs.map(({ runId }) => runId)).size).toBe(100);
    const sessionId = inputs[0]?.sessionId as string;
    const events = await collect(client.sessions.follow({ sessionId, until: 'idle' }));
    // Each position counts the messages that had not ended at the time of acceptance.
    const inputsInOrder = [...inputs].sort((a, b) => a.seq - b.seq);
    let endedCount = 0;
    let next = 0;
    for (const event of events) {
      while (next < inputsInOrder.length && 'seq' in event && event.seq > (inputsInOrder[next]?.seq ?? 0)) {
        expect(inputsInOrder[next]?.queuePosition).toBe(next - endedCount);
        next += 1;
      }
      if (event.type === 'run.settled') endedCount += 1;
    }
    expect(next).toBe(100);
    const runIds = events.flatMap((event) => (event.type === 'run.started' ? [event.runId] : []));
    expect(runIds).toEqual(inputsInOrder.map(({ runId }) => runId));
    const outcomes = events.flatMap((event) => (event.type === 'run.settled' ? [event.outcome] : []));
    expect(outcomes).toEqual(Array(100).fill('completed'));
    expect(world.gateway.requests).toHaveLength(100);
    expect(await client.sessions.get({ sessionId })).toMatchObject({
      kind: 'chat',
      chatId: 'room',
      messageCount: 200,
      queueLength: 0,
    });
  }, 120_000);

  test('shares its queue with executeInSession', async () => {
    const { client } = await world.start();
    const slowAnswer = holdAnswer();
    world.gateway.answer((_, index) => (index === 0 ? slowAnswer.answer : says('Later.')));
    const firstRun = await client.sessions.execute({ chatId: 'room', instructions: 'One.' });
    expect(firstRun).toMatchObject({ success: true, queued: true, queuePosition: 0 });
    await slowAnswer.request;
    const secondRun = await client.sessions.executeInSession({
      sessionId: firstRun.sessionId,
      instructions: 'Two.',
    });
    expect(secondRun).toMatchObject({
      success: true,
      queued: true,
      queuePosition: 1,
      sessionId: firstRun.sessionId,
      queueItemId: expect.stringMatching(/^qit_/),
    });
    const { items } = await client.sessions.listMessages({ sessionId: firstRun.sessionId });
    expect(items.map(({ role, metadata }) => [role, metadata?.['origin']])).toEqual([
      ['user', 'execute'],
      ['user', 'dashboard'],
    ]);
    slowAnswer.end();
    await collect(client.sessions.follow({ sessionId: firstRun.sessionId, until: 'idle' }));
  });
});

describe('sessions.executeInSession', () => {
  test('waits for the answer in a session that is not a chat', async () => {
    const { client } = await world.start();
    world.gateway.answer(() => says('Now.'));
    await client.sessions.create({ id: 'plain' });
    expect(await client.sessions.executeInSession({ sessionId: 'plain', instructions: 'Go.' })).toMatchObject(
      { success: true, queued: false, text: 'Now.' },
    );
  });

  test('refuses an unknown session', async () => {
    const { client } = await world.start();
    await expect(
      client.sessions.executeInSession({ sessionId: 'unknown', instructions: 'Go.' }),
    ).rejects.toMatchObject({ status: 404, code: 'session_not_found' });
  });
});
