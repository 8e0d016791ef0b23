// Locks of several sessions at once.
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { insertSessions, lockSessions } from '../../../src/agent/sessions/event-log/session-store.ts';
import { testDatabase, type TestDatabase } from '../../support/databases.ts';

let world: TestDatabase;
beforeAll(async () => {
  world = await testDatabase();
});
afterAll(() => world.close());

// The embedded engine has one connection, so no transaction waits for another one.
test.runIf(inject('databaseSource')?.engine === 'postgres')(
  'locks sessions in the order of their keys, whatever locates them',
  async () => {
    const { sql, tx } = world.database;
    const agentId = 'agt_locks';
    await sql`insert into agent.tokens_agents (agent_id, name) values (${agentId}, 'locks')`;
    await insertSessions(sql, [
      { key: 'ses_1', id: 'first', agentId, kind: 'chat', chatId: 'chat' },
      { key: 'ses_2', id: 'second', agentId, kind: 'sdk' },
    ]);
    const [firstLocked, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const blocker = tx(async (unit) => {
      await unit`select 1 from agent.sessions_sessions where session_id = 'ses_1' for update`;
      firstLocked.resolve();
      await release.promise;
    });
    await firstLocked.promise;
    const locked = tx((unit) =>
      lockSessions({ tx: unit, appended: [], applied: [] }, agentId, [{ id: 'second' }, { chatId: 'chat' }]),
    );
    const waiters = () => sql`
      select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
    await expect.poll(waiters).toHaveLength(1);
    // It waits for the first session and has not locked the second one.
    const freeKeys = await tx(
      (unit) => unit`select session_id from agent.sessions_sessions where session_id = 'ses_2'
        for update skip locked`,
    );
    release.resolve();
    await blocker;
    expect(freeKeys).toHaveLength(1);
    expect((await locked).map(({ key }) => key)).toEqual(['ses_1', 'ses_2']);
  },
);
