// Counts impossible usage reports per user. One may be a provider's bug; several in an hour suggest requests that hide
// their cost from the gateway, so the user's paid calls stop. Counts are per replica and lost on restart.
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';

export interface UsageAlarms {
  /** Counts one alarm of the user. */
  report(userId: string): void;
  /** Throws a 403 while the user has too many alarms in the last hour. */
  requireFew(userId: string): void;
  counts(): UsageAlarmCounts;
}

export interface UsageAlarmCounts {
  /** Since the start. */
  alarms: number;
  /** Users whose paid calls are stopped now. */
  stoppedUsers: number;
}

const windowMs = 3_600_000;
// Beyond this number, the user with the oldest last alarm is dropped.
const maximumUsers = 10_000;

/** `alarmsToStop` alarms within an hour stop the paid calls of a user. */
export function createUsageAlarms({
  clock,
  alarmsToStop = 3,
}: {
  clock: Pick<Clock, 'monotonicMs'>;
  alarmsToStop?: number | undefined;
}): UsageAlarms {
  // In the order of the last alarm.
  const timesByUser = new Map<string, number[]>();
  let alarms = 0;

  function recent(userId: string): number[] {
    const oldestMs = clock.monotonicMs() - windowMs;
    return (timesByUser.get(userId) ?? []).filter((timeMs) => timeMs > oldestMs);
  }

  return {
    report(userId) {
      alarms += 1;
      const times = [...recent(userId), clock.monotonicMs()].slice(-alarmsToStop);
      timesByUser.delete(userId);
      timesByUser.set(userId, times);
      const [oldest] = timesByUser.keys();
      if (timesByUser.size > maximumUsers && oldest !== undefined) timesByUser.delete(oldest);
    },
    requireFew(userId) {
      if (!timesByUser.has(userId)) return;
      const times = recent(userId);
      const [first] = times;
      if (first === undefined) timesByUser.delete(userId);
      if (first === undefined || times.length < alarmsToStop) return;
      const waitSeconds = Math.ceil((first + windowMs - clock.monotonicMs()) / 1000);
      throw new Problem(
        'forbidden',
        'paid_calls_stopped',
        `Paid calls of this user are stopped: ${alarmsToStop} calls within an hour had a usage far above what they could use. Models without a price still answer.`,
        {
          headers: { 'retry-after': String(Math.max(waitSeconds, 1)) },
        },
      );
    },
    counts: () => ({
      alarms,
      stoppedUsers: [...timesByUser.keys()].filter((userId) => recent(userId).length >= alarmsToStop).length,
    }),
  };
}
