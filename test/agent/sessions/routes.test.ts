// The routes of sessions through the typed client: records, prompts, queue, forks, cancellation and refusals.
import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { AgentClient, Session } from '@townhall/agent';
import { eventStore } from '../../../src/agent/sessions/event-log/store.ts';
import { calls, says } from '../../support/scripted-gateway.ts';
import { collect, holdAnswer, openWorld, rawGet, seqs, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

const wait = { headers: { prefer: 'wait=20' } };

/** Resolves once the model's text has reached the session `s`. */
async function waitForText(client: AgentClient): Promise<void> {
  await collect(
    client.sessions.follow({ sessionId: 's' }),
    (event) => event.type === 'part.delta' || (event.type === 'part.snapshot' && event.text !== ''),
  );
}

type ForkInput = Parameters<AgentClient['sessions']['fork']>[0];

async function forkOf(client: AgentClient, input: ForkInput): Promise<Session> {
  const fork = await client.sessions.fork(input);
  if ('dryRun' in fork) throw new Error('No fork was made.');
  return fork;
}

describe('sessions.create', () => {
  test('creates a session', async () => {
    const { client } = await world.start();
    expect(await client.sessions.create({ id: 'first', title: 'One', metadata: { a: 1 } })).toMatchObject({
      id: 'first',
      kind: 'sdk',
      title: 'One',
      metadata: { a: 1 },
      status: 'idle',
      headSeq: 1,
      messageCount: 0,
      forkedFrom: null,
    });
  });

  test('refuses a second session with the same id unless the call accepts it', async () => {
    const { client } = await world.start();
    await client.sessions.create({ id: 'first', title: 'One' });
    await expect(client.sessions.create({ id: 'first' })).rejects.toMatchObject({
      status: 409,
      code: 'session_exists',
    });
    expect(await client.sessions.create({ id: 'first', ifExists: 'return' })).toMatchObject({ title: 'One' });
  });

  test('keeps sessions with the same id apart by agent', async () => {
    const [firstAgent, secondAgent] = [await world.start(), await world.start()];
    await firstAgent.client.sessions.create({ id: 'shared', title: 'Mine' });
    await expect(secondAgent.client.sessions.get({ sessionId: 'shared' })).rejects.toMatchObject({
      status: 404,
    });
    expect(await secondAgent.client.sessions.create({ id: 'shared' })).toMatchObject({ title: null });
    expect(await firstAgent.client.sessions.get({ sessionId: 'shared' })).toMatchObject({ title: 'Mine' });
  });
});

describe('sessions.update', () => {
  test('updates the named members only', async () => {
    const { client } = await world.start();
    await client.sessions.create({ id: 's', title: 'One', metadata: { a: 1 } });
    expect(await client.sessions.update({ sessionId: 's', title: 'Two' })).toMatchObject({
      title: 'Two',
      metadata: { a: 1 },
    });
  });

  test('archives a session, which then refuses inputs', async () => {
    const { client } = await world.start();
    await client.sessions.create({ id: 's' });
    expect(await client.sessions.update({ sessionId: 's', archived: true })).toMatchObject({
      archivedAt: expect.any(String),
    });
    await expect(client.sessions.prompt({ sessionId: 's', text: 'Hello?' })).rejects.toMatchObject({
      status: 409,
      code: 'session_archived',
    });
  });
});

describe('sessions.list', () => {
  test('pages through a list', async () => {
    const { client } = await world.start();
    const sessions = [];
    for (const title of ['One', 'Two', 'Three']) sessions.push(await client.sessions.create({ title }));
    const page = await client.sessions.list({ limit: 2 });
    const lastPage = await client.sessions.list({ limit: 2, cursor: page.nextCursor as string });
    expect([page.items.length, lastPage.items.length, lastPage.nextCursor]).toEqual([2, 1, null]);
    const ids = [...page.items, ...lastPage.items].map(({ id }) => id);
    expect(ids.toSorted()).toEqual(sessions.map(({ id }) => id).toSorted());
  });

  test.each(['2026-02-31T00:00:00.000Z', '0000-01-01T00:00:00.000Z', '1'])(
    'refuses a cursor with the time %s',
    async (time) => {
      const { client } = await world.start();
      await client.sessions.create({ id: 's' });
      const cursor = Buffer.from(JSON.stringify([time, 'x'])).toString('base64url');
      const refusal = { status: 400, param: 'cursor' };
      await expect(client.sessions.list({ cursor })).rejects.toMatchObject(refusal);
      await expect(client.sessions.listQueue({ sessionId: 's', cursor })).rejects.toMatchObject(refusal);
    },
  );

  test('lists archived sessions separately', async () => {
    const { client } = await world.start();
    await client.sessions.create({ id: 'archived' });
    await client.sessions.create({ id: 'current' });
    await client.sessions.update({ sessionId: 'archived', archived: true });
    const ids = async (archived: boolean) =>
      (await client.sessions.list({ archived })).items.map(({ id }) => id);
    expect([await ids(true), await ids(false)]).toEqual([['archived'], ['current']]);
  });
});

describe('a session in a path', () => {
  test.each(['.', '..', '%2e', '%2e%2e', '..%2f..', 'a'.repeat(129), '%00', 'a%20b'])(
    'is refused with the id %s',
    async (id) => {
      const agent = await world.start();
      expect(await rawGet(agent, `/api/sdk/sessions/${id}/messages`)).toBe(400);
      expect(await rawGet(agent, `/api/sdk/sessions/${id}`)).toBe(400);
    },
  );

  test.each(['', '/messages', '/events'])('is 404 with an unknown id%s', async (path) => {
    const agent = await world.start();
    expect(await rawGet(agent, `/api/sdk/sessions/unknown${path}`)).toBe(404);
  });
});

describe('a list with large contents', () => {
  describe('of messages', () => {
    // The last text compresses to a hundredth of its length.
    const random = () => randomBytes(1_000_000).toString('hex');
    const texts = [random(), random(), random(), 'a'.repeat(2_000_000)];

    async function createLargeSession() {
      const agent = await world.start();
      const firstAnswer = holdAnswer();
      world.gateway.answer(() => firstAnswer.answer);
      await agent.client.sessions.create({ id: 's' });
      await agent.client.sessions.prompt({ sessionId: 's', text: 'Begin.' });
      await firstAnswer.request;
      for (const text of texts) await agent.client.sessions.prompt({ sessionId: 's', text });
      const [row] = await agent.sql<{ session_id: string }[]>`
        select session_id from agent.sessions_sessions join agent.tokens_agents using (agent_id)
        where public_id = 's' and name = ${agent.name}`;
      return { ...agent, sessionKey: row?.session_id ?? '' };
    }

    test('ends its pages early', async () => {
      const { client } = await createLargeSession();
      const pages: number[][] = [];
      for (let cursor: string | null | undefined; cursor !== null;) {
        const { items, nextCursor } = await client.sessions.listMessages({
          sessionId: 's',
          limit: 500,
          ...(cursor === undefined ? {} : { cursor }),
        });
        pages.push(items.map(({ parts }) => (parts[0] as { text: string }).text.length));
        cursor = nextCursor;
      }
      // A page ends with the message that exceeds 4 MiB; the first message is `Begin.`.
      expect(pages).toEqual([[6, 2_000_000, 2_000_000, 2_000_000], [2_000_000]]);
    });

    test('is read in pages of at most 6 MiB and one event', async () => {
      const { client, sql, sessionKey } = await createLargeSession();
      const { headSeq } = await client.sessions.get({ sessionId: 's' });
      const readSeqs: number[] = [];
      for (let afterSeq = 0; afterSeq < headSeq;) {
        // The limit of 1 MiB counts compressed bytes, which is at most six times less than the text.
        const part = await eventStore({ sql }).read([{ sessionKey, upTo: headSeq }], afterSeq, 1_000);
        const bytes = part.slice(0, -1).reduce((sum, { json }) => sum + json.length, 0);
        expect(bytes).toBeLessThan(6 * 2 ** 20);
        readSeqs.push(...part.map(({ seq }) => seq));
        afterSeq = part.at(-1)?.seq ?? Number.NaN;
      }
      expect(readSeqs).toEqual(Array.from({ length: headSeq }, (_, index) => index + 1));
    });

    test('is streamed with all events', async () => {
      const { client } = await createLargeSession();
      const { headSeq } = await client.sessions.get({ sessionId: 's' });
      const events = await collect(
        client.sessions.follow({ sessionId: 's' }),
        (event) => 'seq' in event && event.seq === headSeq,
      );
      expect(seqs(events)).toEqual(Array.from({ length: headSeq }, (_, index) => index + 1));
    });
  });

  test('ends pages of approvals early', async () => {
    const { client, sql, name } = await world.start();
    await client.sessions.create({ id: 's' });
    const ids = ['apr_1', 'apr_2', 'apr_3', 'apr_4'];
    for (const id of ids) {
      const input = JSON.stringify({ content: randomBytes(300_000).toString('hex') });
      await sql`
        insert into agent.sessions_approvals
          (approval_id, session_id, run_id, tool_call_id, tool_name, input, status)
        select ${id}, session_id, 'run_x', 'call_x', 'files_write', ${input}::text::jsonb, 'denied'
        from agent.sessions_sessions join agent.tokens_agents using (agent_id)
        where public_id = 's' and name = ${name}`;
    }
    const list = (options: { limit: number; cursor?: string }) =>
      client.sessions.listApprovals({ sessionId: 's', ...options });
    const page = await list({ limit: 4 });
    const nextPage = await list({ limit: 4, cursor: page.nextCursor as string });
    expect([...page.items, ...nextPage.items].map(({ approvalId }) => approvalId)).toEqual(ids);
    expect([page.items.length < 4, nextPage.nextCursor]).toEqual([true, null]);
    expect(await list({ limit: 1 })).toMatchObject({
      items: [{ approvalId: 'apr_1' }],
      nextCursor: expect.any(String),
    });
  });
});

describe('sessions.listMessages', () => {
  test('lists the newest messages first across the ancestors of a fork', async () => {
    const { client } = await world.start();
    world.gateway.answer((_, index) => says(`Answer ${index}.`));
    await client.sessions.create({ id: 's' });
    for (let turn = 0; turn < 3; turn += 1)
      await client.sessions.prompt({ sessionId: 's', text: 'Go.' }, wait);
    const { id } = (await client.sessions.fork({ sessionId: 's' })) as { id: string };
    await client.sessions.prompt({ sessionId: id, text: 'Go.' }, wait);
    const { items } = await client.sessions.listMessages({ sessionId: id });
    const ids: string[] = [];
    for (let cursor: string | null | undefined; cursor !== null;) {
      const page = await client.sessions.listMessages({
        sessionId: id,
        order: 'desc',
        limit: 3,
        ...(cursor === undefined ? {} : { cursor }),
      });
      ids.push(...page.items.map((message) => message.id));
      cursor = page.nextCursor;
    }
    expect(items).toHaveLength(8);
    expect(ids).toEqual(items.map((message) => message.id).reverse());
  });
});

describe('sessions.prompt', () => {
  test('accepts a prompt once by its id', async () => {
    const { client } = await world.start();
    world.gateway.answer(() => says('Sunny.'));
    await client.sessions.create({ id: 's' });
    const firstReceipt = await client.sessions.prompt({ sessionId: 's', id: 'p', text: 'Weather?' });
    expect(firstReceipt).toMatchObject({
      sessionId: 's',
      messageId: 'p',
      status: 'running',
      queued: false,
      queuePosition: 0,
    });
    await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(await client.sessions.prompt({ sessionId: 's', id: 'p', text: 'Weather?' })).toEqual(firstReceipt);
    expect(world.gateway.requests).toHaveLength(1);
  });

  test('refuses another text under the id of a prompt', async () => {
    const { client } = await world.start();
    world.gateway.answer(() => says('Sunny.'));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', id: 'p', text: 'Weather?' }, wait);
    await expect(client.sessions.prompt({ sessionId: 's', id: 'p', text: 'Other?' })).rejects.toMatchObject({
      status: 409,
      code: 'prompt_conflict',
    });
  });

  test('returns the run when the caller waits', async () => {
    const { client } = await world.start();
    world.gateway.answer(() => says('Sunny.'));
    await client.sessions.create({ id: 's' });
    expect(await client.sessions.prompt({ sessionId: 's', text: 'Weather?' }, wait)).toMatchObject({
      status: 'completed',
      run: { status: 'completed', text: 'Sunny.', usage: { inputTokens: 10 } },
    });
  });

  test('continues the conversation of the session', async () => {
    const { client } = await world.start();
    world.gateway.answer(() => says('Sunny.'));
    await client.sessions.create({ id: 's' });
    for (const text of ['Weather?', 'And now?']) await client.sessions.prompt({ sessionId: 's', text }, wait);
    expect(JSON.stringify(world.gateway.requests[1]?.prompt)).toMatch(/Weather\?.*Sunny\..*And now\?/);
    const { items, seq } = await client.sessions.listMessages({ sessionId: 's' });
    expect(items.map(({ role, metadata }) => [role, typeof metadata?.['seq']])).toEqual([
      ['user', 'number'],
      ['assistant', 'number'],
      ['user', 'number'],
      ['assistant', 'number'],
    ]);
    expect(await client.sessions.get({ sessionId: 's' })).toMatchObject({
      messageCount: 4,
      headSeq: seq,
      title: 'Weather?',
      usage: { inputTokens: 20, outputTokens: 6 },
    });
  });

  test('cuts titles and previews between characters', async () => {
    const { client } = await world.start();
    const answer = holdAnswer();
    world.gateway.answer(() => answer.answer);
    await client.sessions.create({ id: 's' });
    // The 79 code units of a title and the 200 of a preview end within a surrogate pair.
    const smileys = '\u{1f600}'.repeat(300);
    await client.sessions.prompt({ sessionId: 's', text: smileys });
    await client.sessions.prompt({ sessionId: 's', text: `a${smileys}` });
    expect((await client.sessions.get({ sessionId: 's' })).title).toBe(`${'\u{1f600}'.repeat(39)}…`);
    const { items } = await client.sessions.listQueue({ sessionId: 's' });
    expect(items[0]?.text).toBe(`a${'\u{1f600}'.repeat(99)}`);
    answer.end();
  });

  test.each([
    {},
    { text: '' },
    { text: 'a', parts: [{ type: 'text', text: 'b' }] },
    { text: 'a', id: '../b' },
    { parts: [{ type: 'file', mediaType: 'image/png', url: 'http://127.0.0.1/x' }] },
    { parts: [{ type: 'file', mediaType: '', url: 'data:image/png;base64,AAAA' }] },
    { text: 'a', delivery: 'now' },
  ])('refuses %j', async (body) => {
    const { client, fetch, token } = await world.start();
    await client.sessions.create({ id: 's' });
    const response = await fetch('/api/sdk/sessions/s/prompt', {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    expect(response.status).toBe(400);
    expect((await client.sessions.get({ sessionId: 's' })).headSeq).toBe(1);
  });

  const fileAt = (url: string) => [
    { type: 'text' as const, text: 'Look.' },
    { type: 'file' as const, mediaType: 'image/png', filename: 'dot.png', url },
  ];

  test.each(['data:image/png;base64,AAAA', 'data:;base64,AAAA', 'data:image/png;charset=x;base64,AA=='])(
    'sends the file of %s to the model',
    async (url) => {
      const { client } = await world.start();
      world.gateway.answer(() => says('Seen.'));
      await client.sessions.create({ id: 's' });
      await client.sessions.prompt({ sessionId: 's', parts: fileAt(url) }, wait);
      expect(world.gateway.requests[0]?.prompt.at(-1)?.content).toEqual([
        { type: 'text', text: 'Look.' },
        expect.objectContaining({ type: 'file', mediaType: 'image/png', filename: 'dot.png' }),
      ]);
    },
  );

  test.each([
    'data:nonsense',
    'data:image/png;base64,a*b=',
    'data:image/png;base64,AAA',
    'data:image/png,AAAA',
    'data:',
    'data:image/png;base64',
  ])('refuses the file of %s', async (url) => {
    const { client } = await world.start();
    await client.sessions.create({ id: 's' });
    await expect(client.sessions.prompt({ sessionId: 's', parts: fileAt(url) })).rejects.toMatchObject({
      status: 400,
      param: 'parts[1].url',
    });
  });
});

describe('the queue of a session', () => {
  test('runs the listed queue in order', async () => {
    const { client } = await world.start();
    const firstAnswer = holdAnswer();
    world.gateway.answer((_, index) => (index === 0 ? firstAnswer.answer : says(`Answer ${index}.`)));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'zero' });
    await firstAnswer.request;
    const waitingRuns = [];
    for (const text of ['one', 'two', 'three'])
      waitingRuns.push(await client.sessions.prompt({ sessionId: 's', text }));
    expect(waitingRuns.map(({ queued, queuePosition }) => [queued, queuePosition])).toEqual([
      [true, 1],
      [true, 2],
      [true, 3],
    ]);
    expect(await client.sessions.get({ sessionId: 's' })).toMatchObject({
      status: 'running',
      queueLength: 3,
    });
    await client.sessions.removeQueueItem({
      sessionId: 's',
      queueItemId: waitingRuns[1]?.queueItemId as string,
    });
    const queue = await client.sessions.listQueue({ sessionId: 's' });
    expect(queue.items.map(({ text, queuePosition }) => [text, queuePosition])).toEqual([
      ['one', 1],
      ['three', 2],
    ]);
    firstAnswer.say('Slow.');
    firstAnswer.end();
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(seqs(events)).toEqual(seqs(events).map((_, index) => index + 1));
    const outcomes = events.flatMap((event) => (event.type === 'run.settled' ? [event.outcome] : []));
    expect(outcomes).toEqual(['cancelled', 'completed', 'completed', 'completed']);
    expect(
      await client.sessions.getRun({ sessionId: 's', runId: waitingRuns[1]?.runId as string }),
    ).toMatchObject({ status: 'cancelled', queuePosition: null });
    await expect(
      client.sessions.removeQueueItem({ sessionId: 's', queueItemId: waitingRuns[0]?.queueItemId as string }),
    ).rejects.toMatchObject({ status: 409, code: 'run_started' });
    const inputs = world.gateway.requests.map(({ prompt }) => JSON.stringify(prompt.at(-1)?.content));
    expect(inputs.map((text) => /zero|one|two|three/.exec(text)?.[0])).toEqual(['zero', 'one', 'three']);
  });

  test('refuses an input that may not wait', async () => {
    const { client } = await world.start();
    const answer = holdAnswer();
    world.gateway.answer(() => answer.answer);
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'zero' });
    await expect(
      client.sessions.prompt({ sessionId: 's', text: 'one', delivery: 'reject' }),
    ).rejects.toMatchObject({ status: 409, code: 'session_busy' });
  });

  test('pages through a queue whose urgent input came last', async () => {
    const { client, sql } = await world.start();
    const answer = holdAnswer();
    world.gateway.answer(() => answer.answer);
    await client.sessions.create({ id: 's' });
    for (const text of ['running', 'one', 'two', 'urgent'])
      await client.sessions.prompt({ sessionId: 's', text });
    await sql`update agent.sessions_runs set is_urgent = true where preview = 'urgent'`;
    const texts: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await client.sessions.listQueue({
        sessionId: 's',
        limit: 1,
        ...(cursor ? { cursor } : {}),
      });
      texts.push(...page.items.map(({ text }) => text));
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
    expect(texts).toEqual(['urgent', 'one', 'two']);
    answer.end();
  });

  test('runs an interrupting input next', async () => {
    const { client } = await world.start();
    const firstAnswer = holdAnswer();
    world.gateway.answer((_, index) => (index === 0 ? firstAnswer.answer : says('Done.')));
    await client.sessions.create({ id: 's' });
    const slowRun = await client.sessions.prompt({ sessionId: 's', text: 'slow' });
    await firstAnswer.request;
    await client.sessions.prompt({ sessionId: 's', text: 'patient' });
    expect(
      await client.sessions.prompt({ sessionId: 's', text: 'urgent', delivery: 'interrupt' }),
    ).toMatchObject({ queuePosition: 1 });
    await firstAnswer.disconnection;
    await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(await client.sessions.getRun({ sessionId: 's', runId: slowRun.runId })).toMatchObject({
      status: 'cancelled',
      error: { code: 'run_cancelled' },
    });
    expect(
      world.gateway.requests.map(
        ({ prompt }) => /slow|patient|urgent/.exec(JSON.stringify(prompt.at(-1)))?.[0],
      ),
    ).toEqual(['slow', 'urgent', 'patient']);
  });
});

describe('a steer', () => {
  test('reaches the model with the next step', async () => {
    const { client } = await world.start();
    const firstAnswer = holdAnswer();
    world.gateway.answer((_, index) => (index === 0 ? firstAnswer.answer : says('Steered.')));
    await client.sessions.create({ id: 's' });
    const run = await client.sessions.prompt({ sessionId: 's', text: 'Go on.' });
    await firstAnswer.request;
    firstAnswer.say('On my way');
    const steer = await client.sessions.prompt({ sessionId: 's', text: 'Turn left!', delivery: 'steer' });
    expect(steer).toMatchObject({ queued: true });
    firstAnswer.end();
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(events.find((event) => event.type === 'queue.removed')).toMatchObject({
      reason: 'steered',
      runId: steer.runId,
    });
    expect(events.filter((event) => event.type === 'run.started')).toHaveLength(1);
    for (const { runId } of [run, steer])
      expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({ status: 'completed' });
    expect(JSON.stringify(world.gateway.requests[1]?.prompt)).toMatch(/Go on\..*On my way.*Turn left!/);
    const { items } = await client.sessions.listMessages({ sessionId: 's' });
    expect(items.map(({ role }) => role)).toEqual(['user', 'user', 'assistant', 'assistant']);
  });

  test('updates queue positions and message counts', async () => {
    const { client } = await world.start();
    const firstAnswer = holdAnswer();
    world.gateway.answer((_, index) => (index === 0 ? firstAnswer.answer : says('Done.')));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'Go on.' });
    await firstAnswer.request;
    await client.sessions.prompt({ sessionId: 's', text: 'Turn left!', delivery: 'steer' });
    const waitingInput = await client.sessions.prompt({ sessionId: 's', text: 'And then?' });
    expect(waitingInput).toMatchObject({ queuePosition: 2 });
    firstAnswer.end();
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    const steeredIndex = events.findIndex(
      (event) => event.type === 'queue.removed' && event.reason === 'steered',
    );
    expect(events[steeredIndex + 1]).toMatchObject({
      type: 'queue.updated',
      items: [{ runId: waitingInput.runId, queuePosition: 1 }],
      queueLength: 1,
    });
    let messageCount = 0;
    for (const event of events) {
      if (event.type === 'message.created') messageCount += 1;
      if ('seq' in event)
        expect(
          await client.sessions.fork({ sessionId: 's', seq: event.seq, dryRun: true }),
          `seq ${event.seq}`,
        ).toMatchObject({ messageCount });
    }
  });

  test('cancels its run when it is cancelled', async () => {
    const { client } = await world.start();
    const [firstAnswer, secondAnswer] = [holdAnswer(), holdAnswer()];
    world.gateway.answer((_, index) => (index === 0 ? firstAnswer.answer : secondAnswer.answer));
    await client.sessions.create({ id: 's' });
    const run = await client.sessions.prompt({ sessionId: 's', text: 'Go on.' });
    await firstAnswer.request;
    const steer = await client.sessions.prompt({ sessionId: 's', text: 'Turn left!', delivery: 'steer' });
    firstAnswer.end();
    await secondAnswer.request;
    await expect(
      client.sessions.removeQueueItem({ sessionId: 's', queueItemId: steer.queueItemId as string }),
    ).rejects.toMatchObject({ status: 409, code: 'run_started' });
    const { cancelled: cancelledIds } = await client.sessions.cancel({ sessionId: 's', runId: steer.runId });
    expect(cancelledIds.toSorted()).toEqual([run.runId, steer.runId].toSorted());
    for (const { runId } of [run, steer])
      expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({ status: 'cancelled' });
  });
});

describe('sessions.cancel', () => {
  test('keeps the text of the run', async () => {
    const { client } = await world.start();
    const firstAnswer = holdAnswer();
    world.gateway.answer((_, index) => (index === 0 ? firstAnswer.answer : says('Again.')));
    await client.sessions.create({ id: 's' });
    const run = await client.sessions.prompt({ sessionId: 's', text: 'Go on.' });
    await firstAnswer.request;
    firstAnswer.say('Half of it');
    await waitForText(client);
    expect(await client.sessions.cancel({ sessionId: 's' })).toEqual({
      sessionId: 's',
      cancelled: [run.runId],
    });
    await firstAnswer.disconnection;
    expect(await client.sessions.cancel({ sessionId: 's' })).toEqual({ sessionId: 's', cancelled: [] });
    expect(await client.sessions.getRun({ sessionId: 's', runId: run.runId })).toMatchObject({
      status: 'cancelled',
      text: 'Half of it',
    });
    expect(await client.sessions.prompt({ sessionId: 's', text: 'And now?' }, wait)).toMatchObject({
      run: { text: 'Again.' },
    });
  });

  test('refuses an unknown run', async () => {
    const { client } = await world.start();
    await client.sessions.create({ id: 's' });
    await expect(client.sessions.cancel({ sessionId: 's', runId: 'run_unknown' })).rejects.toMatchObject({
      status: 404,
      code: 'run_not_found',
    });
  });
});

describe('sessions.fork', () => {
  /** A session with the questions `a` and `b` and their answers. */
  async function startConversation(): Promise<AgentClient> {
    const { client } = await world.start();
    world.gateway.answer((_, index) => says(`Answer ${index}.`));
    await client.sessions.create({ id: 's' });
    for (const id of ['a', 'b'])
      await client.sessions.prompt({ sessionId: 's', id, text: `Question ${id}` }, wait);
    return client;
  }

  test('continues the conversation before a message', async () => {
    const client = await startConversation();
    const parent = await client.sessions.get({ sessionId: 's' });
    const fork = await forkOf(client, {
      sessionId: 's',
      messageId: 'b',
      position: 'before',
      title: 'What if',
    });
    expect(fork).toMatchObject({
      parentSessionId: 's',
      title: 'What if',
      messageCount: 2,
      forkedFrom: { sessionId: 's', messageId: 'b' },
    });
    await client.sessions.prompt({ sessionId: fork.id, text: 'Otherwise' }, wait);
    const prompt = JSON.stringify(world.gateway.requests.at(-1)?.prompt);
    expect(prompt).toMatch(/Question a.*Answer 0.*Otherwise/);
    expect(prompt).not.toContain('Question b');
    const events = await collect(client.sessions.follow({ sessionId: fork.id, until: 'idle' }));
    expect(seqs(events)).toEqual(seqs(events).map((_, index) => index + 1));
    expect(new Set(events.map(({ sessionId }) => sessionId))).toEqual(new Set([fork.id]));
    expect(await client.sessions.get({ sessionId: 's' })).toMatchObject({ headSeq: parent.headSeq });
  });

  test('creates no session in a dry run', async () => {
    const client = await startConversation();
    expect(
      await client.sessions.fork({ sessionId: 's', messageId: 'b', position: 'before', dryRun: true }),
    ).toMatchObject({ dryRun: true, messageCount: 2, openRunId: null });
    expect((await client.sessions.list()).items).toHaveLength(1);
  });

  test('keeps its messages when its parent is removed', async () => {
    const client = await startConversation();
    const fork = await forkOf(client, { sessionId: 's' });
    await client.sessions.remove({ sessionId: 's' });
    expect((await client.sessions.listMessages({ sessionId: fork.id })).items).toHaveLength(4);
  });

  test.each([
    ['a seq beyond the head', { seq: 10_000 }, { status: 400 }],
    ['an unknown message', { messageId: 'nothing' }, { status: 404, code: 'message_not_found' }],
    ['a position without a message', { seq: 3, position: 'before' }, { status: 400, param: 'position' }],
    ['a message and a seq', { seq: 3, messageId: 'b' }, { status: 400, param: 'seq' }],
  ])('refuses a fork at %s', async (_point, point, problem) => {
    const { client } = await world.start();
    await client.sessions.create({ id: 's' });
    const fork = client.sessions.fork({ sessionId: 's', ...point } as never);
    await expect(fork).rejects.toMatchObject(problem);
  });

  test('ends the open message in a fork while the run continues', async () => {
    const { client } = await world.start();
    const firstAnswer = holdAnswer();
    world.gateway.answer((_, index) => (index === 0 ? firstAnswer.answer : says('Elsewhere.')));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'Tell me.' });
    await firstAnswer.request;
    firstAnswer.say('Once upon');
    await waitForText(client);
    const fork = await forkOf(client, { sessionId: 's' });
    expect(fork).toMatchObject({ status: 'idle', queueLength: 0 });
    const { items } = await client.sessions.listMessages({ sessionId: fork.id });
    expect(items.at(-1)).toMatchObject({
      role: 'assistant',
      metadata: { status: 'interrupted' },
      parts: [{ type: 'step-start' }, { type: 'text', text: 'Once upon' }],
    });
    await client.sessions.prompt({ sessionId: fork.id, text: 'Otherwise' }, wait);
    firstAnswer.say(' a time.');
    firstAnswer.end();
    await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect((await client.sessions.listMessages({ sessionId: 's' })).items.at(-1)).toMatchObject({
      parts: [{ type: 'step-start' }, { text: 'Once upon a time.' }],
    });
  });

  test('gives each fork the text that is written so far', async () => {
    const { client } = await world.start();
    const firstAnswer = holdAnswer();
    world.gateway.answer(() => firstAnswer.answer);
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'Tell me.' });
    await firstAnswer.request;
    const pieces = ['Once', ' upon', ' a time'];
    for (const [index, piece] of pieces.entries()) {
      firstAnswer.say(piece);
      const text = pieces.slice(0, index + 1).join('');
      await collect(
        client.sessions.follow({ sessionId: 's' }),
        (event) =>
          (event.type === 'part.snapshot' && event.text === text) ||
          (event.type === 'part.delta' && event.offset + event.delta.length === text.length),
      );
      const fork = await forkOf(client, { sessionId: 's' });
      const { items } = await client.sessions.listMessages({ sessionId: fork.id });
      expect(items.at(-1)).toMatchObject({
        role: 'assistant',
        metadata: { status: 'interrupted' },
        parts: [{ type: 'step-start' }, { type: 'text', text }],
      });
      // Another input raises the seq; it is removed again during the run.
      const { queueItemId } = await client.sessions.prompt({ sessionId: 's', text: 'More.' });
      await client.sessions.removeQueueItem({ sessionId: 's', queueItemId: queueItemId as string });
    }
    firstAnswer.end();
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    const [run] = events.flatMap((event) => (event.type === 'run.started' ? [event] : []));
    const end = events.find((event) => event.type === 'run.settled' && event.runId === run?.runId);
    for (const event of events) {
      if (!('seq' in event)) continue;
      const isOpen =
        event.seq >= (run?.seq ?? 0) && event.seq < (end !== undefined && 'seq' in end ? end.seq : 0);
      expect(
        await client.sessions.fork({ sessionId: 's', seq: event.seq, dryRun: true }),
        `seq ${event.seq}`,
      ).toMatchObject({ openRunId: isOpen ? run?.runId : null });
    }
  });

  test('copies the ancestors of a deep fork', async () => {
    const { client, sql } = await world.start();
    world.gateway.answer(() => says('Deep.'));
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'Down?' }, wait);
    let lastId = 's';
    // More than the 32 ancestors that a fork refers to.
    const depth = 34;
    for (let count = 0; count < depth; count += 1) lastId = (await forkOf(client, { sessionId: lastId })).id;
    const readLineage = async () =>
      (await sql`select lineage from agent.sessions_sessions where session_id = ${lastId}`)[0]?.['lineage'];
    await expect.poll(readLineage).not.toHaveLength(depth);
    const events = await collect(client.sessions.follow({ sessionId: lastId, until: 'idle' }));
    expect(seqs(events)).toEqual(seqs(events).map((_, index) => index + 1));
    expect((await client.sessions.listMessages({ sessionId: lastId })).items).toHaveLength(2);
  });
});

describe('sessions.remove', () => {
  test('frees the id', async () => {
    const { client } = await world.start();
    await client.sessions.create({ id: 's', title: 'One' });
    await client.sessions.remove({ sessionId: 's' });
    await expect(client.sessions.get({ sessionId: 's' })).rejects.toMatchObject({
      status: 404,
      code: 'session_not_found',
    });
    expect(await client.sessions.create({ id: 's' })).toMatchObject({ title: null, headSeq: 1 });
  });

  test('removes a session during its run', async () => {
    const { client, sql } = await world.start();
    const firstAnswer = holdAnswer();
    world.gateway.answer(() => firstAnswer.answer);
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'Begin.' });
    await firstAnswer.request;
    await client.sessions.prompt({ sessionId: 's', text: 'Then this.' });
    await client.sessions.remove({ sessionId: 's' });
    await expect(client.sessions.prompt({ sessionId: 's', text: 'Still there?' })).rejects.toMatchObject({
      status: 404,
    });
    for (const table of ['events', 'runs', 'checkpoints']) {
      const orphanedRows = await sql`
        select 1 from ${sql(`agent.sessions_${table}`)}
        where session_id not in (select session_id from agent.sessions_sessions)`;
      expect(orphanedRows, table).toHaveLength(0);
    }
    expect(await client.sessions.create({ id: 's' })).toMatchObject({ headSeq: 1, messageCount: 0 });
    world.gateway.answer(() => says('Here.'));
    await client.sessions.prompt({ sessionId: 's', text: 'Anew.' }, wait);
    expect(JSON.stringify(world.gateway.requests.at(-1)?.prompt)).not.toContain('Begin.');
  });

  test('ends the streams of a removed session', async () => {
    const { client } = await world.start();
    await client.sessions.create({ id: 's' });
    const events = client.sessions.follow({ sessionId: 's' })[Symbol.asyncIterator]();
    for (const type of ['stream.ready', 'session.created'])
      expect(await events.next()).toMatchObject({ value: { type } });
    const next = events.next();
    // It may fail before its rejection is checked below.
    next.catch(() => {});
    await client.sessions.remove({ sessionId: 's' });
    // The client opens the stream again after its end, and is refused.
    await expect(next).rejects.toMatchObject({ status: 404, code: 'session_not_found' });
  });
});

describe('the conversation of a session', () => {
  test('keeps the messages of a compacted conversation', async () => {
    const { client } = await world.start();
    world.gateway.answer((request) =>
      says(/Sum up/.test(JSON.stringify(request.prompt.at(-1))) ? 'They spoke of the weather.' : 'Sunny.'),
    );
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'Weather today?' }, wait);
    const { runId } = await client.sessions.compact({ sessionId: 's' });
    await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({
      status: 'completed',
      delivery: 'compact',
    });
    await client.sessions.prompt({ sessionId: 's', text: 'And then?' }, wait);
    const prompt = JSON.stringify(world.gateway.requests.at(-1)?.prompt);
    expect(prompt).toContain('They spoke of the weather.');
    expect(prompt).not.toContain('Weather today?');
    expect((await client.sessions.listMessages({ sessionId: 's' })).items).toHaveLength(4);
    const { sections } = await client.sessions.getSystem({ sessionId: 's' });
    expect(sections.map(({ source }) => source)).toEqual(expect.arrayContaining(['agent', 'compaction']));
  });

  test('keeps tool results of earlier runs in the conversation', async () => {
    const { client } = await world.start();
    world.gateway.answer((_, index) =>
      index === 0 ? calls({ name: 'files_list', input: {} }) : says('Nothing there.'),
    );
    await client.sessions.create({ id: 's' });
    await client.sessions.prompt({ sessionId: 's', text: 'Look.' }, wait);
    await client.sessions.prompt({ sessionId: 's', text: 'And?' }, wait);
    const roles = world.gateway.requests.at(-1)?.prompt.map(({ role }) => role);
    expect(roles).toEqual(['system', 'user', 'assistant', 'tool', 'assistant', 'user']);
  });
});
