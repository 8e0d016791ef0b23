// Recovery after a crash of the agent: no run is lost, repeated or left open.
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createAgentClient } from '@townhall/agent';
import { createAgent } from '../../../src/agent/compose.ts';
import { readAgentConfig } from '../../../src/agent/config.ts';
import type { StoredEvent } from '../../../src/agent/sessions/event-log/events.ts';
import { createEventLog } from '../../../src/agent/sessions/event-log/log.ts';
import { append } from '../../../src/agent/sessions/event-log/store.ts';
import type { LogEntry, UnitOfWork } from '../../../src/agent/sessions/event-log/unit.ts';
import { settleRun, type SettlementRules } from '../../../src/agent/sessions/runs/settlement.ts';
import { insertRuns } from '../../../src/agent/sessions/runs/store.ts';
import { insertSessions } from '../../../src/agent/sessions/event-log/session-store.ts';
import { connect } from '../../../src/kernel/data/database.ts';
import { id } from '../../../src/kernel/ids.ts';
import { Problem } from '../../../src/kernel/problem.ts';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';
import { startAgent, type AgentOptions, type TestAgent } from '../../support/agent.ts';
import {
  makeDatabase,
  silentLog,
  testDatabase,
  type DatabasePlace,
  type TestDatabase,
} from '../../support/databases.ts';
import { kill } from '../../support/processes.ts';
import {
  breaksAfter,
  calls,
  promptBytes,
  says,
  scriptedGateway,
  stream,
  type ScriptedGateway,
} from '../../support/scripted-gateway.ts';
import { collect, holdAnswer } from '../../support/session-world.ts';
import { launchAgent, type AgentProcess } from '../launch.ts';

// A short lease keeps the test on PostgreSQL short; the embedded engine has no leases.
const leaseMs = 1_000;

// Several processes start and end here, each with a database of its own.
describe('a killed agent', { timeout: 180_000 }, () => {
  let gateway: ScriptedGateway;
  let place: DatabasePlace;
  let dataDir: string;
  let agentProcess: AgentProcess | undefined;

  beforeEach(async () => {
    gateway = await scriptedGateway();
    place = await makeDatabase();
    dataDir = await mkdtemp(join(tmpdir(), 'townhall-crash-'));
  });
  afterEach(async () => {
    if (agentProcess !== undefined) await kill(agentProcess.child);
    agentProcess = undefined;
    await gateway.close();
    await place.remove();
    await rm(dataDir, { recursive: true, force: true });
  });

  const launch = async () => {
    agentProcess = await launchAgent({
      place,
      gatewayUrl: gateway.url,
      dataDir,
      env: { AGENT_LEASE_MS: String(leaseMs), AGENT_DRAIN_MS: '1000' },
    });
    return agentProcess;
  };

  const execute = (agent: AgentProcess, instructions: string) =>
    fetch(`${agent.url}/api/execute`, {
      method: 'POST',
      headers: { authorization: `Bearer ${agent.token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ instructions }),
    });

  // Starts the next agent in the process of the test and waits until it has settled all runs.
  async function checkAfterRestart(check: (agent: TestAgent) => Promise<void>): Promise<void> {
    const database = await connect(place.options, { log: silentLog });
    const agent = await startAgent({ gatewayUrl: gateway.url, dataDir, database, settings: { leaseMs } });
    try {
      await expect
        .poll(
          async () => (await agent.sql`select 1 from agent.sessions_runs where settled_at is null`).length,
          { interval: 50 },
        )
        .toBe(0);
      await check(agent);
    } finally {
      await agent.close();
      await database.close();
    }
  }

  test('settles the run of a killed agent as interrupted', async () => {
    const agent = await launch();
    const request = Promise.withResolvers<void>();
    gateway.answer(() => ({ respond: () => new Promise(() => request.resolve()) }));
    const call = execute(agent, 'Think.').catch(() => 'disconnected');
    await request.promise;
    await kill(agent.child);
    expect(await call).toBe('disconnected');
    gateway.answer(() => says('Back again.'));
    await checkAfterRestart(async (next) => {
      expect(next.token).toBe(agent.token);
      const runs = await next.sql`select status, error from agent.sessions_runs`;
      expect(runs.map((run) => ({ ...run }))).toMatchObject([
        { status: 'interrupted', error: { code: 'run_interrupted' } },
      ]);
      const log = await next.sql<
        { seq: number; type: string; data: Record<string, unknown> }[]
      >`select seq, type, data from agent.sessions_events order by seq`;
      expect(log.map(({ seq }) => seq)).toEqual(log.map((_, index) => index + 1));
      expect(log.map(({ type }) => type).slice(-3)).toEqual([
        'message.completed',
        'run.settled',
        'status.changed',
      ]);
      expect(log.filter(({ type }) => type === 'run.settled')).toHaveLength(1);
      expect(await next.client.sessions.execute({ instructions: 'And now?' })).toMatchObject({
        text: 'Back again.',
      });
    });
    expect(gateway.requests).toHaveLength(2);
  });

  test('sends the same beginning of a prompt as before the crash', async () => {
    gateway.catalog([{ id: 'local/guide', context_window: 16_000 }]);
    const agent = await launch();
    const hang = Promise.withResolvers<void>();
    const note = 'n'.repeat(3_000);
    const words = [
      { type: 'text-start', id: 't' },
      { type: 'text-delta', id: 't', delta: 'So far, ' },
    ];
    // With notes of 3,000 characters, 25 reads overflow the context of 16,000 tokens, so old outputs are
    // pruned. Then one answer breaks off, and the 30th request hangs until the agent is killed.
    let reads = 0;
    gateway.answer((request) => {
      if (/Sum up the conversation/.test(JSON.stringify(request.prompt.at(-1))))
        return says('Notes were read.');
      reads += 1;
      if (reads === 1) return calls({ name: 'files_write', input: { path: 'note.txt', content: note } });
      if (reads === 25) return breaksAfter(...words);
      if (reads < 30) return calls({ name: 'files_read', input: { path: 'note.txt' }, id: `call_${reads}` });
      return { respond: () => new Promise(() => hang.resolve()) };
    });
    void execute(agent, 'Read the note again and again.').catch(() => undefined);
    await hang.promise;
    // The system prompt names the plugins, and only the killed agent has the endless one.
    const [, ...promptBefore] = promptBytes(gateway.bodies.at(-1) as string);
    await kill(agent.child);
    gateway.answer(() => says('Back again.'));
    await checkAfterRestart(async ({ client, sql }) => {
      const rows = await sql<{ type: string }[]>`
        select distinct type from agent.sessions_events where type in ('context.pruned', 'run.retrying')`;
      expect(rows).toHaveLength(2);
      const [session] = (await client.sessions.list()).items;
      await client.sessions.prompt(
        { sessionId: session?.id ?? '', text: 'Go on.' },
        { headers: { prefer: 'wait=20' } },
      );
      const [, ...promptAfter] = promptBytes(gateway.bodies.at(-1) as string);
      expect(promptAfter.slice(0, promptBefore.length)).toEqual(promptBefore);
      expect(promptAfter).toHaveLength(promptBefore.length + 1);
    });
  });

  test('settles a run that waited for its model as interrupted', async () => {
    const agent = await launch();
    gateway.answer(() => ({
      status: 429,
      error: { type: 'rate_limit_error', code: 'rate_limited' },
      headers: { 'retry-after': '60' },
    }));
    const call = execute(agent, 'Hurry.').catch(() => 'disconnected');
    const { sessions } = createAgentClient({ baseUrl: agent.url, token: agent.token });
    const listIds = async () => (await sessions.list()).items.map(({ id }) => id);
    await expect.poll(listIds).toHaveLength(1);
    const [sessionId = ''] = await listIds();
    await collect(sessions.follow({ sessionId }), ({ type }) => type === 'run.waiting');
    await kill(agent.child);
    expect(await call).toBe('disconnected');
    await checkAfterRestart(async ({ sql }) => {
      const rows = await sql<{ type: string }[]>`select type from agent.sessions_events order by seq`;
      const types = rows.map(({ type }) => type);
      expect(types).toContain('run.waiting');
      expect(types.slice(-2)).toEqual(['run.settled', 'status.changed']);
    });
  });

  test('repeats no finished tool call', async () => {
    const agent = await launch();
    gateway.answer((_, index) =>
      index === 0
        ? calls({ name: 'files_write', input: { path: 'once.txt', content: '1' }, id: 'done' })
        : calls({ name: 'endless_hang', input: {}, id: 'cut' }),
    );
    void execute(agent, 'Write, then hang.').catch(() => undefined);
    await expect
      .poll(async () => readFile(join(dataDir, 'workspace', 'begun'), 'utf8').catch(() => 'not yet'), {
        interval: 20,
      })
      .toBe('');
    await kill(agent.child);
    await rm(join(dataDir, 'workspace', 'once.txt'));
    await checkAfterRestart(async (next) => {
      const [completedEvent] = await next.sql<
        { message: { parts: Record<string, unknown>[]; metadata: object } }[]
      >`
        select data -> 'message' as message from agent.sessions_events
        where type = 'message.completed' order by seq desc limit 1`;
      expect(completedEvent?.message.metadata).toMatchObject({ status: 'interrupted' });
      expect(completedEvent?.message.parts.filter(({ type }) => type === 'dynamic-tool')).toMatchObject([
        { toolName: 'files_write', state: 'output-available' },
        { toolName: 'endless_hang', state: 'output-error', errorText: expect.stringContaining('not known') },
      ]);
      await expect(readFile(join(dataDir, 'workspace', 'once.txt'))).rejects.toThrow(/ENOENT/);
    });
    expect(gateway.requests).toHaveLength(2);
  });

  test('leaves a completed run completed', async () => {
    const agent = await launch();
    gateway.answer(() => says('Done.'));
    const response = await execute(agent, 'Speak.');
    await kill(agent.child);
    expect(response.status).toBe(200);
    await checkAfterRestart(async (next) => {
      expect((await next.sql`select status from agent.sessions_runs`).map((run) => run['status'])).toEqual([
        'completed',
      ]);
    });
  });

  test('settles its run before it exits with 0 on SIGTERM', async () => {
    const agent = await launch();
    const request = Promise.withResolvers<void>();
    gateway.answer(() => ({ respond: () => new Promise(() => request.resolve()) }));
    const call = execute(agent, 'Wait.');
    await request.promise;
    const exit = once(agent.child, 'exit');
    agent.child.kill('SIGTERM');
    const response = await call;
    expect([response.status, await response.json()]).toMatchObject([
      503,
      { error: { code: 'run_interrupted' } },
    ]);
    expect(await exit).toEqual([0, null]);
  });
});

let world: TestDatabase;
let database: TestDatabase['database'];
let gateway: ScriptedGateway;
let agents: TestAgent[];
beforeAll(async () => {
  world = await testDatabase();
  ({ database } = world);
  gateway = await scriptedGateway();
});
beforeEach(() => {
  agents = [];
});
afterEach(async () => {
  for (const agent of agents) await agent.close();
});
afterAll(async () => {
  await gateway.close();
  await world.close();
});

async function start(name: string, settings: AgentOptions['settings'] = {}): Promise<TestAgent> {
  const agent = await startAgent({ gatewayUrl: gateway.url, database, name, settings });
  agents.push(agent);
  return agent;
}

async function stop(agent: TestAgent): Promise<void> {
  agents.splice(agents.indexOf(agent), 1);
  await agent.close();
}

const eventsOf = (sessionId: string) =>
  database.sql<{ seq: number; type: string; data: Record<string, unknown> }[]>`
    select seq, type, data from agent.sessions_events where session_id = ${sessionId} order by seq`;

/** Adds a run with its input to the queue, as a process does that ends before it starts the run. */
async function insertQueuedRun(sessionKey: string, agentId: string): Promise<string> {
  const runId = id('run');
  const message = {
    id: id('msg'),
    role: 'user',
    parts: [{ type: 'text', text: 'Still there?' }],
    metadata: { runId },
  } as const;
  const run = {
    runId,
    sessionKey,
    agentId,
    delivery: 'queue',
    isUrgent: false,
    origin: 'sdk',
    queueItemId: id('qit'),
    inputMessageId: message.id,
    preview: '',
    model: null,
    reasoningEffort: null,
    promptId: null,
    promptHash: null,
    receipt: null,
    requestId: null,
    start: null,
  } as const;
  const completedEntry: LogEntry = {
    type: 'message.completed',
    messageId: message.id,
    message: { ...message, parts: [...message.parts] },
  };
  await createEventLog({ database, agentId }).transact(async (unit) => {
    await append(
      unit,
      { sessionKey, runId, events: [completedEntry], change: { queue: 1 } },
      insertRuns(unit.tx, [run], { instanceId: 'ins_x', leaseMs: 1_000 }),
    );
  });
  return runId;
}

describe('a restarted agent', () => {
  test('runs a waiting input once', async () => {
    gateway.answer(() => says('Late, but here.'));
    const firstAgent = await start('waiting');
    const session = await firstAgent.client.sessions.create({ title: 'Left' });
    // A session that is created without an id has its key as its id.
    const [row] = await database.sql<
      { agent_id: string }[]
    >`select agent_id from agent.sessions_sessions where session_id = ${session.id}`;
    await stop(firstAgent);
    const runId = await insertQueuedRun(session.id, row?.agent_id as string);
    const secondAgent = await start('waiting');
    await expect
      .poll(async () => (await secondAgent.client.sessions.getRun({ sessionId: session.id, runId })).status)
      .toBe('completed');
    expect(await secondAgent.client.sessions.getRun({ sessionId: session.id, runId })).toMatchObject({
      text: 'Late, but here.',
    });
    expect(gateway.requests).toHaveLength(1);
    expect(JSON.stringify(gateway.requests[0]?.prompt)).toContain('Still there?');
    expect(await secondAgent.client.sessions.get({ sessionId: session.id })).toMatchObject({
      status: 'idle',
      queueLength: 0,
    });
  });

  test('starts more idle queues than it may run at once', async () => {
    const ids = ['a', 'b', 'c'].map((letter) => `crowd-${letter}`);
    const request = Promise.withResolvers<void>();
    let openRuns = 0;
    gateway.answer(() => ({
      respond: () => {
        openRuns += 1;
        if (openRuns === ids.length) request.resolve();
        return new Promise(() => {});
      },
    }));
    const firstAgent = await start('crowd', { drainMs: 0 });
    for (const sessionId of ids) await firstAgent.client.sessions.create({ id: sessionId });
    for (const sessionId of ids) await firstAgent.client.sessions.prompt({ sessionId, text: 'Wait.' });
    await request.promise;
    const waitingRuns = await Promise.all(
      ids.map((sessionId) => firstAgent.client.sessions.prompt({ sessionId, text: 'Then this.' })),
    );
    await stop(firstAgent);
    gateway.answer(() => says('In turn.'));
    const secondAgent = await start('crowd', { maxRuns: 1 });
    for (const { sessionId, runId } of waitingRuns) {
      await expect
        .poll(async () => (await secondAgent.client.sessions.getRun({ sessionId, runId })).status)
        .toBe('completed');
    }
  });
});

describe('a run that another process settles', () => {
  const interruptedRun = {
    outcome: 'interrupted',
    usage: { inputTokens: 0, outputTokens: 0 },
    finishReason: null,
    error: null,
    events: [],
    // False in the test that settles a run before it has any text.
    hasCheckpoints: true,
    hasTakenSteers: false,
  } as const;

  /** The one open run, and the rules of another process that settles it. */
  async function openRun(): Promise<{
    key: { runId: string; sessionKey: string };
    rules: SettlementRules;
  }> {
    const [run] = await database.sql<
      { run_id: string; session_id: string; agent_id: string }[]
    >`select run_id, session_id, agent_id from agent.sessions_runs where settled_at is null`;
    if (run === undefined) throw new Error('No run is open.');
    const rules = {
      agentId: run.agent_id,
      holder: { instanceId: 'ins_other', leaseMs: 60_000 },
      defaultModel: 'local/echo',
      mayStartNext: () => true,
      hasWaiting: () => false,
      claim: () => {},
      release: () => {},
    };
    return { key: { runId: run.run_id, sessionKey: run.session_id }, rules };
  }

  test('refuses writes of its former process', async () => {
    const agent = await start('fenced');
    const request = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    gateway.answer(() => ({
      async respond(response) {
        request.resolve();
        await release.promise;
        stream(response, calls({ name: 'files_write', input: { path: 'late.txt', content: 'x' } }));
      },
    }));
    const call = agent.client.sessions.execute({ instructions: 'Be slow.' });
    // It may fail before its rejection is checked below.
    call.catch(() => {});
    await request.promise;
    const { key, rules } = await openRun();
    const eventLog = createEventLog({ database, agentId: rules.agentId });
    const settle = async () =>
      (await settleRun(eventLog, key, { ...interruptedRun, hasCheckpoints: false }, rules)) !== null;
    expect([await settle(), await settle()]).toEqual([true, false]);
    release.resolve();
    await expect(call).rejects.toMatchObject({ status: 503, code: 'run_interrupted' });
    const types = (await eventsOf(key.sessionKey)).map(({ type }) => type);
    expect(types.slice(-2)).toEqual(['run.settled', 'status.changed']);
    expect(types).not.toContain('tool.started');
    await expect(readFile(join(agent.workspace, 'late.txt'))).rejects.toThrow(/ENOENT/);
  });

  test('saves no more text of its former process', async () => {
    const agent = await start('fenced-text');
    const slowAnswer = holdAnswer();
    gateway.answer(() => slowAnswer.answer);
    const call = agent.client.sessions.execute({ instructions: 'Be slow.' });
    // It may fail before its rejection is checked below.
    call.catch(() => {});
    await slowAnswer.request;
    slowAnswer.say('The beginning.');
    await expect
      .poll(async () => (await database.sql`select 1 from agent.sessions_checkpoints`).length)
      .toBe(1);
    const { key, rules } = await openRun();
    const eventLog = createEventLog({ database, agentId: rules.agentId });
    await settleRun(eventLog, key, interruptedRun, rules);
    // Longer than the text that forces a checkpoint.
    slowAnswer.say('x'.repeat(8 * 1024));
    slowAnswer.end();
    await expect(call).rejects.toMatchObject({ status: 503, code: 'run_interrupted' });
    expect(
      await database.sql`select piece from agent.sessions_checkpoints where run_id = ${key.runId}`,
    ).toEqual([]);
  });

  test('is not settled by a process of another agent', async () => {
    const agent = await start('owner');
    const slowAnswer = holdAnswer();
    gateway.answer(() => slowAnswer.answer);
    const call = agent.client.sessions.execute({ instructions: 'Be slow.' });
    await slowAnswer.request;
    const { key, rules } = await openRun();
    const agentId = id('agt');
    const eventLog = createEventLog({ database, agentId });
    expect(await settleRun(eventLog, key, interruptedRun, { ...rules, agentId })).toBeNull();
    slowAnswer.say('Done.');
    slowAnswer.end();
    expect(await call).toMatchObject({ text: 'Done.' });
  });
});

describe('agents on one database', () => {
  test('keep sessions with the same id apart', async () => {
    const startBoth = () => Promise.all(['first-of-two', 'second-of-two'].map((name) => start(name)));
    const firstAgents = await startBoth();
    for (const { client } of firstAgents) await client.sessions.create({ id: 'shared' });
    for (const agent of firstAgents) await stop(agent);
    // The new processes have no session in their caches, and an interrupting input locks its session. So both
    // queries by the id of a session have to tell the agents apart.
    const secondAgents = await startBoth();
    gateway.answer((request) =>
      says(`Heard ${JSON.stringify(request.prompt.at(-1)?.content).match(/word-\d/)?.[0]}`),
    );
    for (const [index, { client }] of secondAgents.entries())
      await client.sessions.prompt(
        { sessionId: 'shared', text: `word-${index}`, delivery: 'interrupt' },
        { headers: { prefer: 'wait=20' } },
      );
    for (const [index, { client }] of secondAgents.entries()) {
      const { items } = await client.sessions.listMessages({ sessionId: 'shared' });
      expect(items).toHaveLength(2);
      expect(JSON.stringify(items)).not.toContain(`word-${1 - index}`);
    }
  });

  test('settle no run of their own as orphaned', async () => {
    gateway.answer(() => ({
      async respond(response) {
        await new Promise((resolve) => setTimeout(resolve, 100));
        stream(response, says('Still mine.'));
      },
    }));
    // A sweep runs every 15 ms, and leases expire after 60 ms.
    const agent = await start('busy', { leaseMs: 60 });
    const results = await Promise.all(
      Array.from({ length: 20 }, () => agent.client.sessions.execute({ instructions: 'Take your time.' })),
    );
    expect(results.map((result) => 'text' in result && result.text)).toEqual(
      results.map(() => 'Still mine.'),
    );
  });
});

describe('createEventLog', () => {
  test('writes and publishes parallel appends without a gap', async () => {
    await database.sql`insert into agent.tokens_agents (agent_id, name) values ('agt_x', 'x')`;
    const publishedEvents: StoredEvent[] = [];
    const eventLog = createEventLog({ database, agentId: 'agt_x' });
    const key = id('ses');
    eventLog.subscribe(key, {
      onEvents: (events) => publishedEvents.push(...events),
      onHead() {},
      onRemoved() {},
    });
    await insertSessions(database.sql, [{ key, id: key, agentId: 'agt_x', kind: 'sdk' }]);
    await Promise.all(
      Array.from({ length: 40 }, (_, index) =>
        eventLog.transact((unit) =>
          append(unit, {
            sessionKey: key,
            events: [
              { type: 'run.step.started', step: index },
              { type: 'tool.output', toolCallId: `call_${index}`, output: index, durationMs: 0 },
            ],
          }),
        ),
      ),
    );
    const log = await eventsOf(key);
    expect(log.map(({ seq }) => seq)).toEqual(Array.from({ length: 80 }, (_, index) => index + 1));
    // The two events of an append are adjacent.
    for (let index = 0; index < log.length; index += 2)
      expect(log[index + 1]?.data['output']).toBe(log[index]?.data['step']);
    expect(publishedEvents.map(({ seq }) => seq).sort((a, b) => a - b)).toEqual(log.map(({ seq }) => seq));
    // On PostgreSQL several appends commit at once, and their publications may overtake each other.
    if (database.engine === 'embedded')
      expect(publishedEvents.map(({ seq }) => seq)).toEqual(log.map(({ seq }) => seq));
  });

  test('commits a group without the work that fails', async () => {
    const key = id('ses');
    const agentId = 'agt_group';
    await database.sql`insert into agent.tokens_agents (agent_id, name) values (${agentId}, 'group')`;
    await insertSessions(database.sql, [{ key, id: key, agentId, kind: 'sdk' }]);
    const eventLog = createEventLog({ database, agentId });
    const appendStep = (unit: UnitOfWork, step: number) =>
      append(unit, { sessionKey: key, events: [{ type: 'run.step.started', step }] });
    const outcomes = await Promise.allSettled([
      eventLog.transact((unit) => appendStep(unit, 1)),
      eventLog.transact(async (unit) => {
        await appendStep(unit, 2);
        await unit.tx`select 1 / 0`;
      }),
      eventLog.transact(async () => new Problem('conflict', 'conflict', 'No.')),
      eventLog.transact((unit) => appendStep(unit, 3)),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected', 'fulfilled']);
    const steps = (await eventsOf(key)).map(({ data }) => data['step']);
    // On PostgreSQL the works are concurrent transactions in any order.
    expect(steps.map(Number).sort((a, b) => a - b)).toEqual([1, 3]);
  });
});

test('an agent refuses to start on the data folder of a running agent', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'townhall-two-'));
  const config = readAgentConfig({ 'data-dir': dataDir, port: '0' }, { AGENT_GATEWAY_TOKEN: 'th_usr_test' });
  const createOptions = () => ({ log: silentLog, redactor: createRedactor() });
  const firstAgent = await createAgent(config, createOptions());
  try {
    const { url } = await firstAgent.listen();
    await expect(createAgent(config, createOptions())).rejects.toThrow(/is held by process \d+/);
    expect((await fetch(`${url}/health`)).status).toBe(200);
  } finally {
    await firstAgent.close();
  }
  const thirdAgent = await createAgent(config, createOptions());
  await thirdAgent.close();
  await rm(dataDir, { recursive: true, force: true });
});
