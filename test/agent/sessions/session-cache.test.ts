// The cache of sessions: how much the conversations of new sessions count, and what two readers of one leave.
import { expect, test } from 'vitest';
import { createEventLog } from '../../../src/agent/sessions/event-log/log.ts';
import type { SessionRecord } from '../../../src/agent/sessions/event-log/session-store.ts';

test('drops the oldest conversation when first inputs exceed the capacity', async () => {
  let queries = 0;
  const sql = (() => {
    queries += 1;
    return Object.assign(Promise.resolve([]), { length: 0 });
  }) as never;
  const eventLog = createEventLog({ database: { sql, tx: sql, engine: 'embedded' }, agentId: 'agt' });
  const session = (key: string) => ({ key, lineage: [], headSeq: 3 }) as unknown as SessionRecord;
  // The cache holds four million characters, so the third conversation does not fit beside the other two.
  const text = 'x'.repeat(1_500_000);
  for (const key of ['a', 'b', 'c'])
    await eventLog.conversation(session(key), 3, { id: key, role: 'user', parts: [{ type: 'text', text }] });
  expect(queries).toBe(0);
  await eventLog.conversation(session('c'), 3, null);
  expect(queries).toBe(0);
  await eventLog.conversation(session('a'), 3, null);
  expect(queries).toBeGreaterThan(0);
});

test('adds a first input once that another reader has found in the log', async () => {
  const first = { id: 'msg_1', role: 'user' as const, parts: [{ type: 'text' as const, text: 'hi' }] };
  const event = (seq: number, type: string, data: object) => ({
    session_id: 'a',
    seq,
    run_id: 'run_1',
    type,
    time: new Date(0),
    json: JSON.stringify(data),
  });
  const rows = [
    event(2, 'message.completed', { type: 'message.completed', messageId: 'msg_1', message: first }),
    event(3, 'run.started', { type: 'run.started', model: 'm', messageId: 'msg_2' }),
  ];
  const sql = (() => Promise.resolve(rows)) as never;
  const eventLog = createEventLog({ database: { sql, tx: sql, engine: 'embedded' }, agentId: 'agt' });
  // The record of the first reader is older than the start of the run, whose last event is number 4.
  const session = { key: 'a', lineage: [], headSeq: 1 } as unknown as SessionRecord;
  expect((await eventLog.conversation(session, 1, null)).messages).toHaveLength(1);
  expect((await eventLog.conversation(session, 4, first)).messages).toHaveLength(1);
});
