// Takes idle credits out of a user's allotments before a refund, dispute or
// deduction, so that no gateway starts a call with them.
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { Allotments } from './open-allotments.ts';
import type { AllotmentStore } from './store.ts';

export interface RecallUserOptions {
  /** Null in a process that serves no calls. */
  allotments: Allotments | null;
  store: Pick<AllotmentStore, 'close' | 'listAllotments'>;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  log: Log;
}

// A gateway polls for recalls ten times a second; a stopped gateway never answers.
const maximumMs = 1_000;
// How often the rows are read until the credits are back.
const recallPollMs = 50;

/**
 * Closes a user's allotments, and waits until every gateway has given its idle
 * credits back, for a second at most.
 */
export async function recallUser(userId: string, options: RecallUserOptions): Promise<void> {
  const { allotments, store, clock, log } = options;
  const startedMs = clock.monotonicMs();
  if ((await store.close({ userId })) === 0) return;
  for (;;) {
    await allotments?.ledger.giveBacks.answerRecalls();
    const waitingAllotments = (await store.listAllotments(userId)).filter(
      ({ amount, reserved, unapplied }) => amount > reserved + unapplied,
    );
    if (waitingAllotments.length === 0) return;
    if (clock.monotonicMs() - startedMs >= maximumMs) {
      log.warn(
        { user_id: userId, allotments: waitingAllotments.length },
        'gateways have not given idle credits back in time',
      );
      return;
    }
    await clock.sleep(recallPollMs);
  }
}
