// The cache of sessions: how much the conversations of new sessions count, and what two readers of one leave.
import { expect, test } from 'vitest';
import { createEventLog, type EventLog } from '../../../src/agent/sessions/event-log/log.ts';
import type { SessionRecord } from '../../../src/agent/sessions/event-log/session-store.ts';

const logOver = (sql: () => Promise<object[]>): EventLog =>
  createEventLog({ database: { sql: sql as never, tx: sql as never, engine: 'embedded' }, agentId: 'agt' });

const sessionOf = (key: string, headSeq: number): SessionRecord =>
  ({ key, lineage: [], headSeq }) as unknown as SessionRecord;

test('drops the oldest conversation when first inputs exceed the capacity', async () => {
  let queries = 0;
  const eventLog = logOver(async () => {
    queries += 1;
    return [];
  });
  // The cache holds four million characters, so the third conversation does not fit beside the other two.
  const text = 'x'.repeat(1_500_000);
  for (const key of ['a', 'b', 'c'])
    await eventLog.conversation(sessionOf(key, 3), 3, {
      id: key,
      role: 'user',
      parts: [{ type: 'text', text }],
    });
  expect(queries).toBe(0);
  await eventLog.conversation(sessionOf('c', 3), 3, null);
  expect(queries).toBe(0);
  await eventLog.conversation(sessionOf('a', 3), 3, null);
  expect(queries).toBeGreaterThan(0);
});

test('adds a first input once when another reader has it from the log', async () => {
  const firstInput = { id: 'msg_1', role: 'user' as const, parts: [{ type: 'text' as const, text: 'hi' }] };
  const event = (seq: number, type: string, data: object) => ({
    session_id: 'a',
    seq,
    run_id: 'run_1',
    type,
    time: new Date(0),
    json: JSON.stringify(data),
  });
  const rows = [
    event(2, 'message.completed', { type: 'message.completed', messageId: 'msg_1', message: firstInput }),
    event(3, 'run.started', { type: 'run.started', model: 'm', messageId: 'msg_2' }),
  ];
  const eventLog = logOver(async () => rows);
  // The record of the first reader is older than the start of the run, whose last event is number 4.
  const session = sessionOf('a', 1);
  expect((await eventLog.conversation(session, 1, null)).messages).toHaveLength(1);
  expect((await eventLog.conversation(session, 4, firstInput)).messages).toHaveLength(1);
});
