// The events with which sessions are created, as the log has them. They are inserted with the row
// and not appended.
import { asJson, type StoredEvent } from './events.ts';
import type { NewSession, SessionRecord } from './session-store.ts';

/** Only those of the sessions that were inserted. */
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
