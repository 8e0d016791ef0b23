// The settlement of a run whose commit gets no answer.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { Problem } from '../../../src/kernel/problem.ts';
import { createEventLog, type EventLog } from '../../../src/agent/sessions/event-log/log.ts';
import { settleRun } from '../../../src/agent/sessions/runs/settlement.ts';
import { holdAnswer, openWorld, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

const settlement = {
  outcome: 'completed',
  usage: { inputTokens: 0, outputTokens: 0 },
  finishReason: 'stop',
  error: null,
  events: [],
  hasCheckpoints: false,
  hasTakenSteers: false,
} as const;

test('a settlement whose commit gets no answer releases the next run for a sweep', async () => {
  const answer = holdAnswer();
  world.gateway.answer(() => answer.answer);
  const agent = await world.start();
  const { sql } = agent.database;
  await agent.client.sessions.create({ id: 's' });
  const { runId } = await agent.client.sessions.prompt({ sessionId: 's', text: 'first' });
  await answer.request;
  const next = await agent.client.sessions.prompt({ sessionId: 's', text: 'second' });
  const [row] = await sql<{ session_id: string; agent_id: string }[]>`
    select session_id, agent_id from agent.sessions_runs where run_id = ${runId}`;
  if (row === undefined) throw new Error('There is no run.');
  const eventLog = createEventLog({ database: agent.database, agentId: row.agent_id });
  const lostAnswer = new Problem(
    'unavailable',
    'database_unavailable',
    'The answer of the database was lost.',
  );
  const unansweredLog = {
    ...eventLog,
    async decide(items: never, decision: never) {
      await eventLog.decide(items, decision);
      throw lostAnswer;
    },
  } as unknown as EventLog;
  const claimedIds = new Set<string>();
  const rules = {
    agentId: row.agent_id,
    holder: { instanceId: 'ins_other', leaseMs: 60_000 },
    defaultModel: 'local/echo',
    mayStartNext: () => true,
    hasWaiting: () => false,
    claim: (claimedId: string) => void claimedIds.add(claimedId),
    release: (releasedId: string) => void claimedIds.delete(releasedId),
  };
  const key = { runId, sessionKey: row.session_id };
  await expect(settleRun(unansweredLog, key, settlement, rules)).rejects.toBe(lostAnswer);
  // The commit has started the next run for the process that holds the lease.
  const [nextRun] =
    await sql`select status, instance_id from agent.sessions_runs where run_id = ${next.runId}`;
  expect({ ...nextRun }).toEqual({ status: 'running', instance_id: 'ins_other' });
  expect([...claimedIds]).toEqual([]);
});
