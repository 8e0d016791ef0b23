// How long the database has answered without a break. Taking expired allotments back needs a minute of it: after an outage
// other gateways could not renew their leases either.
import type { Clock } from '../../../kernel/clock.ts';

// The renewal asks every five seconds. After a longer gap this process was stopped, and knows nothing of that time.
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
