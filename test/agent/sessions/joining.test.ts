// What a page needs that opens a session in the middle of things: the past in one call, the rest from its `seq` on, and
// the sessions that wait for somebody.
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
  test('gives a seq from which a message that is being written is told from its beginning', async () => {
    const { client } = await world.start();
    const slow = holdAnswer();
    world.gateway.answer((_, index) => (index === 0 ? says('First.') : slow.answer));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'One?' }, { headers: { prefer: 'wait=20' } });
    await client.sessions.prompt({ sessionId: 's', text: 'Two?' });
    await slow.asked;
    slow.say('Half of ');
    // Once it is on its way, so that what follows begins in the middle of it.
    await collect(
      client.sessions.follow({ sessionId: 's' }),
      (event) => event.type === 'part.delta' || (event.type === 'part.snapshot' && event.text !== ''),
    );
    const { items, seq } = await client.sessions.listMessages({ sessionId: 's' });
    expect(items.map(({ role }) => role)).toEqual(['user', 'assistant', 'user']);
    expect(seq).toBeLessThan((await client.sessions.get({ sessionId: 's' })).headSeq);
    slow.say('it.');
    slow.end();
    const told: SessionEvent[] = await collect(
      client.sessions.follow({ sessionId: 's', after: seq, until: 'idle' }),
    );
    const begun = told.filter((event) => event.type === 'message.created');
    expect(begun).toMatchObject([{ role: 'assistant' }]);
    expect(told.find((event) => event.type === 'part.started')).toMatchObject({
      messageId: begun[0]?.messageId,
    });
    expect(told.find((event) => event.type === 'message.completed')).toMatchObject({
      messageId: begun[0]?.messageId,
      message: { parts: expect.arrayContaining([expect.objectContaining({ text: 'Half of it.' })]) },
    });
    const after = await client.sessions.listMessages({ sessionId: 's' });
    expect([after.items.length, after.seq]).toEqual([
      4,
      (await client.sessions.get({ sessionId: 's' })).headSeq,
    ]);
  });
});

describe('sessions.list', () => {
  test('finds the sessions that wait for an approval, also those of a chat that its first message made attended', async () => {
    const { client } = await world.start();
    world.gateway.answer((request) =>
      request.prompt.at(-1)?.role === 'tool'
        ? says('Done.')
        : calls({ name: 'shell_run', input: { command: 'echo yes' } }),
    );
    await client.sessions.create({ id: 'quiet' });
    const alone = await client.chat.sendMessage({ chatId: 'alone', text: 'Do it.' });
    const attended = await client.chat.sendMessage({ chatId: 'attended', text: 'Do it.', attended: true });
    await expect
      .poll(async () => (await client.sessions.list({ status: 'requires_action' })).items.map(({ id }) => id))
      .toEqual([attended.sessionId]);
    // Nobody attends the other, so the policy has decided at once.
    await collect(client.sessions.follow({ sessionId: alone.sessionId, until: 'idle' }));
    expect((await client.sessions.listApprovals({ sessionId: alone.sessionId })).items).toMatchObject([
      { status: 'denied', decidedBy: 'policy' },
    ]);
    expect((await client.sessions.list({ status: 'idle' })).items.map(({ id }) => id).sort()).toEqual(
      ['quiet', alone.sessionId].sort(),
    );
    const { items } = await client.sessions.listApprovals({
      sessionId: attended.sessionId,
      status: 'pending',
    });
    await client.sessions.decideApproval({
      sessionId: attended.sessionId,
      approvalId: items[0]?.approvalId ?? '',
      decision: 'approve',
    });
    await collect(client.sessions.follow({ sessionId: attended.sessionId, until: 'idle' }));
    expect((await client.sessions.list({ status: 'requires_action' })).items).toEqual([]);
    // A later message does not change what the chat is.
    await client.chat.sendMessage({ chatId: 'attended', text: 'Again.', attended: false });
    expect(await client.sessions.get({ sessionId: attended.sessionId })).toMatchObject({ attended: true });
  });
});
