// Renews the leases of this process's allotments in one statement, and reports their use.
import type { Clock } from '../../../kernel/clock.ts';
import { adoptRow, confirmReport, isReported, renewLease, type Allotment } from './allotment.ts';
import { beginLease } from './lease.ts';
import type { AllotmentPool } from './pool.ts';
import type { AllotmentReport, AllotmentRow, AllotmentStore } from './store.ts';

export interface LeasesOptions {
  store: Pick<AllotmentStore, 'renew' | 'report' | 'giveBack' | 'ofGateway'>;
  pool: AllotmentPool;
  clock: Pick<Clock, 'now' | 'monotonicMs'>;
  gatewayId: string;
  leaseMs: number;
}

// Rows per statement of reports and give-backs, which bounds how long their locks are held. A renewal is one
// statement for all rows of this gateway, and locks no others.
const maximumRows = 500;

export class Leases {
  readonly #options: LeasesOptions;
  #renewing: Promise<void> | null = null;

  constructor(options: LeasesOptions) {
    this.#options = options;
  }

  /** Concurrent callers share one statement. Rejects with 503 when the database is unavailable. */
  renew(): Promise<void> {
    this.#renewing ??= this.#renew().finally(() => (this.#renewing = null));
    return this.#renewing;
  }

  async #renew(): Promise<void> {
    const { store, pool, clock, gatewayId, leaseMs } = this.#options;
    const openedAllotments = [...pool.all()].filter(({ version }) => version > 0);
    const lease = beginLease(clock, leaseMs);
    const reports = pool.report(openedAllotments);
    const rows = await store.renew(gatewayId, reports, leaseMs);
    this.#confirm(reports);
    const unknownRows: AllotmentRow[] = [];
    for (const row of rows) {
      const allotment = pool.find(row.allotmentId);
      if (allotment === undefined) {
        unknownRows.push(row);
        continue;
      }
      adoptRow(allotment, row);
      renewLease(allotment, lease);
    }
    const openIds = new Set(rows.map(({ allotmentId }) => allotmentId));
    for (const allotment of openedAllotments) if (!openIds.has(allotment.allotmentId)) pool.remove(allotment);
    // This process gave up waiting for the requests that opened these rows, and uses none of them.
    await endAllotments(store, unknownRows);
  }

  /**
   * Reports the use of these allotments where the database's values are outdated. `answerNumber`
   * is the number of another process's request. Rejects with 503 when the database is unavailable.
   */
  async report(allotments: Iterable<Allotment>, answerNumber: number | null = null): Promise<void> {
    const { store, pool, gatewayId } = this.#options;
    const changedAllotments = [...allotments].filter(
      (allotment) => allotment.version > 0 && !isReported(allotment),
    );
    if (changedAllotments.length <= maximumRows)
      return this.#send(pool.report(changedAllotments), answerNumber);
    for (let offset = 0; offset < changedAllotments.length; offset += maximumRows)
      await this.#send(pool.report(changedAllotments.slice(offset, offset + maximumRows)), null);
    await store.report(gatewayId, [], answerNumber);
  }

  async #send(reports: readonly AllotmentReport[], answerNumber: number | null): Promise<void> {
    await this.#options.store.report(this.#options.gatewayId, reports, answerNumber);
    this.#confirm(reports);
  }

  #confirm(reports: readonly AllotmentReport[]): void {
    for (const report of reports) {
      const allotment = this.#options.pool.find(report.allotmentId);
      if (allotment !== undefined) confirmReport(allotment, report);
    }
  }

  /**
   * Adopts the rows of allotments whose opening lost its response, and ends rows of allotments that
   * the pool has removed.
   */
  async reconcile(): Promise<void> {
    const { store, pool, gatewayId } = this.#options;
    const unknownRows: AllotmentRow[] = [];
    for (const row of await store.ofGateway(gatewayId)) {
      const allotment = pool.find(row.allotmentId);
      if (allotment === undefined) unknownRows.push(row);
      else adoptRow(allotment, row);
    }
    await endAllotments(store, unknownRows);
  }
}

/** Ends allotments that no process uses, in statements of at most 500. */
export async function endAllotments(
  store: Pick<AllotmentStore, 'giveBack'>,
  rows: readonly AllotmentRow[],
): Promise<void> {
  for (let offset = 0; offset < rows.length; offset += maximumRows)
    await store.giveBack(
      rows
        .slice(offset, offset + maximumRows)
        .map(({ allotmentId, version }) => ({ allotmentId, version, amount: 0n, end: true })),
    );
}
