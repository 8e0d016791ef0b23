// Before balances are read or backed up: the other gateways apply what they have charged, and report what they have reserved.
import type { Clock } from '../../../kernel/clock.ts';
import type { Database } from '../../../kernel/data/database.ts';
import { canAskReports, sqlAllotmentStore } from './sql-store.ts';
import type { AllotmentStore } from './store.ts';

export interface AskReportsOptions {
  store: Pick<AllotmentStore, 'askReports' | 'answeredReports'>;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  /** Null in a process that serves no calls. */
  gatewayId: string | null;
  /** Null asks every gateway that holds credits of any user. */
  userId: string | null;
}

// Gateways read ten times a second whether they are asked; a process that is stopped does not answer.
const maximumMs = 500;
const askAgainMs = 20;

/** Resolves when every gateway has answered, or after half a second. */
export async function askReports({ store, clock, gatewayId, userId }: AskReportsOptions): Promise<void> {
  const requests = await store.askReports(gatewayId, userId);
  const untilMs = clock.monotonicMs() + maximumMs;
  while (requests.size > 0 && clock.monotonicMs() < untilMs) {
    await clock.sleep(askAgainMs);
    for (const [answering, number] of await store.answeredReports([...requests.keys()]))
      if (number >= (requests.get(answering) ?? 0)) requests.delete(answering);
  }
}

/** For a command that serves no calls, such as a backup: as above, of all gateways. A database of an older release asks none. */
export async function askAllReports(
  database: Pick<Database, 'sql'>,
  clock: AskReportsOptions['clock'],
): Promise<void> {
  if (!(await canAskReports(database))) return;
  await askReports({ store: sqlAllotmentStore(database), clock, gatewayId: null, userId: null });
}
