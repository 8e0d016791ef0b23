// The plugins with state, `memory` and `schedule`: notes and schedules are in the agent's database
// and survive a restart.
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { scheduleStore } from '../../../src/agent/plugins/index.ts';
import { createScheduleRunner } from '../../../src/agent/plugins/builtin/schedule-runner.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import type { Jobs } from '../../../src/kernel/data/jobs.ts';
import { startAgent, type TestAgent } from '../../support/agent.ts';
import { silentLog, testDatabase, type TestDatabase } from '../../support/databases.ts';
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

const agents: TestAgent[] = [];
afterEach(async () => {
  for (const agent of agents.splice(0)) await agent.close();
});

async function start(name: string = randomUUID()): Promise<TestAgent> {
  const agent = await startAgent({ gatewayUrl: gateway.url, database: world.database, name });
  agents.push(agent);
  return agent;
}

async function restart({ name }: TestAgent): Promise<TestAgent> {
  for (const agent of agents.splice(0)) await agent.close();
  return start(name);
}

const actionOf =
  (agent: TestAgent, plugin_name: string) =>
  async (action_name: string, payload: Record<string, unknown> = {}): Promise<unknown> =>
    (await agent.client.plugins.callAction({ plugin_name, action_name, payload })).result;

describe('the plugin memory', () => {
  const staging = 'The staging server is called Möwe and runs Debian.';

  async function search(agent: TestAgent, query: string): Promise<string[]> {
    const { notes } = (await actionOf(agent, 'memory')('search', { query })) as { notes: { text: string }[] };
    return notes.map(({ text }) => text);
  }

  test('keeps notes across a restart', async () => {
    const firstAgent = await start();
    await actionOf(firstAgent, 'memory')('add', { text: staging });
    const agent = await restart(firstAgent);
    expect(await actionOf(agent, 'memory')('list')).toMatchObject({ notes: [{ text: staging }] });
  });

  test.each(['möwe', 'debian staging', 'bian'])('finds a note by %j', async (query) => {
    const agent = await start();
    const memory = actionOf(agent, 'memory');
    await memory('add', { text: staging });
    await memory('add', { text: 'Deploy with make ship.' });
    expect(await search(agent, query)).toEqual([staging]);
  });

  test.each(["'; drop table x; --", '"', '((', '%', '\\', ':*'])(
    'treats the query %j as text',
    async (query) => {
      const agent = await start();
      await actionOf(agent, 'memory')('add', { text: staging });
      await actionOf(agent, 'memory')('add', { text: `The query was ${query} here.` });
      expect(await search(agent, query)).not.toContain(staging);
    },
  );

  test('replaces the note with the same key', async () => {
    const agent = await start();
    const memory = actionOf(agent, 'memory');
    await memory('add', { key: 'deploy', text: 'Deploy with make ship.' });
    await memory('add', { key: 'deploy', text: 'Deploy with npm run ship.' });
    expect(await search(agent, 'npm run')).toEqual(['Deploy with npm run ship.']);
    expect(await search(agent, 'make ship')).toEqual([]);
  });

  test('removes a note by its id or key', async () => {
    const memory = actionOf(await start(), 'memory');
    const { noteId } = (await memory('add', { text: staging })) as { noteId: string };
    await memory('add', { key: 'deploy', text: 'Deploy with make ship.' });
    await memory('remove', { note: noteId });
    await memory('remove', { note: 'deploy' });
    expect(await memory('list')).toMatchObject({ notes: [] });
  });

  test('refuses to remove an absent note', async () => {
    const memory = actionOf(await start(), 'memory');
    await expect(memory('remove', { note: 'deploy' })).rejects.toMatchObject({
      status: 422,
      code: 'action_refused',
    });
  });

  test('replaces a note even when the memory is full', async () => {
    const memory = actionOf(await start(), 'memory');
    const { noteId } = (await memory('add', { key: 'deploy', text: 'Old.' })) as { noteId: string };
    // With the note above, one note more than the limit.
    await world.database.sql`
      insert into agent.plugins_notes (note_id, agent_id, text)
      select note_id || number, agent_id, 'x' from agent.plugins_notes, generate_series(1, 10000) number
      where note_id = ${noteId}`;
    await expect(memory('add', { text: 'One more.' })).rejects.toMatchObject({
      code: 'action_refused',
      message: expect.stringContaining('The memory is full'),
    });
    await memory('remove', { note: `${noteId}1` });
    expect(await memory('add', { key: 'deploy', text: 'New.' })).toMatchObject({ noteId, text: 'New.' });
  });

  test('never exceeds its limit when notes are added at once', async () => {
    const memory = actionOf(await start(), 'memory');
    const { noteId } = (await memory('add', { text: 'First.' })) as { noteId: string };
    await world.database.sql`
      insert into agent.plugins_notes (note_id, agent_id, text)
      select note_id || number, agent_id, 'x' from agent.plugins_notes, generate_series(1, 9998) number
      where note_id = ${noteId}`;
    const texts = ['a', 'b', 'c', 'd', 'e', 'f'];
    const results = await Promise.allSettled(texts.map((text) => memory('add', { text })));
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  });

  test('refuses text that PostgreSQL cannot store', async () => {
    const memory = actionOf(await start(), 'memory');
    await expect(memory('add', { text: 'a\u0000b' })).rejects.toMatchObject({ status: 400 });
  });

  test('shows an agent only its own notes', async () => {
    const [agent, otherAgent] = [await start(), await start()];
    await actionOf(agent, 'memory')('add', { text: 'A secret.' });
    expect(await search(agent, 'secret')).toEqual(['A secret.']);
    expect(await search(otherAgent, 'secret')).toEqual([]);
  });
});

describe('the plugin schedule', () => {
  beforeAll(() => gateway.answer(() => says('Done.')));

  const countPrompts = (text: string) =>
    gateway.requests.filter(({ prompt }) => JSON.stringify(prompt).includes(text)).length;

  test('runs instructions once', async () => {
    const schedule = actionOf(await start(), 'schedule');
    await schedule('once', { instructions: 'Water the plants.', inSeconds: 1 });
    await expect.poll(() => countPrompts('Water the plants.')).toBe(1);
    await expect.poll(() => schedule('list')).toMatchObject({ schedules: [] });
  });

  test('never exceeds its limit when schedules are added at once', async () => {
    const schedule = actionOf(await start(), 'schedule');
    const task = { instructions: 'Never do this.', inSeconds: 3_000 };
    const { scheduleId } = (await schedule('once', task)) as { scheduleId: string };
    await world.database.sql`
      insert into agent.plugins_schedules (schedule_id, agent_id, instructions, due_at)
      select schedule_id || number, agent_id, instructions, due_at
      from agent.plugins_schedules, generate_series(1, 998) number where schedule_id = ${scheduleId}`;
    const results = await Promise.allSettled(Array.from({ length: 6 }, () => schedule('once', task)));
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    await expect(schedule('once', task)).rejects.toMatchObject({
      code: 'action_refused',
      message: expect.stringContaining('already 1000 schedules'),
    });
  });

  test('stores no schedule whose job cannot be enqueued', async () => {
    const { name } = await start();
    const [agent] = await world.database.sql<{ agent_id: string }[]>`
      select agent_id from agent.tokens_agents where name = ${name}`;
    const agentId = agent?.agent_id as string;
    const store = scheduleStore(world.database, agentId);
    const failingJobs: Pick<Jobs, 'define' | 'start' | 'ready' | 'enqueue'> = {
      define() {},
      start() {},
      async ready() {},
      enqueue: () => Promise.reject(new Error('The queue is unavailable.')),
    };
    const runner = createScheduleRunner({
      store,
      agentId,
      openJobs: async () => failingJobs as Jobs,
      execute: async () => ({ runId: 'run' }),
      clock: systemClock,
      log: silentLog,
    });
    const task = { instructions: 'x', cron: null, timeZone: 'UTC', dueAt: new Date() };
    await expect(runner.add(task)).rejects.toThrow('The queue is unavailable.');
    expect(await store.listOpen()).toEqual([]);
  });

  test('returns the next occurrence of a cron expression', async () => {
    const schedule = actionOf(await start(), 'schedule');
    const startedMs = Date.now();
    const repeatedTask = (await schedule('repeat', {
      instructions: 'Look at the clock.',
      cron: '*/5 * * * *',
      timeZone: 'Europe/Berlin',
    })) as { dueAt: string };
    expect(new Date(repeatedTask.dueAt).getMinutes() % 5).toBe(0);
    expect(Date.parse(repeatedTask.dueAt)).toBeGreaterThan(startedMs);
    expect(await schedule('list')).toMatchObject({ schedules: [{ dueAt: repeatedTask.dueAt }] });
  });

  test('cancels a schedule from before a restart', async () => {
    const firstAgent = await start();
    const { scheduleId } = (await actionOf(firstAgent, 'schedule')('once', {
      instructions: 'Never do this.',
      inSeconds: 3_000,
    })) as { scheduleId: string };
    const schedule = actionOf(await restart(firstAgent), 'schedule');
    expect(await schedule('cancel', { scheduleId })).toEqual({ cancelled: true });
    expect(await schedule('list')).toMatchObject({ schedules: [] });
    await expect(schedule('cancel', { scheduleId })).rejects.toMatchObject({ status: 422 });
  });

  test('runs a schedule from before a restart', async () => {
    const firstAgent = await start();
    await actionOf(firstAgent, 'schedule')('once', { instructions: 'Feed the cat.', inSeconds: 3 });
    await restart(firstAgent);
    await expect.poll(() => countPrompts('Feed the cat.')).toBe(1);
  });

  test.each([
    ['repeat', { instructions: 'x', cron: 'soon' }],
    ['repeat', { instructions: 'x', cron: '* * * * * *' }],
    ['repeat', { instructions: 'x', cron: '0 9 * * *', timeZone: 'Mars/Olympus' }],
    ['once', { instructions: 'x', at: '2001-01-01T00:00:00Z' }],
  ])('refuses %s with %j', async (action, payload) => {
    const agent = await start();
    await expect(actionOf(agent, 'schedule')(action, payload)).rejects.toMatchObject({
      status: 422,
      code: 'action_refused',
    });
  });
});
