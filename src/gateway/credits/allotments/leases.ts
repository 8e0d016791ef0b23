// Renews the leases of this process's allotments in one statement, and reports what they are used for.
import type { Clock } from '../../../kernel/clock.ts';
import { adoptRow, renewLease, reportOf } from './allotment.ts';
import { beginLease } from './lease.ts';
import type { AllotmentPool } from './pool.ts';
import type { AllotmentRow, AllotmentStore } from './store.ts';

export interface LeasesOptions {
  store: Pick<AllotmentStore, 'renew' | 'giveBack' | 'ofGateway'>;
  pool: AllotmentPool;
  clock: Pick<Clock, 'now' | 'monotonicMs'>;
  gatewayId: string;
  leaseMs: number;
}

export class Leases {
  readonly #options: LeasesOptions;
  #renewing: Promise<void> | null = null;

  constructor(options: LeasesOptions) {
    this.#options = options;
  }

  /** Concurrent callers share one statement. Rejects with 503 when the database does not answer. */
  renew(): Promise<void> {
    this.#renewing ??= this.#renew().finally(() => (this.#renewing = null));
    return this.#renewing;
  }

  async #renew(): Promise<void> {
    const { store, pool, clock, gatewayId, leaseMs } = this.#options;
    const reported = [...pool.all()].filter(({ version }) => version > 0);
    const lease = beginLease(clock, leaseMs);
    const rows = await store.renew(gatewayId, reported.map(reportOf), leaseMs);
    for (const row of rows) {
      const allotment = pool.find(row.allotmentId);
      if (allotment === undefined) continue;
      adoptRow(allotment, row);
      renewLease(allotment, lease);
    }
    const open = new Set(rows.map(({ allotmentId }) => allotmentId));
    for (const allotment of reported) if (!open.has(allotment.allotmentId)) pool.remove(allotment);
  }

  /** Takes over allotments whose opening had no answer, and ends those that the pool does not have any more. */
  async reconcile(): Promise<void> {
    const { store, pool, gatewayId } = this.#options;
    const unknown: AllotmentRow[] = [];
    for (const row of await store.ofGateway(gatewayId)) {
      const allotment = pool.find(row.allotmentId);
      if (allotment === undefined) unknown.push(row);
      else adoptRow(allotment, row);
    }
    await endAllotments(store, unknown);
  }
}

/** Ends allotments that no process uses. */
export async function endAllotments(
  store: Pick<AllotmentStore, 'giveBack'>,
  rows: readonly AllotmentRow[],
): Promise<void> {
  if (rows.length === 0) return;
  await store.giveBack(
    rows.map(({ allotmentId, version }) => ({ allotmentId, version, amount: 0n, end: true })),
  );
}
