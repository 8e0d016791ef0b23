// Inputs beyond the runs that the agent executes at a time: they wait for a free place, in the order of
// their acceptance.
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { AgentClient } from '@townhall/agent';
import type { AgentConfig } from '../../../src/agent/config.ts';
import type { TestAgent } from '../../support/agent.ts';
import { says } from '../../support/scripted-gateway.ts';
import {
  collect,
  holdAnswer,
  openWorld,
  type ControlledAnswer,
  type World,
} from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

/** The first answer is held, so that the one place is taken; later ones come at once. */
function holdFirst(): ControlledAnswer {
  const firstAnswer = holdAnswer();
  world.gateway.answer((_, index) => (index === 0 ? firstAnswer.answer : says('Done.')));
  return firstAnswer;
}

async function createSessions(client: AgentClient, ids: readonly string[]): Promise<void> {
  for (const id of ids) await client.sessions.create({ id });
}

/** An agent with these sessions, whose one place is taken by an input of the session `a`. */
async function startFull(
  sessionIds: readonly string[],
  settings: Partial<AgentConfig> = {},
): Promise<{ agent: TestAgent; client: AgentClient; firstAnswer: ControlledAnswer }> {
  const agent = await world.start({ settings: { maxRuns: 1, ...settings } });
  const { client } = agent;
  const firstAnswer = holdFirst();
  await createSessions(client, sessionIds);
  await client.sessions.prompt({ sessionId: 'a', text: 'first' });
  await firstAnswer.request;
  return { agent, client, firstAnswer };
}

/** The inputs in the order in which the model got them. */
function inputsOfModel(): string[] {
  return world.gateway.requests.map(({ prompt }) => {
    const { content } = prompt.findLast(({ role }) => role === 'user') ?? { content: [] };
    return (content as { text: string }[])[0]?.text ?? '';
  });
}

describe('an input without a free place', () => {
  test('waits at its position until a place is free', async () => {
    const { client, firstAnswer } = await startFull(['a', 'b', 'c']);
    const secondReceipt = await client.sessions.prompt({ sessionId: 'b', text: 'second' });
    const thirdReceipt = await client.sessions.prompt({ sessionId: 'c', text: 'third' });
    expect(secondReceipt).toMatchObject({
      status: 'accepted',
      queued: true,
      queueItemId: expect.stringMatching(/^qit_/),
      queuePosition: 0,
      waitsFor: 'capacity',
    });
    expect(thirdReceipt).toMatchObject({ status: 'accepted', queuePosition: 1, waitsFor: 'capacity' });
    expect(await client.sessions.getRun({ sessionId: 'c', runId: thirdReceipt.runId })).toMatchObject({
      status: 'accepted',
      queuePosition: 1,
      waitsFor: 'capacity',
    });
    expect((await client.sessions.listQueue({ sessionId: 'c' })).items).toMatchObject([
      { runId: thirdReceipt.runId, queuePosition: 1 },
    ]);
    firstAnswer.end();
    const events = await collect(client.sessions.follow({ sessionId: 'c', until: 'idle' }));
    const runEvents = events.filter((event) => 'runId' in event && event.runId === thirdReceipt.runId);
    expect(runEvents.slice(0, 6)).toMatchObject([
      { type: 'message.created' },
      { type: 'message.completed' },
      { type: 'queue.added', queuePosition: 1, waitsFor: 'capacity' },
      { type: 'status.changed', status: 'idle', queueLength: 1 },
      { type: 'queue.removed', reason: 'started' },
      { type: 'run.started' },
    ]);
    expect(events.at(-1)).toMatchObject({ type: 'status.changed', status: 'idle', queueLength: 0 });
    expect(inputsOfModel()).toEqual(['first', 'second', 'third']);
  });

  test('is answered when its caller waits for the result', async () => {
    const { client, firstAnswer } = await startFull(['a']);
    const answer = client.sessions.execute({ instructions: 'second' });
    await expect.poll(async () => (await client.sessions.list({ kind: 'execute' })).items).toHaveLength(1);
    firstAnswer.end();
    expect(await answer).toMatchObject({ text: 'Done.' });
  });

  test('is reported as queued when its caller waits too long', async () => {
    const { client, firstAnswer } = await startFull(['a'], { executeWaitMs: 50 });
    expect(await client.sessions.execute({ instructions: 'second' })).toMatchObject({
      queued: true,
      queuePosition: 0,
      waitsFor: 'capacity',
    });
    firstAnswer.end();
  });

  test('leaves no session behind when it is refused beyond the limit', async () => {
    const { agent, client, firstAnswer } = await startFull(['a', 'b', 'c'], { maxQueuedRuns: 1 });
    await client.sessions.prompt({ sessionId: 'b', text: 'second' });
    const refusal = { status: 429, code: 'rate_limited', message: expect.stringContaining('1 inputs wait') };
    await expect(client.sessions.prompt({ sessionId: 'c', text: 'third' })).rejects.toMatchObject(refusal);
    await expect(client.sessions.execute({ instructions: 'fourth' })).rejects.toMatchObject(refusal);
    const response = await agent.fetch('/api/sdk/sessions/c/prompt', {
      method: 'POST',
      headers: { authorization: `Bearer ${agent.token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ text: 'third' }),
    });
    expect([response.status, response.headers.get('retry-after')]).toEqual([429, '5']);
    expect((await client.sessions.list()).items).toHaveLength(3);
    firstAnswer.end();
  });

  test('is refused when it regenerates an answer', async () => {
    const { client } = await world.start({ settings: { maxRuns: 1 } });
    const secondAnswer = holdAnswer();
    world.gateway.answer((_, index) => (index === 1 ? secondAnswer.answer : says('Done.')));
    await createSessions(client, ['a', 'b']);
    await client.sessions.prompt({ sessionId: 'b', text: 'first' }, { headers: { prefer: 'wait=20' } });
    await client.sessions.prompt({ sessionId: 'a', text: 'second' });
    await secondAnswer.request;
    await expect(client.sessions.regenerate({ sessionId: 'b' })).rejects.toMatchObject({
      status: 429,
      code: 'rate_limited',
      message: expect.stringContaining('a new answer cannot wait'),
    });
    const { items } = await client.sessions.listMessages({ sessionId: 'b' });
    expect(items.at(-1)?.metadata).toMatchObject({ status: 'completed' });
    secondAnswer.end();
  });

  test('leaves its place to others when it could not be started', async () => {
    const { agent, client, firstAnswer } = await startFull(['a', 'b', 'c']);
    const { sql } = agent;
    const { runId } = await client.sessions.prompt({ sessionId: 'b', text: 'second' });
    // The sequence counts attempts, because a transaction that fails does not take it back.
    await sql.unsafe(`create sequence agent.test_attempts`);
    await sql.unsafe(`create function agent.test_refuse() returns trigger language plpgsql as
      $$ begin perform nextval('agent.test_attempts'); raise exception 'The start is refused.'; end $$`);
    await sql.unsafe(`create trigger test_refuse before update on agent.sessions_runs for each row
      when (new.run_id = '${runId}' and new.status = 'running') execute function agent.test_refuse()`);
    firstAnswer.end();
    const wasAttempted = async () => {
      const [row] = await sql<{ is_called: boolean }[]>`select is_called from agent.test_attempts`;
      return row?.is_called;
    };
    await expect.poll(wasAttempted).toBe(true);
    await client.sessions.cancel({ sessionId: 'b' });
    await sql.unsafe('drop trigger test_refuse on agent.sessions_runs');
    await sql.unsafe('drop function agent.test_refuse');
    await sql.unsafe('drop sequence agent.test_attempts');
    await client.sessions.prompt({ sessionId: 'c', text: 'third' }, { headers: { prefer: 'wait=20' } });
    expect(inputsOfModel()).toEqual(['first', 'third']);
  });

  test('ends when it is cancelled or removed', async () => {
    const { client, firstAnswer } = await startFull(['a', 'b', 'c']);
    const secondReceipt = await client.sessions.prompt({ sessionId: 'b', text: 'second' });
    const thirdReceipt = await client.sessions.prompt({ sessionId: 'c', text: 'third' });
    expect(await client.sessions.cancel({ sessionId: 'b' })).toMatchObject({
      cancelled: [secondReceipt.runId],
    });
    expect(await client.sessions.getRun({ sessionId: 'c', runId: thirdReceipt.runId })).toMatchObject({
      queuePosition: 0,
    });
    await client.sessions.removeQueueItem({ sessionId: 'c', queueItemId: thirdReceipt.queueItemId ?? '' });
    const events = await collect(client.sessions.follow({ sessionId: 'c', until: 'idle' }));
    expect(events.at(-1)).toMatchObject({ type: 'status.changed', status: 'idle', queueLength: 0 });
    firstAnswer.end();
    await collect(client.sessions.follow({ sessionId: 'a', until: 'idle' }));
    expect(inputsOfModel()).toEqual(['first']);
  });

  test('counts only earlier interrupting inputs ahead of an interrupting one', async () => {
    const { client, firstAnswer } = await startFull(['a', 'b', 'c']);
    const secondReceipt = await client.sessions.prompt({ sessionId: 'b', text: 'second' });
    const interrupt = (sessionId: string) =>
      client.sessions.prompt({ sessionId, text: 'urgent', delivery: 'interrupt' });
    const interruption = await interrupt('b');
    expect([interruption, await interrupt('c')]).toMatchObject([
      { queuePosition: 0, waitsFor: 'capacity' },
      { queuePosition: 1, waitsFor: 'capacity' },
    ]);
    expect(await client.sessions.getRun({ sessionId: 'b', runId: interruption.runId })).toMatchObject({
      queuePosition: 0,
      waitsFor: 'capacity',
    });
    expect(await interrupt('b')).toMatchObject({ waitsFor: 'session' });
    const events = await collect(
      client.sessions.follow({ sessionId: 'b' }),
      ({ type }) => type === 'queue.updated',
    );
    // When the event was written, only the interrupting input of its own session was ahead.
    expect(events.at(-1)).toMatchObject({ items: [{ runId: secondReceipt.runId, queuePosition: 1 }] });
    firstAnswer.end();
  });

  test('comes before later inputs of the session that has the place', async () => {
    const { client, firstAnswer } = await startFull(['a', 'b']);
    await client.sessions.prompt({ sessionId: 'b', text: 'second' });
    await client.sessions.prompt({ sessionId: 'a', text: 'third' });
    await client.sessions.prompt({ sessionId: 'b', text: 'fourth' });
    firstAnswer.end();
    for (const sessionId of ['a', 'b']) await collect(client.sessions.follow({ sessionId, until: 'idle' }));
    expect(inputsOfModel()).toEqual(['first', 'second', 'third', 'fourth']);
  });

  test('keeps its turn across a restart', async () => {
    const name = `restarted-${randomUUID()}`;
    const firstAgent = await world.start({ name, settings: { maxRuns: 1 } });
    const firstAnswer = holdFirst();
    await createSessions(firstAgent.client, ['a', 'b', 'c', 'd']);
    for (const sessionId of ['d', 'c', 'b', 'a']) {
      await firstAgent.client.sessions.prompt({ sessionId, text: sessionId });
      await firstAnswer.request;
    }
    await firstAgent.close();
    const { client } = await world.start({ name, settings: { maxRuns: 1 } });
    for (const sessionId of ['c', 'b', 'a'])
      await collect(client.sessions.follow({ sessionId, until: 'idle' }));
    expect(inputsOfModel()).toEqual(['d', 'c', 'b', 'a']);
  });
});
