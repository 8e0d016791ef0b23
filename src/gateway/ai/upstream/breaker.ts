// A breaker before one model of one provider: after enough failures nothing is sent there for a while, then one call
// goes ahead as a probe. It counts what its callers report and knows nothing of why a call failed.
import type { Clock } from '../../../kernel/clock.ts';

export interface BreakerSettings {
  /** So many failures in a row open it. */
  consecutiveFailures: number;
  /** So does this share of failures among at least `windowCalls` in the last `windowMs`. */
  failureShare: number;
  windowCalls: number;
  windowMs: number;
  /** How long it stays open before a probe. */
  openMs: number;
}

export const defaultBreakerSettings: BreakerSettings = {
  consecutiveFailures: 5,
  failureShare: 0.5,
  windowCalls: 20,
  windowMs: 30_000,
  openMs: 15_000,
};

/** The right to make one call; exactly one of its methods is called when the outcome is known. */
export interface Permit {
  recordSuccess(): void;
  recordFailure(): void;
  /** The outcome says nothing of the provider, as when our own caller went away. */
  release(): void;
}

export interface Breaker {
  /** Undefined while calls are held off. */
  tryAcquire(): Permit | undefined;
  /** A failure of a call that had counted as a success, such as a stream that broke off. */
  recordLateFailure(): void;
  /** Until the next probe; 0 while calls may pass. */
  waitMs(): number;
}

interface Slot {
  startedMs: number;
  calls: number;
  failures: number;
}

export function createBreaker({
  clock,
  settings,
}: {
  clock: Pick<Clock, 'monotonicMs'>;
  settings: BreakerSettings;
}): Breaker {
  const slotMs = settings.windowMs / 30;
  let slots: Slot[] = [];
  let consecutive = 0;
  // Undefined while closed.
  let openUntilMs: number | undefined;
  let probing = false;

  function count(failed: boolean): void {
    const now = clock.monotonicMs();
    slots = slots.filter((slot) => now - slot.startedMs < settings.windowMs);
    let slot = slots.at(-1);
    if (slot === undefined || now - slot.startedMs >= slotMs) {
      slot = { startedMs: now, calls: 0, failures: 0 };
      slots.push(slot);
    }
    slot.calls += 1;
    if (failed) slot.failures += 1;
    consecutive = failed ? consecutive + 1 : 0;
  }

  function isTooMuch(): boolean {
    if (consecutive >= settings.consecutiveFailures) return true;
    const calls = slots.reduce((sum, slot) => sum + slot.calls, 0);
    const failures = slots.reduce((sum, slot) => sum + slot.failures, 0);
    return calls >= settings.windowCalls && failures >= calls * settings.failureShare;
  }

  function open(): void {
    openUntilMs = clock.monotonicMs() + settings.openMs;
  }

  function close(): void {
    openUntilMs = undefined;
    consecutive = 0;
    slots = [];
  }

  function probe(): Permit {
    probing = true;
    const settled = (act: () => void) => () => {
      probing = false;
      act();
    };
    return { recordSuccess: settled(close), recordFailure: settled(open), release: settled(() => {}) };
  }

  function fail(): void {
    count(true);
    // Calls that were under way when it opened do not keep it open for longer.
    if (openUntilMs === undefined && isTooMuch()) open();
  }

  return {
    tryAcquire() {
      if (openUntilMs === undefined)
        return { recordSuccess: () => count(false), recordFailure: fail, release: () => {} };
      return probing || clock.monotonicMs() < openUntilMs ? undefined : probe();
    },
    recordLateFailure: fail,
    waitMs: () => (openUntilMs === undefined ? 0 : Math.max(openUntilMs - clock.monotonicMs(), 1)),
  };
}
