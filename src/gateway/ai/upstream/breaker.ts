// Circuit breaker for one model of one provider: it opens after enough failures, and
// after a pause lets one call pass as a probe. It counts what its callers report and does
// not know why a call failed.
import type { Clock } from '../../../kernel/clock.ts';

export interface BreakerSettings {
  /** Opens after this many failures in a row. */
  consecutiveFailures: number;
  /**
   * Opens also at this share of failures among at least `windowCalls` calls in the last `windowMs`.
   */
  failureShare: number;
  windowCalls: number;
  windowMs: number;
  /** From opening to the probe. */
  openMs: number;
}

export const defaultBreakerSettings: BreakerSettings = {
  consecutiveFailures: 5,
  failureShare: 0.5,
  windowCalls: 20,
  windowMs: 30_000,
  openMs: 15_000,
};

/** Allows one call. The caller calls exactly one of the methods when the outcome is known. */
export interface Permit {
  recordSuccess(): void;
  recordFailure(): void;
  /**
   * Returns the permit after an outcome that does not reflect the provider's health, such as a
   * caller that disconnected.
   */
  release(): void;
}

export interface Breaker {
  /** Undefined while the breaker is open. */
  tryAcquire(): Permit | undefined;
  /** Records a failure after the call had counted as a success, such as a stream that broke off. */
  recordLateFailure(): void;
  /** Time to the next probe; 0 while closed. */
  waitMs(): number;
  /** Copies the state of the same breaker in another process. */
  follow(isOpen: boolean): void;
}

type State = { phase: 'closed' } | { phase: 'open'; untilMs: number } | { phase: 'probing' };

export function createBreaker({
  clock,
  settings,
  onChange = () => undefined,
}: {
  clock: Pick<Clock, 'monotonicMs'>;
  settings: BreakerSettings;
  /** Called when the breaker opens, and when a probe closes it. */
  onChange?: (isOpen: boolean) => void;
}): Breaker {
  const failures = createFailureWindow({ clock, settings });
  let state: State = { phase: 'closed' };

  function becomeOpen(): void {
    state = { phase: 'open', untilMs: clock.monotonicMs() + settings.openMs };
  }

  function becomeClosed(): void {
    state = { phase: 'closed' };
    failures.clear();
  }

  function open(): void {
    becomeOpen();
    onChange(true);
  }

  function recordFailure(): void {
    failures.count({ isFailure: true });
    // Calls that were running when the breaker opened do not extend its pause.
    if (state.phase === 'closed' && failures.exceedLimits()) open();
  }

  const closedPermit: Permit = {
    recordSuccess: () => failures.count({ isFailure: false }),
    recordFailure,
    release: () => {},
  };

  function createProbe(): Permit {
    const lastOpen: State = { phase: 'open', untilMs: clock.monotonicMs() };
    state = { phase: 'probing' };
    return {
      recordSuccess() {
        becomeClosed();
        onChange(false);
      },
      recordFailure: open,
      // The next call may probe at once.
      release() {
        state = lastOpen;
      },
    };
  }

  return {
    tryAcquire() {
      if (state.phase === 'closed') return closedPermit;
      return state.phase === 'open' && clock.monotonicMs() >= state.untilMs ? createProbe() : undefined;
    },
    recordLateFailure: recordFailure,
    follow: (isOpen) => (isOpen ? becomeOpen() : becomeClosed()),
    waitMs() {
      if (state.phase === 'closed') return 0;
      return state.phase === 'open' ? Math.max(state.untilMs - clock.monotonicMs(), 1) : 1;
    },
  };
}

interface Slot {
  startedMs: number;
  calls: number;
  failures: number;
}

// Counts calls and failures in a sliding window of 30 slots.
function createFailureWindow({
  clock,
  settings,
}: {
  clock: Pick<Clock, 'monotonicMs'>;
  settings: BreakerSettings;
}) {
  const slotMs = settings.windowMs / 30;
  let slots: Slot[] = [];
  let consecutiveFailures = 0;

  return {
    count({ isFailure }: { isFailure: boolean }): void {
      const now = clock.monotonicMs();
      slots = slots.filter((slot) => now - slot.startedMs < settings.windowMs);
      let slot = slots.at(-1);
      if (slot === undefined || now - slot.startedMs >= slotMs) {
        slot = { startedMs: now, calls: 0, failures: 0 };
        slots.push(slot);
      }
      slot.calls += 1;
      if (isFailure) slot.failures += 1;
      consecutiveFailures = isFailure ? consecutiveFailures + 1 : 0;
    },
    exceedLimits(): boolean {
      if (consecutiveFailures >= settings.consecutiveFailures) return true;
      const calls = slots.reduce((sum, slot) => sum + slot.calls, 0);
      const failures = slots.reduce((sum, slot) => sum + slot.failures, 0);
      return calls >= settings.windowCalls && failures >= calls * settings.failureShare;
    },
    clear(): void {
      consecutiveFailures = 0;
      slots = [];
    },
  };
}
