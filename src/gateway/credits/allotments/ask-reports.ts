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
// How often the numbers of the answers are read; a caller waits for them.
const answerPollMs = 20;

/** Resolves when every gateway has responded, or after half a second. */
export async function askReports({ store, clock, gatewayId, userId }: AskReportsOptions): Promise<void> {
  const requests = await store.askReports(gatewayId, userId);
  const untilMs = clock.monotonicMs() + maximumMs;
  while (requests.size > 0 && clock.monotonicMs() < untilMs) {
    await clock.sleep(answerPollMs);
    for (const [answering, number] of await store.answeredReports([...requests.keys()]))
      if (number >= (requests.get(answering) ?? 0)) requests.delete(answering);
  }
}

/**
 * The same for all gateways, for a command that serves no calls, such as a backup.
 * No effect on a database of an older release.
 */
export async function askAllReports(
  database: Pick<Database, 'sql'>,
  clock: AskReportsOptions['clock'],
): Promise<void> {
  if (!(await canAskReports(database))) return;
  await askReports({ store: sqlAllotmentStore(database), clock, gatewayId: null, userId: null });
}
