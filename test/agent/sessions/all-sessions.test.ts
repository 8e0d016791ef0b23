// The stream of all sessions: every event once, over connections, restarts and processes.
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import type { SessionEvent } from '@townhall/agent';
import {
  allSessionsStore,
  type AllSessionsStore,
} from '../../../src/agent/sessions/event-log/all-sessions-store.ts';
import type { StoredEvent } from '../../../src/agent/sessions/event-log/events.ts';
import { followAll } from '../../../src/agent/sessions/event-log/follow-all.ts';
import { createLiveFeed } from '../../../src/agent/sessions/event-log/live-feed.ts';
import { copyAncestors, sessionStore } from '../../../src/agent/sessions/event-log/session-store.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import type { TestAgent } from '../../support/agent.ts';
import { says } from '../../support/scripted-gateway.ts';
import { openWorld, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

// The embedded engine has one process.
const isPostgres = inject('databaseSource')?.engine === 'postgres';
const wait = { headers: { prefer: 'wait=20' } };

/** Reads in the background. */
function readInBackground(events: AsyncIterable<SessionEvent>) {
  const receivedEvents: SessionEvent[] = [];
  const checks: (() => void)[] = [];
  const end = (async () => {
    for await (const event of events) {
      receivedEvents.push(event);
      for (const check of checks) check();
    }
  })();
  return {
    events: receivedEvents,
    end,
    /** Resolves once an event matches. */
    until: (matches: (event: SessionEvent) => boolean) =>
      new Promise<void>((resolve) => {
        const check = () => {
          if (receivedEvents.some(matches)) resolve();
        };
        checks.push(check);
        check();
      }),
  };
}

const isIdleEventOf = (sessionId: string) => (event: SessionEvent) =>
  event.type === 'status.changed' && event.status === 'idle' && event.sessionId === sessionId;

function seqsOf(events: readonly SessionEvent[], sessionId: string): number[] {
  return events.flatMap((event) => ('seq' in event && event.sessionId === sessionId ? [event.seq] : []));
}

const upTo = (count: number) => Array.from({ length: count }, (_, index) => index + 1);

/** The text of a connection up to a piece of it. */
async function readUntil(agent: TestAgent, piece: string, lastEventId?: string): Promise<string> {
  const stop = new AbortController();
  const response = await agent.fetch('/api/sdk/events', {
    headers: {
      authorization: `Bearer ${agent.token}`,
      ...(lastEventId === undefined ? {} : { 'last-event-id': lastEventId }),
    },
    signal: stop.signal,
  });
  let text = '';
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += Buffer.from(chunk).toString();
    if (text.includes(piece)) break;
  }
  stop.abort();
  return text;
}

describe('sessions.followAll', () => {
  test('sends the durable events of every session once and in order', async () => {
    const { client } = await world.start();
    world.gateway.answer(() => says('Done.'));
    await client.sessions.create({ id: 'before' });
    const stop = new AbortController();
    const all = readInBackground(client.sessions.followAll({}, { signal: stop.signal }));
    // Create sessions until the event of one arrives: then the stream is open.
    for (let index = 0; all.events.length === 0; index += 1) {
      await client.sessions.create({ id: `probe-${index}` });
      await new Promise((resolve) => setImmediate(resolve));
    }
    await client.sessions.create({ id: 'a' });
    await Promise.all(
      ['a', 'before'].map((sessionId) => client.sessions.prompt({ sessionId, text: 'Go.' }, wait)),
    );
    await Promise.all([all.until(isIdleEventOf('a')), all.until(isIdleEventOf('before'))]);
    stop.abort();
    await all.end;
    const [session, olderSession] = [
      await client.sessions.get({ sessionId: 'a' }),
      await client.sessions.get({ sessionId: 'before' }),
    ];
    expect(seqsOf(all.events, 'a')).toEqual(upTo(session.headSeq));
    // Its creation was before the stream.
    expect(seqsOf(all.events, 'before')).toEqual(upTo(olderSession.headSeq).slice(1));
    expect(all.events.filter(({ type }) => type.endsWith('.delta'))).toEqual([]);
  });

  test('continues after the last id across a restart of the agent', async () => {
    const firstAgent = await world.start();
    world.gateway.answer(() => says('Done.'));
    await firstAgent.client.sessions.create({ id: 's' });
    const cursor = Date.now();
    await firstAgent.client.sessions.prompt({ sessionId: 's', text: 'One.' }, wait);
    await firstAgent.client.sessions.create({ id: 'late' });
    const { headSeq } = await firstAgent.client.sessions.get({ sessionId: 's' });
    await firstAgent.close();
    const agent = await world.start({ name: firstAgent.name });
    const stop = new AbortController();
    const all = readInBackground(agent.client.sessions.followAll({ after: cursor }, { signal: stop.signal }));
    await Promise.all([
      all.until((event) => event.sessionId === 'late'),
      all.until((event) => 'seq' in event && event.sessionId === 's' && event.seq === headSeq),
    ]);
    stop.abort();
    await all.end;
    // All events from the first one, although the session was created before the cursor: a stream sends those of
    // the ten seconds before its cursor again.
    expect(seqsOf(all.events, 's')).toEqual(upTo(headSeq));
    const text = await readUntil(agent, '"sessionId":"late"', String(cursor));
    expect(text).toMatch(/^retry: 1000\n/);
    expect(text).toMatch(
      /\nid: \d{13}\nevent: session\.created\ndata: \{"type":"session\.created","sessionId":"late"/,
    );
  });

  test('sends no event of another agent', async () => {
    const [agent, otherAgent] = [await world.start(), await world.start()];
    const cursor = Date.now();
    await agent.client.sessions.create({ id: 'mine' });
    await otherAgent.client.sessions.create({ id: 'foreign' });
    const text = await readUntil(agent, '"sessionId":"mine"', String(cursor));
    await agent.client.sessions.create({ id: 'last' });
    expect(text + (await readUntil(agent, '"sessionId":"last"', String(cursor)))).not.toContain('foreign');
  });

  test('refuses a token of another agent', async () => {
    const [agent, otherAgent] = [await world.start(), await world.start()];
    const response = await agent.fetch('/api/sdk/events', {
      headers: { authorization: `Bearer ${otherAgent.token}` },
    });
    expect(response.status).toBe(401);
  });

  test('refuses more than 16 streams', async () => {
    const agent = await world.start();
    const stop = new AbortController();
    const openStream = () =>
      agent.fetch('/api/sdk/events', {
        headers: { authorization: `Bearer ${agent.token}` },
        signal: stop.signal,
      });
    const streams = await Promise.all(Array.from({ length: 16 }, openStream));
    expect(new Set(streams.map(({ status }) => status))).toEqual(new Set([200]));
    const rejection = await openStream();
    expect([rejection.status, await rejection.json()]).toMatchObject([
      429,
      { error: { code: 'rate_limited' } },
    ]);
    stop.abort();
  });

  test('accepts a stream again after one of 16 has closed', async () => {
    const agent = await world.start();
    const [firstStop, stop] = [new AbortController(), new AbortController()];
    const openStream = ({ signal }: AbortController) =>
      agent.fetch('/api/sdk/events', { headers: { authorization: `Bearer ${agent.token}` }, signal });
    await openStream(firstStop);
    for (let count = 1; count < 16; count += 1) await openStream(stop);
    firstStop.abort();
    await expect.poll(async () => (await openStream(stop)).status).toBe(200);
    stop.abort();
  });

  test.runIf(isPostgres)('sends events that other processes write', async () => {
    const firstAgent = await world.start({ name: 'replicas' });
    const secondAgent = await world.start({ name: 'replicas', dataDir: firstAgent.dataDir });
    const cursor = Date.now();
    const stop = new AbortController();
    const all = readInBackground(
      secondAgent.client.sessions.followAll({ after: cursor }, { signal: stop.signal }),
    );
    world.gateway.answer(() => says('From afar.'));
    await firstAgent.client.sessions.create({ id: 's' });
    await firstAgent.client.sessions.prompt({ sessionId: 's', text: 'Go.' }, wait);
    await all.until(isIdleEventOf('s'));
    stop.abort();
    await all.end;
    const { headSeq } = await firstAgent.client.sessions.get({ sessionId: 's' });
    expect(seqsOf(all.events, 's')).toEqual(upTo(headSeq));
  });
});

describe('changedSince', () => {
  test('leaves out the events that a fork has copied from its ancestors', async () => {
    const { client, database, name } = await world.start();
    world.gateway.answer(() => says('Done.'));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'One.' }, wait);
    const { id } = (await client.sessions.fork({ sessionId: 's' })) as { id: string };
    const [row] = await database.sql<{ agent_id: string }[]>`
      select agent_id from agent.tokens_agents where name = ${name}`;
    const agentId = row?.agent_id ?? '';
    const fork = await sessionStore(database).session(agentId, { id });
    if (fork === undefined) throw new Error('There is no fork.');
    await database.tx((tx) => copyAncestors({ tx, appended: [], applied: [] }, fork));
    await database.sql`
      update agent.sessions_events set time = time - interval '1 hour'
      where session_id = ${fork.key} and seq = 1`;
    const query = { agentId, sinceMs: Date.now() - 60_000, afterKey: '', limit: 10 };
    const changedSessions = await allSessionsStore(database).changedSince(query);
    expect(changedSessions.find(({ key }) => key === fork.key)).toMatchObject({ fromSeq: fork.forkSeq });
  });
});

describe('followAll', () => {
  const event = (sessionKey: string, seq: number, json = '{}'): StoredEvent => ({
    sessionKey,
    seq,
    runId: null,
    type: 'session.archived',
    json,
    time: '2026-11-20T09:00:00.000Z',
  });
  const store = (
    changedSessions: Awaited<ReturnType<AllSessionsStore['changedSince']>> = [],
  ): AllSessionsStore => ({
    changedSince: async () => changedSessions,
    find: async ({ sessionKeys }) => sessionKeys.map((key) => ({ key, id: `id-${key}`, fromSeq: 0 })),
  });

  interface OpenOptions {
    store?: AllSessionsStore;
    log?: StoredEvent[];
    afterMs?: number | null;
    pollMs?: number;
  }

  function open(options: OpenOptions = {}) {
    const feed = createLiveFeed();
    const stop = new AbortController();
    const frames = followAll(
      { afterMs: options.afterMs ?? null, signal: stop.signal },
      {
        feed,
        store: options.store ?? store(),
        agentId: 'agent',
        readEvents: async (key, afterSeq) =>
          (options.log ?? []).filter(({ sessionKey, seq }) => sessionKey === key && seq > afterSeq),
        pollMs: options.pollMs ?? null,
        clock: systemClock,
        limits: { heartbeatMs: 60_000, maxReplayEvents: 1_000_000, maxBufferBytes: 64 * 1024 },
      },
    );
    return { feed, frames, stop };
  }

  const textOf = async (frames: AsyncIterator<Uint8Array>) =>
    Buffer.from((await frames.next()).value as Uint8Array).toString();

  test('reads what is missing between two events of a session', async () => {
    const log = [1, 2, 3, 4].map((seq) => event('s', seq));
    const { feed, frames } = open({ log });
    await frames.next();
    feed.publish([event('s', 1)]);
    expect(await textOf(frames)).toContain('"seq":1');
    feed.publish([event('s', 4), event('s', 4)]);
    expect((await textOf(frames)).match(/"seq":\d/g)).toEqual(['"seq":2', '"seq":3', '"seq":4']);
    await frames.return();
  });

  test('reads what another process wrote before the first live event', async () => {
    const log = [1, 2, 3].map((seq) => event('s', seq));
    // The next poll comes after the test.
    const { feed, frames } = open({ log, pollMs: 60_000 });
    await frames.next();
    feed.publish([event('s', 3)]);
    expect((await textOf(frames)).match(/"seq":\d/g)).toEqual(['"seq":1', '"seq":2', '"seq":3']);
    await frames.return();
  });

  test('resets a session with too many new events', async () => {
    // A stream sends at most 1,000 events of a session that its reader has missed.
    const changedSessions = [{ key: 's', id: 'id-s', fromSeq: 1, headSeq: 2_000 }];
    const { frames } = open({ store: store(changedSessions), afterMs: 0 });
    await frames.next();
    const text = await textOf(frames);
    expect(text).toContain('"type":"stream.reset","sessionId":"id-s"');
    expect(text).toContain('"after":1,"headSeq":2000');
    await frames.return();
  });

  test('fails a reader whose buffer is full', async () => {
    const { feed, frames } = open();
    await frames.next();
    for (let seq = 1; seq <= 100; seq += 1) feed.publish([event('s', seq, `{"x":"${'x'.repeat(1024)}"}`)]);
    await expect(frames.next()).rejects.toThrow(/too slow/);
  });
});
