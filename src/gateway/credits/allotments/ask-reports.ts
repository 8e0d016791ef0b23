// Requests reports before balances are read or backed up: the other gateways apply
// their charges and report their reservations.
import type { Clock } from '../../../kernel/clock.ts';
import type { Database } from '../../../kernel/data/database.ts';
import { canAskReports, sqlAllotmentStore } from './sql-store.ts';
import type { AllotmentStore } from './store.ts';

export interface AskReportsOptions {
  store: Pick<AllotmentStore, 'askReports' | 'answeredReports'>;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  /** Null in a process that serves no calls. */
  gatewayId: string | null;
  /** Null: every gateway that holds credits of any user. */
  userId: string | null;
}

// Gateways poll for requests ten times a second; a stopped process never responds.
const maximumMs = 500;
// How often the gateways' answers are read. Short, since a request waits for them.
const answerPollMs = 20;

/** Resolves when every gateway has responded, or after half a second. */
export async function askReports({ store, clock, gatewayId, userId }: AskReportsOptions): Promise<void> {
  const requests = await store.askReports(gatewayId, userId);
  const untilMs = clock.monotonicMs() + maximumMs;
  while (requests.size > 0 && clock.monotonicMs() < untilMs) {
    await clock.sleep(answerPollMs);
    for (const [respondingId, number] of await store.answeredReports([...requests.keys()]))
      if (number >= (requests.get(respondingId) ?? 0)) requests.delete(respondingId);
  }
}

/**
 * Requests reports from all gateways, for a command that serves no calls, such as a backup. Has no
 * effect on a database of an older release, whose gateways cannot answer such requests.
 */
export async function askAllReports(
  database: Pick<Database, 'sql'>,
  clock: AskReportsOptions['clock'],
): Promise<void> {
  if (!(await canAskReports(database))) return;
  await askReports({ store: sqlAllotmentStore(database), clock, gatewayId: null, userId: null });
}
