// Counts impossible usage reports per user. One may be a provider's bug; several in
// an hour suggest requests that hide their cost from the gateway, so the user's paid
// calls are stopped, on every replica and across restarts.
import { createSharedReads } from '../../../kernel/async.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { AlarmStore } from './alarm-store.ts';

export interface UsageAlarms {
  /** Counts one alarm of the user. */
  report(userId: string): void;
  /** Throws a 403 while the user has too many alarms in the last hour. */
  requireFew(userId: string): void;
  counts(): UsageAlarmCounts;
  /**
   * Reads the stored alarms of all replicas. A failure is logged, not thrown; the known alarms then
   * stay in force.
   */
  refresh(): Promise<void>;
  /** Resolves when every reported alarm is stored, or could not be stored. */
  untilSettled(): Promise<void>;
}

export interface UsageAlarmCounts {
  /** Alarms that this process reported since it started. */
  alarms: number;
  /** Users whose paid calls are stopped now. */
  stoppedUsers: number;
}

export interface UsageAlarmsOptions {
  clock: Pick<Clock, 'monotonicMs'>;
  /** Alarms within an hour that stop the paid calls of a user; 3 by default. */
  alarmsToStop?: number | undefined;
  /** Without a store, alarms are lost when the process exits. */
  store?: AlarmStore | undefined;
  log?: Log | undefined;
}

export const alarmWindowMs = 3_600_000;
export const defaultAlarmsToStop = 3;
// Above this number of users, the user whose last alarm is the oldest is dropped.
const maximumUsers = 10_000;

export function createUsageAlarms({
  clock,
  alarmsToStop = defaultAlarmsToStop,
  store,
  log,
}: UsageAlarmsOptions): UsageAlarms {
  let recent = createRecentAlarms(clock, alarmsToStop);
  const writes = createAlarmWrites({ clock, store, log });
  let alarms = 0;

  async function readStored(alarmStore: AlarmStore): Promise<void> {
    writes.repeatFailed();
    try {
      const storedAlarms = await alarmStore.list(alarmWindowMs);
      // The list may lack an alarm that is not stored yet, so keep the present alarms. The write notifies
      // all replicas, and this one refreshes again then.
      if (writes.hasUnstored()) return;
      const nowMs = clock.monotonicMs();
      recent = createRecentAlarms(clock, alarmsToStop);
      for (const { userId, ageMs } of storedAlarms) recent.add(userId, nowMs - ageMs);
    } catch (error) {
      log?.warn({ err: error }, 'the usage alarms could not be read');
    }
  }

  // One read at a time: the older of two overlapping lists could replace the newer one.
  const sharedReads = createSharedReads<void>();

  return {
    report(userId) {
      alarms += 1;
      const nowMs = clock.monotonicMs();
      recent.add(userId, nowMs);
      writes.add(userId, nowMs);
    },
    requireFew(userId) {
      const waitMs = recent.stoppedMs(userId);
      if (waitMs > 0) throw paidCallsStopped(alarmsToStop, Math.ceil(waitMs / 1000));
    },
    counts: () => ({ alarms, stoppedUsers: recent.countStopped() }),
    async refresh() {
      if (store !== undefined) await sharedReads('alarms', () => readStored(store));
    },
    untilSettled: writes.untilSettled,
  };
}

/** Stores alarms in the background. An alarm that cannot be stored is kept for `repeatFailed`. */
function createAlarmWrites({ clock, store, log }: Pick<UsageAlarmsOptions, 'clock' | 'store' | 'log'>) {
  const writes = new Set<Promise<void>>();
  let failedAlarms: { userId: string; timeMs: number }[] = [];

  function add(userId: string, timeMs: number): void {
    if (store === undefined) return;
    const write = store.add(userId).catch((error: unknown) => {
      failedAlarms.push({ userId, timeMs });
      log?.warn(
        { err: error, userId },
        'a usage alarm could not be stored yet; until then it counts in this process only',
      );
    });
    writes.add(write);
    void write.then(() => writes.delete(write));
  }

  return {
    add,
    repeatFailed(): void {
      const oldestMs = clock.monotonicMs() - alarmWindowMs;
      const repeatedAlarms = failedAlarms;
      failedAlarms = [];
      for (const { userId, timeMs } of repeatedAlarms) if (timeMs > oldestMs) add(userId, timeMs);
    },
    hasUnstored: (): boolean => writes.size > 0 || failedAlarms.length > 0,
    async untilSettled(): Promise<void> {
      await Promise.all(writes);
    },
  };
}

/** The alarms of each user within the last hour, `alarmsToStop` of them at most. */
function createRecentAlarms(clock: UsageAlarmsOptions['clock'], alarmsToStop: number) {
  // The times by user, in the order of the last alarm.
  const timesByUser = new Map<string, number[]>();

  function recentTimes(userId: string): number[] {
    const oldestMs = clock.monotonicMs() - alarmWindowMs;
    return (timesByUser.get(userId) ?? []).filter((timeMs) => timeMs > oldestMs);
  }

  return {
    add(userId: string, timeMs: number): void {
      const times = [...recentTimes(userId), timeMs].slice(-alarmsToStop);
      timesByUser.delete(userId);
      timesByUser.set(userId, times);
      const [oldestUser] = timesByUser.keys();
      if (timesByUser.size > maximumUsers && oldestUser !== undefined) timesByUser.delete(oldestUser);
    },
    /** How long the user's paid calls remain stopped; 0 if they are not stopped. */
    stoppedMs(userId: string): number {
      if (!timesByUser.has(userId)) return 0;
      const times = recentTimes(userId);
      const [firstTimeMs] = times;
      if (firstTimeMs === undefined) timesByUser.delete(userId);
      if (firstTimeMs === undefined || times.length < alarmsToStop) return 0;
      return firstTimeMs + alarmWindowMs - clock.monotonicMs();
    },
    countStopped: (): number =>
      [...timesByUser.keys()].filter((userId) => recentTimes(userId).length >= alarmsToStop).length,
  };
}

function paidCallsStopped(alarms: number, waitSeconds: number): Problem {
  return new Problem(
    'forbidden',
    'paid_calls_stopped',
    `Paid calls of this user are stopped: ${alarms} calls within an hour had a usage far above ` +
      'what they could use. Models without a price are still available.',
    { headers: { 'retry-after': String(Math.max(waitSeconds, 1)) } },
  );
}
