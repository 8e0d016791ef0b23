// How long the database has answered without a break. Taking expired allotments back needs a minute of it: after an outage
// other gateways could not renew their leases either.
import type { Clock } from '../../../kernel/clock.ts';

export class DatabaseContact {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  #sinceMs: number | null = null;

  constructor(clock: Pick<Clock, 'monotonicMs'>) {
    this.#clock = clock;
  }

  recordAnswer(): void {
    this.#sinceMs ??= this.#clock.monotonicMs();
  }

  recordError(): void {
    this.#sinceMs = null;
  }

  unbrokenMs(): number {
    return this.#sinceMs === null ? 0 : this.#clock.monotonicMs() - this.#sinceMs;
  }
}
