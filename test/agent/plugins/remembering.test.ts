// The plugins with state, `memory` and `schedule`: notes and schedules are in the agent's database
// and survive a restart.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startAgent, type TestAgent } from '../../support/agent.ts';
import { testDatabase, type TestDatabase } from '../../support/databases.ts';
import { says, scriptedGateway, type ScriptedGateway } from '../../support/scripted-gateway.ts';

let gateway: ScriptedGateway;
let world: TestDatabase;
beforeAll(async () => {
  gateway = await scriptedGateway();
  world = await testDatabase();
});
afterAll(async () => {
  await gateway.close();
  await world.close();
});

const start = (name = 'keeper') => startAgent({ gatewayUrl: gateway.url, database: world.database, name });
const actionOf =
  (agent: TestAgent, plugin_name: string) =>
  async (action_name: string, payload: Record<string, unknown> = {}) =>
    (await agent.client.plugins.callAction({ plugin_name, action_name, payload })).result as never;

describe('the plugin memory', () => {
  test('finds notes by parts of words after a restart', async () => {
    const firstAgent = await start();
    const add = actionOf(firstAgent, 'memory');
    const { noteId } = (await add('add', { text: 'The staging server is called Möwe and runs Debian.' })) as {
      noteId: string;
    };
    await add('add', { key: 'deploy', text: 'Deploy with make ship.' });
    await add('add', { key: 'deploy', text: 'Deploy with npm run ship.' });
    await firstAgent.close();

    const secondAgent = await start();
    const memory = actionOf(secondAgent, 'memory');
    const texts = async (query: string) =>
      ((await memory('search', { query })) as { notes: { text: string }[] }).notes.map(({ text }) => text);
    expect(await texts('möwe')).toEqual(['The staging server is called Möwe and runs Debian.']);
    expect(await texts('debian staging')).toHaveLength(1);
    expect(await texts('npm run')).toEqual(['Deploy with npm run ship.']);
    expect(await texts('bian')).toHaveLength(1);
    expect(await texts('make ship')).toEqual([]);
    for (const query of ["'; drop table x; --", '"', '((', '%', '\\', ':*'])
      expect(await texts(query)).toBeInstanceOf(Array);
    expect(((await memory('list')) as { notes: object[] }).notes).toHaveLength(2);
    await memory('remove', { note: noteId });
    await memory('remove', { note: 'deploy' });
    await expect(memory('remove', { note: 'deploy' })).rejects.toMatchObject({
      status: 422,
      code: 'action_refused',
    });
    await expect(memory('add', { text: 'a\u0000b' })).rejects.toMatchObject({ status: 400 });
    await secondAgent.close();
  });

  test('shows an agent its own notes only', async () => {
    const ownAgent = await start('mine');
    const otherAgent = await start('theirs');
    await actionOf(ownAgent, 'memory')('add', { text: 'A secret of mine.' });
    expect(await actionOf(otherAgent, 'memory')('search', { query: 'secret' })).toEqual({ notes: [] });
    await ownAgent.close();
    await otherAgent.close();
  });
});

describe('the plugin schedule', () => {
  const prompts = () => gateway.requests.map(({ prompt }) => JSON.stringify(prompt));

  test('runs instructions once or by a cron expression', async () => {
    gateway.answer(() => says('Done.'));
    const agent = await start('planner');
    const schedule = actionOf(agent, 'schedule');
    await schedule('once', { instructions: 'Water the plants.', inSeconds: 1 });
    const startedMs = Date.now();
    const repeatedTask = (await schedule('repeat', {
      instructions: 'Look at the clock.',
      cron: '*/5 * * * *',
      timeZone: 'Europe/Berlin',
    })) as { dueAt: string };
    expect(new Date(repeatedTask.dueAt).getMinutes() % 5).toBe(0);
    expect(Date.parse(repeatedTask.dueAt)).toBeGreaterThan(startedMs);
    await expect
      .poll(() => prompts().filter((prompt) => prompt.includes('Water the plants.')).length)
      .toBe(1);
    await expect
      .poll(async () => ((await schedule('list')) as { schedules: object[] }).schedules.length)
      .toBe(1);
    await agent.close();
  });

  test('cancels a schedule of an earlier start', async () => {
    const firstAgent = await start('planner');
    const { scheduleId } = (await actionOf(firstAgent, 'schedule')('once', {
      instructions: 'Never do this.',
      inSeconds: 3_000,
    })) as { scheduleId: string };
    await actionOf(firstAgent, 'schedule')('once', { instructions: 'Feed the cat.', inSeconds: 3 });
    await firstAgent.close();
    const secondAgent = await start('planner');
    const schedule = actionOf(secondAgent, 'schedule');
    expect(await schedule('cancel', { scheduleId })).toEqual({ cancelled: true });
    await expect(schedule('cancel', { scheduleId })).rejects.toMatchObject({ status: 422 });
    await expect.poll(() => prompts().filter((prompt) => prompt.includes('Feed the cat.')).length).toBe(1);
    expect(prompts().some((prompt) => prompt.includes('Never do this.'))).toBe(false);
    await secondAgent.close();
  });

  test.each([
    ['repeat', { instructions: 'x', cron: 'soon' }],
    ['repeat', { instructions: 'x', cron: '* * * * * *' }],
    ['repeat', { instructions: 'x', cron: '0 9 * * *', timeZone: 'Mars/Olympus' }],
    ['once', { instructions: 'x', at: '2001-01-01T00:00:00Z' }],
  ])('refuses %s with %j', async (action, payload) => {
    const agent = await start('refuser');
    await expect(actionOf(agent, 'schedule')(action, payload)).rejects.toMatchObject({
      status: 422,
      code: 'action_refused',
    });
    await agent.close();
  });
});
