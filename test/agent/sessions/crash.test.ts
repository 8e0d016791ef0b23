// What a killed agent leaves behind is settled by the next one: nothing is lost, nothing runs twice, nothing stays open.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createGatewayClient } from '@townhall/gateway';
import { createAgent } from '../../../src/agent/compose.ts';
import { readAgentConfig } from '../../../src/agent/config.ts';
import { createRegistry } from '../../../src/agent/plugins/index.ts';
import { createRuns, loadTurn, sessionStore, type SessionStore } from '../../../src/agent/sessions/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { connect } from '../../../src/kernel/database.ts';
import { id } from '../../../src/kernel/ids.ts';
import { createRedactor } from '../../../src/kernel/secret.ts';
import { startAgent } from '../../support/agent.ts';
import { makeDatabase, silentLog, testDatabase, type DatabasePlace, type TestDatabase } from '../../support/databases.ts';
import { calls, says, scriptedGateway, stream, type ScriptedGateway } from '../../support/scripted-gateway.ts';

// A lease as short as this keeps the test on PostgreSQL short; the embedded engine needs none.
const leaseMs = 1_000;

// Several processes start and end here, each with a database of its own.
describe('a killed agent', { timeout: 60_000 }, () => {
  let gateway: ScriptedGateway;
  let place: DatabasePlace;
  let dataDir: string;
  let child: ChildProcess | undefined;

  beforeEach(async () => {
    gateway = await scriptedGateway();
    place = await makeDatabase();
    dataDir = await mkdtemp(join(tmpdir(), 'townhall-crash-'));
  });
  afterEach(async () => {
    if (child?.exitCode === null && child.signalCode === null) await kill(child);
    await gateway.close();
    await place.remove();
    await rm(dataDir, { recursive: true, force: true });
  });

  async function launch(): Promise<{ process: ChildProcess; url: string; token: string }> {
    const started = spawn(process.execPath, [join(import.meta.dirname, '..', '..', 'support', 'agent-process.ts')], {
      env: {
        PATH: process.env['PATH'],
        TEST_DATABASE: JSON.stringify(place.options),
        AGENT_PORT: '0',
        AGENT_DATA_DIR: dataDir,
        AGENT_GATEWAY_URL: gateway.url,
        AGENT_GATEWAY_TOKEN: 'th_usr_test',
        AGENT_LEASE_MS: String(leaseMs),
        AGENT_DRAIN_MS: '1000',
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    child = started;
    for await (const line of createInterface({ input: started.stdout })) {
      const said = JSON.parse(line) as { msg: string; url: string };
      if (said.msg !== 'listening') continue;
      const token = (await readFile(join(dataDir, 'agent.token'), 'utf8')).trim();
      return { process: started, url: said.url, token };
    }
    throw new Error('The agent ended before it listened.');
  }

  const execute = (agent: { url: string; token: string }, instructions: string) =>
    fetch(`${agent.url}/api/execute`, {
      method: 'POST',
      headers: { authorization: `Bearer ${agent.token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ instructions }),
    });

  // What the next agent makes of it, seen from within the test's own process.
  async function afterRestart(look: (agent: Awaited<ReturnType<typeof startAgent>>) => Promise<void>): Promise<void> {
    const database = await connect(place.options, { log: silentLog });
    const agent = await startAgent({ gatewayUrl: gateway.url, dataDir, database, settings: { leaseMs } });
    try {
      await expect.poll(async () => (await agent.sql`select 1 from agent.sessions_runs where settled_at is null`).length, { timeout: 8_000, interval: 50 }).toBe(0);
      // On the embedded engine it was settled before anything could be asked.
      await look(agent);
    } finally {
      await agent.close();
      await database.close();
    }
  }

  test('while the model answers: the run is interrupted, the next agent serves under the same token', async () => {
    const agent = await launch();
    const asked = Promise.withResolvers<void>();
    gateway.answer(() => ({ respond: () => new Promise(() => asked.resolve()) }));
    const call = execute(agent, 'Think for ever.').catch(() => 'cut off');
    await asked.promise;
    await kill(agent.process);
    expect(await call).toBe('cut off');
    gateway.answer(() => says('Back again.'));
    await afterRestart(async (next) => {
      expect(next.token).toBe(agent.token);
      const runs = await next.sql`select status, error from agent.sessions_runs`;
      expect(runs.map((run) => ({ ...run }))).toMatchObject([{ status: 'interrupted', error: { code: 'run_interrupted' } }]);
      const log = await next.sql<{ seq: number; type: string; data: Record<string, unknown> }[]>`select seq, type, data from agent.sessions_events order by seq`;
      expect(log.map(({ seq }) => seq)).toEqual(log.map((_, index) => index + 1));
      expect(log.map(({ type }) => type).slice(-2)).toEqual(['message.completed', 'run.settled']);
      expect(log.filter(({ type }) => type === 'run.settled')).toHaveLength(1);
      expect(await next.client.sessions.execute({ instructions: 'And now?' })).toMatchObject({ text: 'Back again.' });
    });
    expect(gateway.requests).toHaveLength(2);
  });

  test('while a tool runs: the message keeps what was done, says what is not known, and no tool runs again', async () => {
    const agent = await launch();
    gateway.answer((_, index) =>
      index === 0 ? calls({ name: 'files_write', input: { path: 'once.txt', content: '1' }, id: 'done' }) : calls({ name: 'endless_hang', input: {}, id: 'cut' }),
    );
    void execute(agent, 'Write, then hang.').catch(() => undefined);
    await expect.poll(async () => readFile(join(dataDir, 'workspace', 'begun'), 'utf8').catch(() => 'not yet'), { timeout: 10_000, interval: 20 }).toBe('');
    await kill(agent.process);
    await rm(join(dataDir, 'workspace', 'once.txt'));
    await afterRestart(async (next) => {
      const [completed] = await next.sql<{ message: { parts: Record<string, unknown>[]; metadata: object } }[]>`
        select data -> 'message' as message from agent.sessions_events where type = 'message.completed' order by seq desc limit 1`;
      expect(completed?.message.metadata).toMatchObject({ status: 'interrupted' });
      expect(completed?.message.parts.filter(({ type }) => type === 'dynamic-tool')).toMatchObject([
        { toolName: 'files_write', state: 'output-available' },
        { toolName: 'endless_hang', state: 'output-error', errorText: expect.stringContaining('not known') },
      ]);
      await expect(readFile(join(dataDir, 'workspace', 'once.txt'))).rejects.toThrow(/ENOENT/);
    });
    expect(gateway.requests).toHaveLength(2);
  });

  test('after the answer: the run stays completed', async () => {
    const agent = await launch();
    gateway.answer(() => says('Done.'));
    const response = await execute(agent, 'Speak.');
    await kill(agent.process);
    expect(response.status).toBe(200);
    await afterRestart(async (next) => {
      expect((await next.sql`select status from agent.sessions_runs`).map((run) => run['status'])).toEqual(['completed']);
    });
  });

  test('asked to stop instead, ends its run as interrupted, answers its caller and exits with 0', async () => {
    const agent = await launch();
    const asked = Promise.withResolvers<void>();
    gateway.answer(() => ({ respond: () => new Promise(() => asked.resolve()) }));
    const call = execute(agent, 'Wait.');
    await asked.promise;
    agent.process.kill('SIGTERM');
    const response = await call;
    expect([response.status, await response.json()]).toMatchObject([503, { error: { code: 'run_interrupted' } }]);
    if (agent.process.exitCode === null) await once(agent.process, 'exit');
    expect(agent.process.exitCode).toBe(0);
  });
});

describe('the log of sessions', () => {
  let world: TestDatabase;
  let database: TestDatabase['database'];
  let gateway: ScriptedGateway;
  beforeAll(async () => {
    world = await testDatabase();
    ({ database } = world);
    gateway = await scriptedGateway();
  });
  afterAll(async () => {
    await gateway.close();
    await world.close();
  });

  test('an accepted run that never began is interrupted at the next start, before it serves', async () => {
    const first = await startAgent({ gatewayUrl: gateway.url, database, name: 'once' });
    const [row] = await database.sql<{ agent_id: string }[]>`select agent_id from agent.tokens_agents where name = 'once'`;
    await first.close();
    const run = { ...newRun(), agentId: row?.agent_id as string, leaseMs: -1 };
    await sessionStore(database).accept(run, [{ type: 'session.created', kind: 'execute' }]);
    const second = await startAgent({ gatewayUrl: gateway.url, database, name: 'once' });
    const log = await eventsOf(run.sessionId);
    await second.close();
    expect(log.map(({ seq, type }) => [seq, type])).toEqual([[1, 'session.created'], [2, 'run.settled']]);
  });

  test('a run that somebody else has settled can write nothing more, and its caller is told', async () => {
    const agent = await startAgent({ gatewayUrl: gateway.url, database, name: 'fenced' });
    try {
      const asked = Promise.withResolvers<void>();
      const released = Promise.withResolvers<void>();
      gateway.answer(() => ({
        async respond(response) {
          asked.resolve();
          await released.promise;
          stream(response, calls({ name: 'files_write', input: { path: 'late.txt', content: 'x' } }));
        },
      }));
      const call = agent.client.sessions.execute({ instructions: 'Be slow.' });
      call.catch(() => {});
      await asked.promise;
      const [run] = await database.sql<{ run_id: string; session_id: string }[]>`select run_id, session_id from agent.sessions_runs where settled_at is null`;
      const key = { runId: run?.run_id as string, sessionId: run?.session_id as string };
      const settlement = { outcome: 'interrupted', usage: { inputTokens: 0, outputTokens: 0 }, finishReason: null, error: null } as const;
      const settle = () => sessionStore(database).settle(key, { ...settlement, events: [{ type: 'run.settled', ...settlement }] });
      expect([await settle(), await settle()]).toEqual([true, false]);
      released.resolve();
      await expect(call).rejects.toMatchObject({ status: 503, code: 'run_interrupted' });
      const types = (await eventsOf(key.sessionId)).map(({ type }) => type);
      expect(types.at(-1)).toBe('run.settled');
      expect(types).not.toContain('tool.started');
      await expect(readFile(join(agent.workspace, 'late.txt'))).rejects.toThrow(/ENOENT/);
    } finally {
      await agent.close();
    }
  });

  test('parallel writers of one session leave no gap and lose nothing', async () => {
    const store = sessionStore(database);
    await database.sql`insert into agent.tokens_agents (agent_id, name) values ('agt_x', 'x')`;
    const run = { ...newRun(), agentId: 'agt_x', leaseMs: 60_000 };
    await store.accept(run, [{ type: 'session.created', kind: 'execute' }]);
    await Promise.all(
      Array.from({ length: 40 }, (_, index) =>
        store.append(run, [
          { type: 'run.step.started', step: index },
          { type: 'tool.output', toolCallId: `call_${index}`, output: index, durationMs: 0 },
        ]),
      ),
    );
    const log = await eventsOf(run.sessionId);
    expect(log.map(({ seq }) => seq)).toEqual(Array.from({ length: 81 }, (_, index) => index + 1));
    // The two of one append stand together.
    for (let at = 1; at < log.length; at += 2) expect(log[at + 1]?.data['output']).toBe(log[at]?.data['step']);
  });

  test('a run that is accepted while its own process looks for abandoned ones is not taken for one', async () => {
    await database.sql`insert into agent.tokens_agents (agent_id, name) values ('agt_y', 'y')`;
    const store = sessionStore(database);
    // Holds every look back from just before it until the test lets it go on.
    let gate = Promise.resolve();
    let begun = 0;
    let looks = 0;
    const slowStore: SessionStore = {
      ...store,
      async openRuns(query) {
        begun += 1;
        await gate;
        const found = await store.openRuns(query);
        looks += 1;
        return found;
      },
    };
    const runs = createRuns({
      store: slowStore,
      agentId: 'agt_y',
      name: 'y',
      model: async (modelId) => createGatewayClient({ baseUrl: gateway.url, token: 'th_usr_test' }).model(modelId),
      runTurn: await loadTurn(),
      registry: createRegistry([]),
      workspace: tmpdir(),
      limits: { maxRuns: 8, maxSteps: 8, toolTimeoutMs: 1_000, modelRetries: 0, leaseMs: 60 },
      hasReplicas: true,
      clock: systemClock,
      log: silentLog,
    });
    const released = Promise.withResolvers<void>();
    gateway.answer(() => ({
      async respond(response) {
        await released.promise;
        stream(response, says('Still mine.'));
      },
    }));
    await runs.recover();
    const opened = Promise.withResolvers<void>();
    gate = opened.promise;
    const before = begun;
    await expect.poll(() => begun, { timeout: 5_000, interval: 5 }).toBeGreaterThan(before);
    const run = await runs.start({ instructions: 'Take your time.', modelId: 'local/echo' });
    const seen = looks;
    opened.resolve();
    await expect.poll(() => looks, { timeout: 5_000, interval: 10 }).toBeGreaterThan(seen + 1);
    released.resolve();
    expect(await run.settled).toMatchObject({ text: 'Still mine.' });
    await runs.close(0);
  });

  const newRun = () => ({ runId: id('run'), sessionId: id('ses'), messageId: id('msg'), model: 'local/echo', instanceId: id('ins') });
  const eventsOf = (sessionId: string) =>
    database.sql<{ seq: number; type: string; data: Record<string, unknown> }[]>`
      select seq, type, data from agent.sessions_events where session_id = ${sessionId} order by seq`;
});

test('a second agent on one data folder is refused, and the first one serves on', { timeout: 60_000 }, async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'townhall-two-'));
  const config = readAgentConfig({ 'data-dir': dataDir, port: '0' }, { AGENT_GATEWAY_TOKEN: 'th_usr_test' });
  const needs = () => ({ log: silentLog, redactor: createRedactor() });
  const first = await createAgent(config, needs());
  try {
    const { url } = await first.listen();
    await expect(createAgent(config, needs())).rejects.toThrow(/is held by process \d+/);
    expect((await fetch(`${url}/health`)).status).toBe(200);
  } finally {
    await first.close();
  }
  const third = await createAgent(config, needs());
  await third.close();
  await rm(dataDir, { recursive: true, force: true });
});

async function kill(child: ChildProcess): Promise<void> {
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}
