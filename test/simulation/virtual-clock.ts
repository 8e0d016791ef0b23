// The clock of one process under virtual time. `sleep` is an event of the scheduler,
// so that no real timer runs.
import type { Clock } from '../../src/kernel/clock.ts';
import type { Process, Scheduler } from './scheduler.ts';

const epochMs = Date.UTC(2026, 0, 1);

export function createVirtualClock(scheduler: Scheduler, process: Process): Clock {
  const monotonicMs = (): number => scheduler.nowMs() - process.suspendedMs;

  return {
    now: () => new Date(epochMs + scheduler.nowMs() + process.wallOffsetMs),
    monotonicMs,
    sleep: (ms, signal) =>
      new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason);
        const dueMs = monotonicMs() + ms;
        let event = scheduler.after(Math.ceil(ms), process, wake);
        signal?.addEventListener('abort', abort, { once: true });

        // A timer counts monotonic time: after a suspension the remaining time still has to pass.
        function wake(): void {
          const restMs = dueMs - monotonicMs();
          if (restMs > 0) {
            event = scheduler.after(Math.ceil(restMs), process, wake);
            return;
          }
          signal?.removeEventListener('abort', abort);
          resolve();
        }

        function abort(): void {
          scheduler.cancel(event);
          reject(signal?.reason);
        }
      }),
  };
}
