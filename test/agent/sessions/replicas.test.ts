// Two processes of one agent on one PostgreSQL: inputs to one reach the runs of the other,
// and a process that has lost its leases writes nothing. The embedded engine has one process.
import type { ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import { createAgentClient } from '@townhall/agent';
import { connect, type Database } from '../../../src/kernel/data/database.ts';
import { startAgent, type TestAgent } from '../../support/agent.ts';
import { makeDatabase, silentLog, type DatabasePlace } from '../../support/databases.ts';
import { kill } from '../../support/processes.ts';
import { says, scriptedGateway, type ScriptedGateway } from '../../support/scripted-gateway.ts';
import { collect, holdAnswer, seqs } from '../../support/session-world.ts';
import { launchAgent, type AgentProcess } from '../launch.ts';

// Short enough for a test, and longer than the pauses of a busy machine.
const pausedLeaseMs = 3_000;

describe.runIf(inject('databaseSource')?.engine === 'postgres')(
  'two replicas of an agent',
  { timeout: 120_000 },
  () => {
    let gateway: ScriptedGateway;
    let place: DatabasePlace;
    let databases: Database[];
    let agents: TestAgent[];
    let pausables: { child: ChildProcess; folder: string }[];
    beforeEach(async () => {
      gateway = await scriptedGateway();
      place = await makeDatabase();
      databases = [];
      agents = [];
      pausables = [];
    });
    afterEach(async () => {
      for (const { child, folder } of pausables) {
        await kill(child);
        await rm(folder, { recursive: true, force: true });
      }
      for (const agent of agents) await agent.close();
      for (const database of databases) await database.close();
      await gateway.close();
      await place.remove();
    });

    async function startReplica(settings: { leaseMs?: number; maxRuns?: number } = {}): Promise<TestAgent> {
      const database = await connect(place.options, { log: silentLog });
      databases.push(database);
      const agent = await startAgent({
        gatewayUrl: gateway.url,
        name: 'twins',
        database,
        settings: { drainMs: 0, ...settings },
      });
      agents.push(agent);
      return agent;
    }

    test('give a steer to the replica that executes the run', async () => {
      const [executor, otherReplica] = [await startReplica(), await startReplica()];
      const firstAnswer = holdAnswer();
      gateway.answer((_, index) => (index === 0 ? firstAnswer.answer : says('Steered.')));
      await executor.client.sessions.create({ id: 's' });
      const run = await executor.client.sessions.prompt({ sessionId: 's', text: 'Go on.' });
      await firstAnswer.request;
      firstAnswer.say('On my way');
      const steer = await otherReplica.client.sessions.prompt({
        sessionId: 's',
        text: 'Turn left!',
        delivery: 'steer',
      });
      expect(steer).toMatchObject({ queued: true, queuePosition: 1 });
      firstAnswer.end();
      const [events, otherEvents] = await Promise.all(
        [executor, otherReplica].map(({ client }) =>
          collect(client.sessions.follow({ sessionId: 's', until: 'idle' })),
        ),
      );
      expect(seqs(events ?? [])).toEqual(seqs(otherEvents ?? []));
      expect(events?.find((event) => event.type === 'queue.removed')).toMatchObject({
        reason: 'steered',
        runId: steer.runId,
      });
      for (const { runId } of [run, steer])
        expect(await otherReplica.client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({
          status: 'completed',
        });
      expect(JSON.stringify(gateway.requests[1]?.prompt)).toMatch(/Go on\..*On my way.*Turn left!/);
    });

    test('fork an answer in progress with its text at either replica', async () => {
      const [executor, otherReplica] = [await startReplica(), await startReplica()];
      const heldAnswer = holdAnswer();
      gateway.answer(() => heldAnswer.answer);
      await executor.client.sessions.create({ id: 's' });
      await executor.client.sessions.prompt({ sessionId: 's', text: 'Go on.' });
      await heldAnswer.request;
      heldAnswer.say('On my way');
      const listCheckpoints = () => executor.sql`select 1 from agent.sessions_checkpoints`;
      await expect.poll(listCheckpoints).toHaveLength(1);
      for (const { client } of [executor, otherReplica]) {
        const fork = (await client.sessions.fork({ sessionId: 's' })) as { id: string };
        const { items } = await client.sessions.listMessages({ sessionId: fork.id });
        expect(items.at(-1)?.parts).toContainEqual(
          expect.objectContaining({ type: 'text', text: 'On my way' }),
        );
      }
      heldAnswer.end();
    });

    test('start a waiting input at the replica with a free place', async () => {
      const [fullReplica, otherReplica] = [
        await startReplica({ maxRuns: 1 }),
        // It looks for waiting inputs four times in each lease.
        await startReplica({ leaseMs: 1_000 }),
      ];
      const firstAnswer = holdAnswer();
      gateway.answer((_, index) => (index === 0 ? firstAnswer.answer : says('Done.')));
      const ids = ['a', 'b', 'c'];
      for (const id of ids) await fullReplica.client.sessions.create({ id });
      await fullReplica.client.sessions.prompt({ sessionId: 'a', text: 'first' });
      await firstAnswer.request;
      for (const sessionId of ['b', 'c'])
        expect(await fullReplica.client.sessions.prompt({ sessionId, text: sessionId })).toMatchObject({
          waitsFor: 'capacity',
        });
      for (const sessionId of ['b', 'c'])
        await collect(fullReplica.client.sessions.follow({ sessionId, until: 'idle' }));
      firstAnswer.end();
      await collect(otherReplica.client.sessions.follow({ sessionId: 'a', until: 'idle' }));
      // The place of the full replica is free again for inputs of its own.
      await fullReplica.client.sessions.prompt(
        { sessionId: 'a', text: 'last' },
        { headers: { prefer: 'wait=20' } },
      );
      expect(gateway.requests).toHaveLength(4);
    });

    test('run the queued inputs of both once each', async () => {
      const replicas = [await startReplica(), await startReplica()];
      const firstAnswer = holdAnswer();
      gateway.answer((_, index) => (index === 0 ? firstAnswer.answer : says('Done.')));
      await replicas[0]?.client.sessions.create({ id: 's' });
      await replicas[0]?.client.sessions.prompt({ sessionId: 's', text: 'first' });
      await firstAnswer.request;
      const receipts = await Promise.all(
        Array.from({ length: 40 }, (_, index) =>
          (replicas[index % 2] as TestAgent).client.sessions.prompt({
            sessionId: 's',
            text: `input ${index}`,
          }),
        ),
      );
      expect(receipts.map(({ queuePosition }) => queuePosition).sort((a, b) => a - b)).toEqual(
        Array.from({ length: 40 }, (_, index) => index + 1),
      );
      firstAnswer.end();
      const events = await collect(
        (replicas[1] as TestAgent).client.sessions.follow({ sessionId: 's', until: 'idle' }),
      );
      expect(seqs(events)).toEqual(seqs(events).map((_, index) => index + 1));
      expect(events.filter(({ type }) => type === 'run.settled')).toHaveLength(41);
      expect(gateway.requests).toHaveLength(41);
    });

    test('show the model each message once when they take turns', async () => {
      const replicas = [await startReplica(), await startReplica()];
      gateway.answer((_, index) => says(`Answer ${index}.`));
      await replicas[0]?.client.sessions.create({ id: 's' });
      for (let turn = 0; turn < 6; turn += 1)
        await replicas[turn % 3 === 0 ? 0 : 1]?.client.sessions.prompt(
          { sessionId: 's', text: `Question ${turn}?` },
          { headers: { prefer: 'wait=20' } },
        );
      for (const [turn, { prompt }] of gateway.requests.entries()) {
        const messages = JSON.stringify(prompt).match(/(?:Question|Answer) \d/g);
        expect(messages).toEqual([
          ...Array.from({ length: turn }, (_, index) => [`Question ${index}`, `Answer ${index}`]).flat(),
          `Question ${turn}`,
        ]);
      }
      const events = await collect(
        (replicas[0] as TestAgent).client.sessions.follow({ sessionId: 's', until: 'idle' }),
      );
      expect(seqs(events)).toEqual(seqs(events).map((_, index) => index + 1));
    });

    test('continue a run whose lease is renewed during a takeover', async () => {
      const [firstReplica, secondReplica] = [
        // It renews no lease during the test.
        await startReplica({ leaseMs: 600_000 }),
        // It looks for expired leases four times in each lease of its own.
        await startReplica({ leaseMs: 1_000 }),
      ];
      const slowAnswer = holdAnswer();
      gateway.answer(() => slowAnswer.answer);
      await firstReplica.client.sessions.create({ id: 's' });
      const { runId } = await firstReplica.client.sessions.prompt({ sessionId: 's', text: 'Begin.' });
      await slowAnswer.request;
      const setLease = (minutes: number) =>
        firstReplica.sql`
          update agent.sessions_runs
          set lease_until = agent.townhall_now() + ${minutes} * interval '1 minute' where run_id = ${runId}`;
      const findWaiting = () =>
        firstReplica.sql`
          select 1 from pg_stat_activity where datname = current_database()
          and wait_event_type = 'Lock' and query like '%sessions_sessions%'`;
      await firstReplica.database.tx(async (tx) => {
        await tx`select 1 from agent.sessions_sessions where active_run_id = ${runId} for update`;
        await setLease(-1);
        await expect.poll(async () => (await findWaiting()).length, { interval: 20 }).toBeGreaterThan(0);
        await setLease(10);
      });
      // The second check of the other replica is over by then.
      await expect.poll(async () => (await findWaiting()).length).toBe(0);
      await secondReplica.client.sessions.get({ sessionId: 's' });
      slowAnswer.say('Still here.');
      slowAnswer.end();
      await expect
        .poll(async () => (await firstReplica.client.sessions.getRun({ sessionId: 's', runId })).status)
        .toBe('completed');
    });

    /** A replica in a process of its own, so that SIGSTOP can pause it. */
    async function startPausable(name: string): Promise<AgentProcess> {
      const folder = await mkdtemp(join(tmpdir(), 'townhall-paused-'));
      const pausable = await launchAgent({
        place,
        gatewayUrl: gateway.url,
        dataDir: folder,
        env: { AGENT_NAME: name, AGENT_LEASE_MS: String(pausedLeaseMs) },
      });
      pausables.push({ child: pausable.child, folder });
      return pausable;
    }

    test('refuse appends of a replica paused beyond its lease', async () => {
      const slowAnswer = holdAnswer();
      gateway.answer((_, index) => (index === 0 ? slowAnswer.answer : says('After it.')));
      const paused = await startPausable('twins');
      const { sql, client, token } = await startReplica({ leaseMs: pausedLeaseMs });
      const statusOf = async (runId: string) =>
        (await client.sessions.getRun({ sessionId: 's', runId })).status;
      const countCheckpoints = async () => (await sql`select 1 from agent.sessions_checkpoints`).length;
      await client.sessions.create({ id: 's' });
      const pausedClient = createAgentClient({ baseUrl: paused.url, token });
      const run = await pausedClient.sessions.prompt({ sessionId: 's', text: 'Begin.' });
      await slowAnswer.request;
      slowAnswer.say('The beginning ');
      // Durable before the pause, so that the takeover keeps it.
      await expect.poll(countCheckpoints).toBeGreaterThan(0);
      paused.child.kill('SIGSTOP');
      await expect.poll(() => statusOf(run.runId)).toBe('interrupted');
      const { headSeq } = await client.sessions.get({ sessionId: 's' });
      paused.child.kill('SIGCONT');
      slowAnswer.say('and a late end');
      slowAnswer.end();
      // The former owner drops its run. It is awake once it answers.
      expect((await fetch(`${paused.url}/health`)).status).toBe(200);
      await expect.poll(countCheckpoints).toBe(0);
      const nextRun = await client.sessions.prompt(
        { sessionId: 's', text: 'And now?' },
        { headers: { prefer: 'wait=20' } },
      );
      const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
      expect(seqs(events)).toEqual(seqs(events).map((_, index) => index + 1));
      const lateEvents = events.filter(
        (event) => 'seq' in event && event.seq > headSeq && 'runId' in event && event.runId === run.runId,
      );
      expect(lateEvents).toEqual([]);
      expect(
        events.flatMap((event) => (event.type === 'run.settled' ? [[event.runId, event.outcome]] : [])),
      ).toEqual([
        [run.runId, 'interrupted'],
        [nextRun.runId, 'completed'],
      ]);
      const messages = JSON.stringify((await client.sessions.listMessages({ sessionId: 's' })).items);
      expect(messages).toContain('The beginning');
      expect(messages).not.toContain('a late end');
    });
  },
);
