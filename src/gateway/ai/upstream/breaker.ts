// Circuit breaker for one model at one endpoint of its provider: it opens after enough failures,
// and after a pause lets one call pass as a probe. Its callers decide what counts as a failure.
import type { Clock } from '../../../kernel/clock.ts';

export interface BreakerSettings {
  /** Opens after this many failures in a row. */
  consecutiveFailures: number;
  /**
   * Opens too when this share of at least `windowCalls` calls in the last `windowMs` has failed.
   */
  failureShare: number;
  windowCalls: number;
  windowMs: number;
  /** How long the breaker stays open before a call may probe the provider. */
  openMs: number;
}

export const defaultBreakerSettings: BreakerSettings = {
  consecutiveFailures: 5,
  failureShare: 0.5,
  windowCalls: 20,
  windowMs: 30_000,
  openMs: 15_000,
};

/** Allows one call. Its holder calls exactly one of the methods when the outcome is known. */
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
  /**
   * Records the failure of a call that had counted as a success, such as a stream that broke off.
   */
  recordLateFailure(): void;
  /** Time to the next probe; 0 while closed, and at least 1 otherwise, also when a probe is due or runs. */
  waitMs(): number;
  /** Copies the state of the same breaker in another process. */
  follow(isOpen: boolean): void;
}

interface BreakerOptions {
  clock: Pick<Clock, 'monotonicMs'>;
  settings: BreakerSettings;
  /** Called when the breaker opens, and when a probe closes it. */
  onChange?: (isOpen: boolean) => void;
}

type Phase = { phase: 'closed' } | { phase: 'open'; untilMs: number } | { phase: 'probing' };

interface BreakerState extends Required<BreakerOptions> {
  failures: FailureWindow;
  current: Phase;
}

export function createBreaker({ clock, settings, onChange = () => undefined }: BreakerOptions): Breaker {
  const failures = createFailureWindow({ clock, settings });
  const breaker: BreakerState = { clock, settings, onChange, failures, current: { phase: 'closed' } };
  // One permit for all calls while closed: it has no state of its own.
  const closedPermit: Permit = {
    recordSuccess: () => failures.count({ isFailure: false }),
    recordFailure: () => recordFailure(breaker),
    release: () => {},
  };
  return {
    tryAcquire() {
      const { current } = breaker;
      if (current.phase === 'closed') return closedPermit;
      const isProbeDue = current.phase === 'open' && clock.monotonicMs() >= current.untilMs;
      return isProbeDue ? startProbe(breaker) : undefined;
    },
    recordLateFailure: () => recordFailure(breaker),
    follow: (isOpen) => (isOpen ? open(breaker) : close(breaker)),
    waitMs() {
      const { current } = breaker;
      if (current.phase === 'closed') return 0;
      return current.phase === 'open' ? Math.max(current.untilMs - clock.monotonicMs(), 1) : 1;
    },
  };
}

function open(breaker: BreakerState): void {
  breaker.current = { phase: 'open', untilMs: breaker.clock.monotonicMs() + breaker.settings.openMs };
}

function close(breaker: BreakerState): void {
  breaker.current = { phase: 'closed' };
  breaker.failures.clear();
}

function recordFailure(breaker: BreakerState): void {
  breaker.failures.count({ isFailure: true });
  // Calls that were running when the breaker opened do not extend its pause.
  if (breaker.current.phase !== 'closed' || !breaker.failures.exceedLimits()) return;
  open(breaker);
  breaker.onChange(true);
}

function startProbe(breaker: BreakerState): Permit {
  const beforeProbe: Phase = { phase: 'open', untilMs: breaker.clock.monotonicMs() };
  const probing: Phase = { phase: 'probing' };
  breaker.current = probing;
  return {
    recordSuccess() {
      close(breaker);
      breaker.onChange(false);
    },
    recordFailure() {
      open(breaker);
      breaker.onChange(true);
    },
    // The probe told nothing, so the next call may probe at once, unless `follow` has decided meanwhile.
    release() {
      if (breaker.current === probing) breaker.current = beforeProbe;
    },
  };
}

interface Slot {
  startedMs: number;
  calls: number;
  failures: number;
}

type FailureWindow = ReturnType<typeof createFailureWindow>;

// Counts calls and failures in a sliding window of 30 slots.
function createFailureWindow({ clock, settings }: Pick<BreakerOptions, 'clock' | 'settings'>) {
  const slotMs = settings.windowMs / 30;
  let slots: Slot[] = [];
  let consecutiveFailures = 0;

  return {
    count({ isFailure }: { isFailure: boolean }): void {
      const nowMs = clock.monotonicMs();
      slots = slots.filter((slot) => nowMs - slot.startedMs < settings.windowMs);
      let slot = slots.at(-1);
      if (slot === undefined || nowMs - slot.startedMs >= slotMs) {
        slot = { startedMs: nowMs, calls: 0, failures: 0 };
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
