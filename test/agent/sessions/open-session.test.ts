// What a client needs to open a session during a run: the messages with a `seq` to follow from, and
// the sessions that wait for a person.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { SessionEvent } from '@townhall/agent';
import { calls, says } from '../../support/scripted-gateway.ts';
import { collect, holdAnswer, openWorld, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

describe('sessions.listMessages', () => {
  test('returns a seq before the start of the message in progress', async () => {
    const { client } = await world.start();
    const slowAnswer = holdAnswer();
    world.gateway.answer((_, index) => (index === 0 ? says('First.') : slowAnswer.answer));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'One?' }, { headers: { prefer: 'wait=20' } });
    await client.sessions.prompt({ sessionId: 's', text: 'Two?' });
    await slowAnswer.request;
    slowAnswer.say('Half of ');
    // The list is read in the middle of the message.
    await collect(
      client.sessions.follow({ sessionId: 's' }),
      (event) => event.type === 'part.delta' || (event.type === 'part.snapshot' && event.text !== ''),
    );
    const { items, seq } = await client.sessions.listMessages({ sessionId: 's' });
    expect(items.map(({ role }) => role)).toEqual(['user', 'assistant', 'user']);
    expect(seq).toBeLessThan((await client.sessions.get({ sessionId: 's' })).headSeq);
    slowAnswer.say('it.');
    slowAnswer.end();
    const events: SessionEvent[] = await collect(
      client.sessions.follow({ sessionId: 's', after: seq, until: 'idle' }),
    );
    const creations = events.filter((event) => event.type === 'message.created');
    expect(creations).toMatchObject([{ role: 'assistant' }]);
    expect(events.find((event) => event.type === 'part.started')).toMatchObject({
      messageId: creations[0]?.messageId,
    });
    expect(events.find((event) => event.type === 'message.completed')).toMatchObject({
      messageId: creations[0]?.messageId,
      message: { parts: expect.arrayContaining([expect.objectContaining({ text: 'Half of it.' })]) },
    });
    const messagesAfter = await client.sessions.listMessages({ sessionId: 's' });
    expect([messagesAfter.items.length, messagesAfter.seq]).toEqual([
      4,
      (await client.sessions.get({ sessionId: 's' })).headSeq,
    ]);
  });
});

describe('sessions.list', () => {
  test('finds sessions that wait for an approval', async () => {
    const { client } = await world.start();
    world.gateway.answer((request) =>
      request.prompt.at(-1)?.role === 'tool'
        ? says('Done.')
        : calls({ name: 'shell_run', input: { command: 'echo yes' } }),
    );
    await client.sessions.create({ id: 'quiet' });
    const answer = await client.chat.sendMessage({ chatId: 'alone', text: 'Do it.' });
    const attendedChat = await client.chat.sendMessage({
      chatId: 'attended',
      text: 'Do it.',
      attended: true,
    });
    await expect
      .poll(async () => (await client.sessions.list({ status: 'requires_action' })).items.map(({ id }) => id))
      .toEqual([attendedChat.sessionId]);
    // No person attends the other chat, so the policy decides at once.
    await collect(client.sessions.follow({ sessionId: answer.sessionId, until: 'idle' }));
    expect((await client.sessions.listApprovals({ sessionId: answer.sessionId })).items).toMatchObject([
      { status: 'denied', decidedBy: 'policy' },
    ]);
    expect((await client.sessions.list({ status: 'idle' })).items.map(({ id }) => id).sort()).toEqual(
      ['quiet', answer.sessionId].sort(),
    );
    const { items } = await client.sessions.listApprovals({
      sessionId: attendedChat.sessionId,
      status: 'pending',
    });
    await client.sessions.decideApproval({
      sessionId: attendedChat.sessionId,
      approvalId: items[0]?.approvalId ?? '',
      decision: 'approve',
    });
    await collect(client.sessions.follow({ sessionId: attendedChat.sessionId, until: 'idle' }));
    expect((await client.sessions.list({ status: 'requires_action' })).items).toEqual([]);
  });
});

describe('chat.sendMessage', () => {
  test('sets `attended` with the first message only', async () => {
    const { client } = await world.start();
    world.gateway.answer(() => says('Done.'));
    const chat = { chatId: 'attended', text: 'Hello.' };
    const { sessionId } = await client.chat.sendMessage({ ...chat, attended: true });
    await client.chat.sendMessage({ ...chat, attended: false });
    expect(await client.sessions.get({ sessionId })).toMatchObject({ attended: true });
  });
});
