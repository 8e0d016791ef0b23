// Folds the events of sessions at rest, in small batches with pauses, so that other queries are not delayed.
import type { Clock } from '../../../kernel/clock.ts';
import type { Database } from '../../../kernel/data/database.ts';
import { findFoldableSessions, foldEvents } from './fold-store.ts';

export interface FoldOptions {
  database: Pick<Database, 'sql'>;
  agentId: string;
  clock: Pick<Clock, 'sleep'>;
}

// Readers that follow a session usually come back within a day, and folded events are slower to read.
const idleHours = 24;
const sessionsPerRound = 100;
// Events per statement, which then takes a few milliseconds.
const maxEvents = 500;
const pauseMs = 50;

/** Resolves when no session has anything to fold, or the signal is aborted. */
export async function foldSessionsAtRest(
  { database: { sql }, agentId, clock }: FoldOptions,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    const sessions = await findFoldableSessions(sql, { agentId, idleHours, limit: sessionsPerRound });
    for (const { key, foldedSeq, headSeq } of sessions) {
      for (let fromSeq = foldedSeq; fromSeq < headSeq; fromSeq += maxEvents) {
        if (signal.aborted) return;
        await foldEvents(sql, { key, from: fromSeq, to: Math.min(fromSeq + maxEvents, headSeq) });
        await clock.sleep(pauseMs, signal).catch(() => {});
      }
    }
    if (sessions.length < sessionsPerRound) return;
  }
}
