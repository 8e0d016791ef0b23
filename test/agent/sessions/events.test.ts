// The event stream: the conformance script, the change from replay to live events,
// slow readers and old cursors.
import { createConnection } from 'node:net';
import { once } from 'node:events';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import type { SessionEvent } from '@townhall/agent';
import { says } from '../../support/scripted-gateway.ts';
import { checkEventStream } from '../../contract/sse-conformance.ts';
import { follow } from '../../../src/agent/sessions/event-log/follow.ts';
import { createLiveFeed, type OpenPart } from '../../../src/agent/sessions/event-log/live-feed.ts';
import type { StoredEvent } from '../../../src/agent/sessions/event-log/events.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { collect, holdAnswer, openWorld, seqs, type World } from '../../support/session-world.ts';

describe('sessions.follow', () => {
  let world: World;
  beforeAll(async () => {
    world = await openWorld();
  });
  afterEach(() => world.reset());
  afterAll(() => world.close());

  test.each(['current', 'classic'] as const)('passes the conformance script, %s', async (variant) => {
    const agent = await world.start({ variant });
    world.gateway.answer(() => says('A text of several pieces, \u{1f600} and an accent: é.'));
    const findings = await checkEventStream(agent.url, agent.token);
    expect(findings.filter(({ broken }) => broken !== null)).toEqual([]);
    // The script has more than 20 checks.
    expect(findings.length).toBeGreaterThan(20);
  });

  test('gives a late reader the text from its beginning', async () => {
    const { client, sql } = await world.start();
    const answer = holdAnswer();
    world.gateway.answer(() => answer.answer);
    await client.sessions.create({ id: 's' });
    const earlyReader = readInBackground(
      client.sessions.follow({ sessionId: 's' }),
      (event) => event.type === 'run.settled',
    );
    await client.sessions.prompt({ sessionId: 's', text: 'Speak.' });
    await answer.request;
    answer.say('Hello \u{1f600}');
    await earlyReader.shows('Hello \u{1f600}');
    const lateReader = readInBackground(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    await lateReader.shows('Hello \u{1f600}');
    // Durable before the part has ended.
    await expect
      .poll(
        async () =>
          (await sql`select string_agg(piece, '') as text from agent.sessions_checkpoints`)[0]?.['text'],
        { interval: 20 },
      )
      .toBe('Hello \u{1f600}');
    answer.say(' there');
    await Promise.all([
      earlyReader.shows('Hello \u{1f600} there'),
      lateReader.shows('Hello \u{1f600} there'),
    ]);
    answer.end();
    const events = await lateReader.end;
    expect(seqs(events)).toEqual(seqs(events).map((_, index) => index + 1));
    const offsets = [...events, ...(await earlyReader.end)].flatMap((event) =>
      event.type === 'part.delta' && event.delta === ' there' ? [event.offset] : [],
    );
    expect(offsets).toEqual(['Hello \u{1f600}'.length, 'Hello \u{1f600}'.length]);
    expect(await sql`select 1 from agent.sessions_checkpoints`).toHaveLength(0);
  });

  test('resets a cursor that is too far behind', async () => {
    const { client } = await world.start({ settings: { maxReplayEvents: 5 } });
    world.gateway.answer(() => says('Done.'));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'Go.' }, { headers: { prefer: 'wait=20' } });
    const { headSeq } = await client.sessions.get({ sessionId: 's' });
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(events.map(({ type }) => type)).toEqual(['stream.ready', 'stream.reset']);
    expect(events[1]).toMatchObject({ after: 0, headSeq, reason: 'too_old' });
    expect(
      seqs(await collect(client.sessions.follow({ sessionId: 's', until: 'idle', after: headSeq - 2 }))),
    ).toEqual([headSeq - 1, headSeq]);
  });

  test('sends heartbeats to a quiet stream', async () => {
    const agent = await world.start({ settings: { heartbeatMs: 1_000 } });
    await agent.client.sessions.create({ id: 's' });
    const stop = new AbortController();
    const response = await agent.fetch('/api/sdk/sessions/s/events', {
      headers: { authorization: `Bearer ${agent.token}` },
      signal: stop.signal,
    });
    let text = '';
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      text += Buffer.from(chunk).toString();
      if (text.includes(': hb\n\n')) break;
    }
    stop.abort();
    expect(text).toContain(': hb\n\n');
  });

  test('cuts the stream when the agent stops', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's' });
    const { hostname, port } = new URL(agent.url);
    const socket = createConnection(Number(port), hostname);
    const headers = `Host: ${hostname}:${port}\r\nAuthorization: Bearer ${agent.token}`;
    socket.write(`GET /api/sdk/sessions/s/events HTTP/1.1\r\n${headers}\r\n\r\n`);
    let receivedText = '';
    socket.on('data', (chunk) => (receivedText += chunk.toString('utf8')));
    await expect.poll(() => receivedText).toContain('stream.ready');
    // The cut may arrive as a reset of the connection.
    socket.on('error', () => {});
    const close = once(socket, 'close');
    await agent.close();
    await close;
    // The last chunk of a whole answer is empty; this one was cut.
    expect(receivedText.endsWith('0\r\n\r\n')).toBe(false);
  });

  // The embedded engine has one process.
  const isPostgres = inject('databaseSource')?.engine === 'postgres';

  test.runIf(isPostgres)('sends events that other processes write', async () => {
    const firstAgent = await world.start({ name: 'replica' });
    const secondAgent = await world.start({ name: 'replica', dataDir: firstAgent.dataDir });
    const answer = holdAnswer();
    world.gateway.answer(() => answer.answer);
    await firstAgent.client.sessions.create({ id: 's' });
    const receivedEvents = collect(
      secondAgent.client.sessions.follow({ sessionId: 's', after: 1 }),
      (event) => event.type === 'run.settled',
    );
    await firstAgent.client.sessions.prompt({ sessionId: 's', text: 'Speak.' });
    await answer.request;
    answer.say('From afar');
    await collect(
      secondAgent.client.sessions.follow({ sessionId: 's' }),
      (event) => event.type === 'part.delta' || event.type === 'part.snapshot',
    );
    answer.end();
    const events = await receivedEvents;
    expect(seqs(events)).toEqual(seqs(events).map((_, index) => index + 2));
    // The last event has the complete text. Before it, the text arrives as far as each poll has read it.
    expect(events.find((event) => event.type === 'part.ended')).toMatchObject({ text: 'From afar' });
  });
});

describe('follow', () => {
  const storedEvent = (seq: number): StoredEvent => ({
    sessionKey: 's',
    seq,
    runId: null,
    type: 'run.step.started',
    json: `{"step": ${seq}}`,
    time: '2026-11-20T09:00:00.000Z',
  });
  const limits = { heartbeatMs: 60_000, maxReplayEvents: 1_000_000, maxBufferBytes: 64 * 1024 };

  function openFollow(log: StoredEvent[], feed = createLiveFeed(), after = 0) {
    const stop = new AbortController();
    const session = {
      key: 's',
      id: 's',
      headSeq: log.length,
      status: 'running' as const,
      activeRunId: null,
      queueLength: 0,
    };
    const readEvents = async (fromSeq: number, limit: number) => {
      await new Promise((resolve) => setImmediate(resolve));
      return log.filter(({ seq }) => seq > fromSeq).slice(0, limit);
    };
    return {
      feed,
      frames: follow(
        { after, untilIdle: false, format: 'ndjson', signal: stop.signal },
        { feed, session, readHeadSeq: async () => log.length, readEvents, clock: systemClock, limits },
      ),
    };
  }

  test('sends every event once under any interleaving', async () => {
    for (let seed = 1; seed <= 30; seed += 1) {
      // The generator MINSTD.
      let state = seed;
      const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
      const log: StoredEvent[] = Array.from({ length: Math.floor(random() * 20) }, (_, index) =>
        storedEvent(index + 1),
      );
      const { feed, frames } = openFollow(log);
      const receivedSeqs: number[] = [];
      const readPromise = (async () => {
        for await (const bytes of frames) {
          for (const line of Buffer.from(bytes).toString().split('\n'))
            if (line !== '') receivedSeqs.push(...[(JSON.parse(line) as { seq?: number }).seq ?? []].flat());
          if (random() < 0.3) await new Promise((resolve) => setImmediate(resolve));
          if (receivedSeqs.length >= 200) break;
        }
      })();
      while (log.length < 200) {
        const next = storedEvent(log.length + 1);
        log.push(next);
        const kind = random();
        // This process publishes the event, another one announces it, or it stays unnoticed until
        // the next event.
        if (kind < 0.7 || log.length === 200) feed.publish([next]);
        else if (kind < 0.85) feed.announceHead('s', next.seq);
        if (random() < 0.4) await new Promise((resolve) => setImmediate(resolve));
      }
      await readPromise;
      expect(receivedSeqs, `seed ${seed}`).toEqual(log.map(({ seq }) => seq));
    }
  });

  /** The seqs that are sent up to the second event. */
  async function readUpToSecond(frames: AsyncIterable<Uint8Array>, onFirst = () => {}): Promise<string[]> {
    let text = '';
    for await (const bytes of frames) {
      text += Buffer.from(bytes).toString();
      if (text.includes('"seq":2')) break;
      if (text.includes('"seq":1')) setImmediate(onFirst);
    }
    return text.match(/"seq":\d+/g) ?? [];
  }

  test('sends events from between the lookup and the subscription', async () => {
    const log = [storedEvent(1)];
    const { feed, frames } = openFollow(log, createLiveFeed(), 1);
    log.push(storedEvent(2));
    feed.publish([storedEvent(2)]);
    expect(await readUpToSecond(frames)).toEqual(['"seq":2']);
  });

  test('reads an event that another process has announced', async () => {
    const log = [storedEvent(1)];
    const { feed, frames } = openFollow(log);
    const lines = readUpToSecond(frames, () => {
      log.push(storedEvent(2));
      feed.announceHead('s', 2);
    });
    expect(await lines).toEqual(['"seq":1', '"seq":2']);
  });

  test('fails a reader whose buffer is full', async () => {
    const { feed, frames } = openFollow([]);
    await frames.next();
    const part: OpenPart = {
      runId: 'r',
      messageId: 'm',
      partId: 'p',
      partType: 'text',
      startedSeq: 0,
      text: '',
    };
    feed.openPart('s', part);
    const nextFrame = frames.next();
    feed.addText('s', 'p', 'first', '2026-11-20T09:00:00.000Z');
    expect(Buffer.from((await nextFrame).value as Uint8Array).toString()).toContain('"delta":"first"');
    for (let index = 0; index < 200; index += 1)
      feed.addText('s', 'p', 'x'.repeat(1024), '2026-11-20T09:00:00.000Z');
    await expect(frames.next()).rejects.toThrow(/too slow/);
    expect(feed.subscribedSessions()).toEqual([]);
  });
});

/** Reads in the background; `shows` resolves once the received text is this one. */
function readInBackground(
  events: AsyncIterable<SessionEvent>,
  last?: (event: SessionEvent) => boolean,
): { end: Promise<SessionEvent[]>; shows(text: string): Promise<void> } {
  const receivedEvents: SessionEvent[] = [];
  let check = (): void => {};
  return {
    end: collect(events, (event) => {
      receivedEvents.push(event);
      check();
      return last?.(event) ?? false;
    }),
    shows: (text) =>
      new Promise((resolve) => {
        check = () => {
          if (textOf(receivedEvents) === text) resolve();
        };
        check();
      }),
  };
}

function textOf(events: readonly SessionEvent[]): string {
  let text = '';
  for (const event of events) {
    if (event.type === 'part.snapshot') text = event.text;
    if (event.type === 'part.delta') text = text.slice(0, event.offset) + event.delta;
  }
  return text;
}
