// An outage of the database: a run waits for it, and its log has every event once.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { calls, says, stream } from '../../support/scripted-gateway.ts';
import { collect, openWorld, type World } from '../../support/session-world.ts';
import type { TestAgent } from '../../support/agent.ts';

// Tests wait up to ten seconds for a lock, which would make a test of several attempts long.
const lockMs = 500;

let world: World;
beforeAll(async () => {
  world = await openWorld({ limits: { lockMs } });
});
afterEach(() => world.reset());
afterAll(() => world.close());

type Block = (agent: TestAgent) => Promise<{ release(): Promise<void> }>;

/** Blocks the writes of all sessions of an agent until `release`. */
const blockWrites: Block = ({ database, name }) =>
  hold(database, async (tx) => {
    await tx`
      select 1 from agent.sessions_sessions join agent.tokens_agents using (agent_id)
      where name = ${name} for update of sessions_sessions`;
  });

/** Blocks the decision about each tool call until `release`. */
const blockDecisions: Block = ({ database }) =>
  hold(database, async (tx) => {
    await tx`lock table agent.permissions_rules in access exclusive mode`;
  });

async function hold(
  database: TestAgent['database'],
  lock: Parameters<TestAgent['database']['tx']>[0],
): Promise<{ release(): Promise<void> }> {
  const gate = Promise.withResolvers<void>();
  const lockTaken = Promise.withResolvers<void>();
  const transaction = database.tx(async (tx) => {
    await lock(tx);
    lockTaken.resolve();
    await gate.promise;
  });
  await lockTaken.promise;
  return {
    async release() {
      gate.resolve();
      await transaction;
    },
  };
}

/** Waits until the limit of a lock has ended two attempts; each attempt is a transaction of its own. */
async function outlastTwoAttempts({ sql }: TestAgent): Promise<void> {
  const attempts = new Set<string>();
  const countAttempts = async () => {
    const waitingRows = await sql<{ attempt: string }[]>`
      select concat_ws(' ', pid, xact_start) as attempt from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`;
    for (const { attempt } of waitingRows) attempts.add(attempt);
    return attempts.size;
  };
  await expect.poll(countAttempts).toBeGreaterThan(2);
}

/** Ends connections that wait for a lock, and those of two retries. */
async function endConnections({ sql }: TestAgent): Promise<void> {
  const endWaiting = async () =>
    (
      await sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and wait_event_type = 'Lock'`
    ).length;
  for (let round = 0; round < 3; round += 1) await expect.poll(endWaiting).toBeGreaterThan(0);
}

describe('a run during which the database does not answer', () => {
  async function runWhileBlocked(disturb: (agent: TestAgent) => Promise<void>, block = blockWrites) {
    const agent = await world.start();
    const blocker = Promise.withResolvers<{ release(): Promise<void> }>();
    world.gateway.answer((_, index) => {
      if (index > 0) return says('Done.');
      const answer = calls({ name: 'files_list', input: {} });
      return {
        async respond(response) {
          blocker.resolve(await block(agent));
          stream(response, answer);
        },
      };
    });
    await agent.client.sessions.create({ id: 's' });
    const { runId } = await agent.client.sessions.prompt({ sessionId: 's', text: 'Go.' });
    const { release } = await blocker.promise;
    await disturb(agent);
    await release();
    const events = await collect(agent.client.sessions.follow({ sessionId: 's', until: 'idle' }));
    const run = await agent.client.sessions.getRun({ sessionId: 's', runId });
    return { events, run };
  }

  test('completes after a lock that outlasts the limit', async () => {
    const { events, run } = await runWhileBlocked(outlastTwoAttempts);
    expect(run).toMatchObject({ status: 'completed', text: 'Done.' });
    for (const type of ['tool.started', 'tool.output', 'run.settled'])
      expect(events.filter((event) => event.type === type)).toHaveLength(1);
  });

  test('decides about a tool call after its connections were lost', async () => {
    const { events, run } = await runWhileBlocked(endConnections, blockDecisions);
    expect(run).toMatchObject({ status: 'completed', text: 'Done.' });
    expect(world.gateway.requests).toHaveLength(2);
    expect(events.map(({ type }) => type)).not.toContain('run.waiting');
    for (const type of ['tool.started', 'tool.output'])
      expect(events.filter((event) => event.type === type)).toHaveLength(1);
  });

  test('completes after its connections were lost in the middle of a write', async () => {
    const { events, run } = await runWhileBlocked(endConnections);
    expect(run).toMatchObject({ status: 'completed', text: 'Done.' });
    for (const type of ['tool.started', 'tool.output', 'run.settled'])
      expect(events.filter((event) => event.type === type)).toHaveLength(1);
  });
});
