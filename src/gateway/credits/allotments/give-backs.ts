// Gives unused credits back: after they were idle for a while, when another gateway recalls them,
// and when the process ends.
import type { Clock } from '../../../kernel/clock.ts';
import { adoptRow, idleCredits, type Allotment } from './allotment.ts';
import { isInUse, type AllotmentPool } from './pool.ts';
import type { AllotmentStore } from './store.ts';
import type { AllotmentTimes } from './times.ts';
import type { AllotmentWrites } from './writes.ts';

export interface GiveBacksOptions {
  store: Pick<AllotmentStore, 'flags'>;
  pool: AllotmentPool;
  writes: AllotmentWrites;
  clock: Pick<Clock, 'monotonicMs'>;
  gatewayId: string;
  times: Pick<AllotmentTimes, 'idleMs' | 'maintenanceEveryMs'>;
}

// Rows per statement.
const maximumRows = 500;
// After a recall a token's allotment grows only by the bounds of its calls for this long.
const afterRecallMs = 2_000;

export class GiveBacks {
  readonly #options: GiveBacksOptions;

  constructor(options: GiveBacksOptions) {
    this.#options = options;
  }

  /**
   * Reads the flags of this gateway and gives back the idle credits of recalled
   * allotments. Returns the number of the latest requested report.
   */
  async answerRecalls(): Promise<number> {
    const { store, pool, clock, gatewayId } = this.#options;
    const flaggedAllotments: Allotment[] = [];
    const { rows, reportAsked } = await store.flags(gatewayId);
    for (const row of rows) {
      const allotment = pool.find(row.allotmentId);
      if (allotment === undefined) continue;
      adoptRow(allotment, row);
      allotment.enlargeAfterMs = clock.monotonicMs() + afterRecallMs;
      if (row.isRecalled || idleCredits(allotment) > 0n || !isInUse(allotment))
        flaggedAllotments.push(allotment);
    }
    await this.#inBatches(flaggedAllotments, {});
    return reportAsked;
  }

  /** Gives back the idle credits of a user's allotments in this process, after their pending writes. */
  async ofUser(userId: string): Promise<void> {
    await this.#afterWrites(this.#options.pool.ofUser(userId), {});
  }

  /** Gives back the idle credits of closed allotments, after their pending writes. */
  async ofClosed(allotments: readonly Allotment[]): Promise<void> {
    await this.#afterWrites(allotments, { end: true });
  }

  /**
   * Gives back all idle credits, including those of pending writes, and ends the
   * allotments without calls.
   */
  async ofAll(): Promise<void> {
    await this.ofClosed([...this.#options.pool.all()]);
  }

  /** Gives back credits that were unused for a while, and repeats give-backs of unknown outcome. */
  async tidy(): Promise<void> {
    const { pool, clock } = this.#options;
    const nowMs = clock.monotonicMs();
    const dueAllotments: Allotment[] = [];
    for (const allotment of pool.all()) {
      if (allotment.write !== null) continue;
      if (allotment.version > 0 || isInUse(allotment)) {
        if (this.#isDue(allotment, nowMs)) dueAllotments.push(allotment);
      } else if (this.#isUnused(allotment, nowMs)) {
        // Never opened. If the database opens it later, `reconcile` ends it.
        pool.remove(allotment);
      }
    }
    await this.#inBatches(dueAllotments, { end: true });
  }

  #isDue(allotment: Allotment, nowMs: number): boolean {
    if (allotment.isGiveBackUncertain) return true;
    const isIdle = idleCredits(allotment) > 0n || !isInUse(allotment);
    if (!isIdle) return false;
    return (
      allotment.state === 'closed' || this.#isUnused(allotment, nowMs) || this.#isExcessive(allotment, nowMs)
    );
  }

  #isUnused({ lastUsedMs }: Allotment, nowMs: number): boolean {
    return nowMs - lastUsedMs >= this.#options.times.idleMs;
  }

  /**
   * Whether no call used the allotment lately, and more than an eighth of the user's available
   * credits is idle in this process.
   */
  #isExcessive({ userId, lastUsedMs }: Allotment, nowMs: number): boolean {
    const { pool, writes, times } = this.#options;
    if (nowMs - lastUsedMs < times.maintenanceEveryMs) return false;
    const idleOfUser = pool.idleOfUser(userId);
    return idleOfUser * 8n > writes.available(userId) + idleOfUser;
  }

  /** Waits for the pending writes first: a give-back skips an allotment with a pending write. */
  async #afterWrites(allotments: readonly Allotment[], options: { end?: boolean }): Promise<void> {
    await Promise.allSettled(allotments.map(({ write }) => Promise.resolve(write)));
    await this.#inBatches(allotments, options);
  }

  async #inBatches(allotments: readonly Allotment[], options: { end?: boolean }): Promise<void> {
    for (let start = 0; start < allotments.length; start += maximumRows)
      await this.#options.writes.giveBack(allotments.slice(start, start + maximumRows), options);
  }
}
