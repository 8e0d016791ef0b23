// Folded events: in sessions at rest the log has each text, input and output once, and every reader gets the
// same events as before.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { SessionEvent } from '@townhall/agent';
import { foldSessionsAtRest } from '../../../src/agent/sessions/event-log/fold.ts';
import {
  copyAncestors,
  segmentsOf,
  sessionStore,
  type SessionRecord,
} from '../../../src/agent/sessions/event-log/session-store.ts';
import { eventStore } from '../../../src/agent/sessions/event-log/store.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import type { TestAgent } from '../../support/agent.ts';
import { calls, says } from '../../support/scripted-gateway.ts';
import { collect, openWorld, seqs, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

const content = 'A line of the file.\n'.repeat(50);
const speech = 'And so it was written and read again. '.repeat(30);

/** A session with a run that has written a file, read it and spoken. */
async function createSessionWithRun(): Promise<{ agent: TestAgent; events: SessionEvent[] }> {
  const answers = [
    calls({ name: 'files_write', input: { path: 'a.txt', content } }),
    calls({ name: 'files_read', input: { path: 'a.txt' } }),
  ];
  world.gateway.answer((_, index) => answers[index] ?? says(speech));
  const agent = await world.start();
  await agent.client.sessions.create({ id: 's' });
  await agent.client.sessions.prompt({ sessionId: 's', text: 'Go.' }, { headers: { prefer: 'wait=20' } });
  return { agent, events: await eventsOf(agent, 's') };
}

/** Such a session, archived and folded; the events are those before. */
async function createFoldedSession(): ReturnType<typeof createSessionWithRun> {
  const session = await createSessionWithRun();
  await session.agent.client.sessions.update({ sessionId: 's', archived: true });
  await fold(session.agent);
  return session;
}

const seqOfSpeech = (events: readonly SessionEvent[]): number =>
  events.find((event) => event.type === 'part.ended')?.seq ?? 0;

/** Forks the session at one of its folded events. */
async function forkWithin({ client }: TestAgent, events: readonly SessionEvent[]): Promise<string> {
  const fork = await client.sessions.fork({ sessionId: 's', seq: seqOfSpeech(events) });
  if ('dryRun' in fork) throw new Error('No fork was made.');
  return fork.id;
}

async function eventsOf({ client }: TestAgent, sessionId: string, after = 0): Promise<SessionEvent[]> {
  const events = await collect(client.sessions.follow({ sessionId, after, until: 'idle' }));
  return events.filter((event) => 'seq' in event);
}

async function fold(agent: TestAgent): Promise<void> {
  const { agentId } = await recordOf(agent, 's');
  const options = { database: agent.database, agentId, clock: systemClock };
  await foldSessionsAtRest(options, new AbortController().signal);
}

async function recordOf({ database, name }: TestAgent, id: string): Promise<SessionRecord> {
  const [row] = await database.sql<{ agent_id: string }[]>`
    select agent_id from agent.tokens_agents where name = ${name}`;
  const session = await sessionStore(database).session(row?.agent_id ?? '', { id });
  if (session === undefined) throw new Error(`There is no session ${id}.`);
  return session;
}

/** The types of the folded events, and the bytes of the session's log. */
async function readLogSize(agent: TestAgent): Promise<{ foldedTypes: string[]; bytes: number }> {
  const { key } = await recordOf(agent, 's');
  const rows = await agent.database.sql<{ type: string; is_folded: boolean; bytes: number }[]>`
    select type, folded is not null as is_folded, octet_length(data::text) as bytes from agent.sessions_events
    where session_id = ${key} order by seq`;
  return {
    foldedTypes: rows.flatMap(({ type, is_folded: isFolded }) => (isFolded ? [type] : [])),
    bytes: rows.reduce((sum, { bytes }) => sum + bytes, 0),
  };
}

describe('a folded session', () => {
  test('shows the same events with each text stored once', async () => {
    const { agent, events } = await createSessionWithRun();
    const messages = await agent.client.sessions.listMessages({ sessionId: 's' });
    await agent.client.sessions.update({ sessionId: 's', archived: true });
    const sizeBefore = await readLogSize(agent);
    await fold(agent);
    const sizeAfter = await readLogSize(agent);
    expect(sizeAfter.foldedTypes).toEqual(['tool.started', 'tool.output', 'part.ended']);
    expect(sizeAfter.bytes).toBeLessThan(sizeBefore.bytes * 0.7);
    const foldedEvents = await eventsOf(agent, 's');
    expect(foldedEvents.slice(0, events.length)).toEqual(events);
    expect(seqs(foldedEvents)).toEqual(foldedEvents.map((_, index) => index + 1));
    expect((await agent.client.sessions.listMessages({ sessionId: 's' })).items).toEqual(messages.items);
  });

  test('continues from a cursor within its folded events', async () => {
    const { agent, events } = await createFoldedSession();
    for (const [index, event] of events.entries()) {
      const afterSeq = 'seq' in event ? event.seq : 0;
      expect((await eventsOf(agent, 's', afterSeq))[0]).toEqual(events[index + 1] ?? expect.anything());
    }
  });

  test('returns a folded tool output', async () => {
    const { agent, events } = await createFoldedSession();
    const output = events.findLast((event) => event.type === 'tool.output');
    const session = await recordOf(agent, 's');
    expect(await eventStore(agent.database).toolOutput(segmentsOf(session), output?.seq ?? 0)).toEqual(
      output?.output,
    );
  });

  test('shows its folded events in a fork', async () => {
    const { agent, events } = await createFoldedSession();
    const id = await forkWithin(agent, events);
    const forkSeq = seqOfSpeech(events);
    expect((await eventsOf(agent, id)).slice(0, forkSeq)).toMatchObject(
      events.slice(0, forkSeq).map((event) => ({ ...event, sessionId: expect.any(String) })),
    );
    const { items } = await agent.client.sessions.listMessages({ sessionId: id });
    expect(items.at(-1)?.parts.at(-1)).toMatchObject({ type: 'text', text: speech });
  });

  test('leaves its events to a fork that has copied them', async () => {
    const { agent, events } = await createFoldedSession();
    const id = await forkWithin(agent, events);
    const history = await eventsOf(agent, id);
    const record = await recordOf(agent, id);
    await agent.database.tx((tx) => copyAncestors({ tx, appended: [], applied: [] }, record));
    await agent.client.sessions.remove({ sessionId: 's' });
    expect(await eventsOf(agent, id)).toEqual(history);
  });
});

describe('foldSessionsAtRest', () => {
  test('does not fold a session that had a run within the last day', async () => {
    const { agent } = await createSessionWithRun();
    await fold(agent);
    expect((await readLogSize(agent)).foldedTypes).toEqual([]);
  });

  test('folds a session that was idle for a day', async () => {
    const { agent } = await createSessionWithRun();
    const { key } = await recordOf(agent, 's');
    await agent.sql`
      update agent.sessions_sessions set updated_at = updated_at - interval '25 hours'
      where session_id = ${key}`;
    await fold(agent);
    expect((await readLogSize(agent)).foldedTypes).toHaveLength(3);
  });
});
