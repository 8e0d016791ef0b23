// Search of sessions by the words of their messages and titles, and by their metadata.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { says } from '../../support/scripted-gateway.ts';
import { openWorld, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

describe('sessions.list', () => {
  const wait = { headers: { prefer: 'wait=20' } };

  test('finds sessions by words of their messages and titles', async () => {
    const { client } = await world.start();
    world.gateway.answer(() => says('The lighthouse keeper opens src/tower.ts at nine.'));
    await client.sessions.create({ id: 'prompted', title: 'First' });
    await client.sessions.prompt({ sessionId: 'prompted', text: 'Tell me of the Harbour festival.' }, wait);
    await client.sessions.create({ id: 'titled', title: 'The harbour at night' });
    await client.sessions.create({ id: 'other', title: 'Nothing' });
    const ids = async (search: string) => (await client.sessions.list({ search })).items.map(({ id }) => id);
    expect(await ids('harbour')).toEqual(['titled', 'prompted']);
    expect(await ids('HARBOUR fest')).toEqual(['prompted']);
    expect(await ids('lighthouse')).toEqual(['prompted']);
    expect(await ids('src/tower.ts')).toEqual(['prompted']);
    // Words of two messages, and of no message.
    expect(await ids('harbour lighthouse')).toEqual([]);
    expect(await ids('windmill')).toEqual([]);
    expect(await ids('!?')).toEqual([]);
  });

  test('pages through the result of a search', async () => {
    const { client } = await world.start();
    for (const id of ['a', 'b', 'c']) await client.sessions.create({ id, title: `Report ${id}` });
    await client.sessions.create({ id: 'd', title: 'Else' });
    const firstPage = await client.sessions.list({ search: 'report', limit: 2 });
    const secondPage = await client.sessions.list({
      search: 'report',
      limit: 2,
      cursor: firstPage.nextCursor as string,
    });
    expect([...firstPage.items, ...secondPage.items].map(({ id }) => id)).toEqual(['c', 'b', 'a']);
    expect(secondPage.nextCursor).toBeNull();
  });

  test('finds a fork by the messages that it shares', async () => {
    const { client } = await world.start();
    world.gateway.answer((_, index) => says(index === 0 ? 'An early answer.' : 'A later remark.'));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'One.' }, wait);
    const { id } = (await client.sessions.fork({ sessionId: 's' })) as { id: string };
    await client.sessions.prompt({ sessionId: 's', text: 'Two.' }, wait);
    const ids = async (search: string) =>
      (await client.sessions.list({ search })).items.map((session) => session.id);
    expect((await ids('early')).sort()).toEqual([id, 's'].sort());
    expect(await ids('remark')).toEqual(['s']);
  });

  test('finds sessions by members of their metadata', async () => {
    const { client } = await world.start();
    await client.sessions.create({ id: 'a', metadata: { project: 'hall', round: 1 } });
    await client.sessions.create({ id: 'b', metadata: { project: 'hall', round: 2 } });
    await client.sessions.create({ id: 'c' });
    const ids = async (metadata: object) =>
      (await client.sessions.list({ metadata: JSON.stringify(metadata) })).items.map(({ id }) => id);
    expect(await ids({ project: 'hall' })).toEqual(['b', 'a']);
    expect(await ids({ project: 'hall', round: 1 })).toEqual(['a']);
    expect(await ids({ round: '1' })).toEqual([]);
    await client.sessions.update({ sessionId: 'c', metadata: { round: '1' } });
    expect(await ids({ round: '1' })).toEqual(['c']);
  });

  test.each(['[]', '"hall"', '{', '{"a":"\\u0000"}'])('refuses the metadata %s', async (metadata) => {
    const { client } = await world.start();
    await expect(client.sessions.list({ metadata })).rejects.toMatchObject({
      status: 400,
      code: 'invalid_request',
      param: 'metadata',
    });
  });

  test('finds no session of another agent', async () => {
    const [agent, otherAgent] = [await world.start(), await world.start()];
    await agent.client.sessions.create({ title: 'Harbour' });
    expect((await otherAgent.client.sessions.list({ search: 'harbour' })).items).toEqual([]);
  });

  // A tsvector may have 1 MiB and a word of it 2 KiB.
  test.each(['𐌰-', 'a@b.cc/d ', '1.2.', 'ab ', 'é'])(
    'accepts a long input of %j and indexes its beginning',
    async (piece) => {
      const { client } = await world.start();
      world.gateway.answer(() => says('Done.'));
      await client.sessions.create({ id: 's' });
      const text = `beginning ${piece.repeat(Math.ceil(200_000 / piece.length))} end`;
      await client.sessions.prompt({ sessionId: 's', text }, wait);
      expect((await client.sessions.list({ search: 'beginning' })).items).toHaveLength(1);
    },
  );
});
