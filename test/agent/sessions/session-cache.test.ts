// The cache of sessions: how much the conversations of new sessions count.
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
