// The first events of new sessions as stored events. The statement that inserts the session's row inserts
// them too, so they are not appended to the log.
import { asJson, type StoredEvent } from './events.ts';
import type { NewSession, SessionRecord } from './session-store.ts';

/** Leaves out sessions that were not inserted. */
export function firstEvents(
  sessions: readonly NewSession[],
  inserted: ReadonlyMap<string, SessionRecord>,
): StoredEvent[] {
  return sessions.flatMap(({ key: sessionKey, forkSeq = 0, events = [] }) => {
    const record = inserted.get(sessionKey);
    if (record === undefined) return [];
    return events.map(({ type, runId = null, ...data }, index) => ({
      sessionKey,
      seq: forkSeq + index + 1,
      runId,
      type,
      json: asJson(data),
      time: record.createdAt,
    }));
  });
}
