// Measures how long the database has responded without interruption. Expired allotments
// are taken back only after a minute of such contact: during an outage, gateways that are
// alive could not renew their leases either.
import type { Clock } from '../../../kernel/clock.ts';

// Leases are renewed every five seconds. A longer gap means that this process was
// suspended and did not see whether the database had an outage.
const longestGapMs = 15_000;

export class DatabaseContact {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  #contact: { sinceMs: number; lastMs: number } | null = null;

  constructor(clock: Pick<Clock, 'monotonicMs'>) {
    this.#clock = clock;
  }

  recordAnswer(): void {
    const nowMs = this.#clock.monotonicMs();
    if (this.#contact === null || nowMs - this.#contact.lastMs > longestGapMs)
      this.#contact = { sinceMs: nowMs, lastMs: nowMs };
    else this.#contact.lastMs = nowMs;
  }

  recordError(): void {
    this.#contact = null;
  }

  unbrokenMs(): number {
    const nowMs = this.#clock.monotonicMs();
    if (this.#contact === null || nowMs - this.#contact.lastMs > longestGapMs) return 0;
    return nowMs - this.#contact.sinceMs;
  }
}
