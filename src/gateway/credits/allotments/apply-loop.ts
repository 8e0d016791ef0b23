// Writes charges to the database in batches: every 50 ms, or sooner when 500 wait.
// The journal's `applied_seq` in the database moves by compare-and-set, so a batch
// whose response was lost is sent again and counts once.
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { ChargeLine, Journal } from '../journal/journal.ts';
import { adoptCharged, adoptRow, confirmReport } from './allotment.ts';
import { allotmentsOf, ChargeQueue, type UnappliedCharge } from './charge-queue.ts';
import type { AllotmentPool } from './pool.ts';
import { databaseUnavailable, isDatabaseUnavailable, isTransient } from './problems.ts';
import type { AllotmentReport, AllotmentRow, AllotmentStore, ApplyResult, CoveredCharge } from './store.ts';
import { maximumBatch, type AllotmentTimes } from './times.ts';

export interface ApplyLoopOptions {
  store: Pick<AllotmentStore, 'applyCharges' | 'openJournal' | 'read'>;
  journal: Pick<Journal, 'journalId' | 'charges'>;
  generation: string;
  pool: AllotmentPool;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  log: Log;
  times: Pick<AllotmentTimes, 'applyEveryMs' | 'retryMs'>;
  counters: ApplyCounters;
  /** The ledger was restored or recreated while this process ran. */
  onOtherGeneration(): void;
  /** Called after each response of the database. */
  onDatabaseAnswer(): void;
  onDatabaseError(): void;
}

export interface ApplyCounters {
  overruns: number;
  overrunCredits: bigint;
  lateCharges: number;
  linesPutAside: number;
}

interface Waiter {
  seq: number;
  resolve(): void;
  reject(error: unknown): void;
}

export class ApplyLoop {
  readonly queue = new ChargeQueue();
  readonly #options: ApplyLoopOptions;
  readonly #stop = new AbortController();
  #appliedSeq = 0;
  #waiters: Waiter[] = [];
  /** Ends the current pause early. */
  #wake = new AbortController();
  #running: Promise<void> | null = null;

  constructor(options: ApplyLoopOptions) {
    this.#options = options;
  }

  add(charge: UnappliedCharge): void {
    this.queue.add(charge);
    if (this.queue.length === maximumBatch) this.#wake.abort();
    this.#running ??= this.#run();
  }

  /**
   * Resolves once the charges up to `seq` are in the database; rejects with 503 when the
   * database is unavailable.
   */
  waitUntilApplied(seq: number): Promise<void> {
    if (seq <= this.#appliedSeq || this.queue.length === 0) return Promise.resolve();
    if (this.#stop.signal.aborted)
      return Promise.reject(databaseUnavailable('The ledger of this charge was restored or is closed.'));
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#waiters.push({ seq, resolve, reject });
    this.#wake.abort();
    return promise;
  }

  /** Applies all charges that wait at this moment. */
  flush(): Promise<void> {
    return this.waitUntilApplied(this.queue.lastSeq);
  }

  /** Stops after the current batch. Charges that wait stay in the journal. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { times } = this.#options;
    while (this.queue.length > 0 && !this.#stop.signal.aborted) {
      if (this.#waiters.length === 0 && this.queue.length < maximumBatch)
        await this.#pause(times.applyEveryMs, this.#wake.signal);
      this.#wake = new AbortController();
      if (!(await this.#applyNext())) await this.#pause(times.retryMs);
    }
    this.#running = null;
    if (this.queue.length === 0) this.#resolveWaiters(Number.MAX_SAFE_INTEGER);
    else this.#rejectWaiters(databaseUnavailable('The gateway stopped before the charge was written.'));
  }

  #pause(ms: number, wake?: AbortSignal): Promise<void> {
    const stop = this.#stop.signal;
    const signal = wake === undefined ? stop : AbortSignal.any([stop, wake]);
    return this.#options.clock.sleep(ms, signal).catch(() => undefined);
  }

  /** False when the database is unavailable. */
  async #applyNext(): Promise<boolean> {
    const batch = this.queue.nextBatch();
    try {
      await this.#applyOrHalve(batch);
      return true;
    } catch (error) {
      if (isDatabaseUnavailable(error)) this.#options.onDatabaseError();
      else this.#options.log.error({ err: error }, 'charges could not be applied');
      this.#rejectWaiters(error);
      return false;
    }
  }

  /** Halves a rejected batch until a single line is left, and puts that line aside. */
  async #applyOrHalve(batch: readonly UnappliedCharge[]): Promise<void> {
    try {
      await this.#apply(batch);
    } catch (error) {
      if (isTransient(error)) throw error;
      if (batch.length === 1) return this.#putAside(batch[0] as UnappliedCharge, error);
      const middleIndex = Math.ceil(batch.length / 2);
      await this.#applyOrHalve(batch.slice(0, middleIndex));
      // The first half is still in the queue if the database lost commits meanwhile. Applying the second half
      // would move `applied_seq` past it, so the next batch begins with it again.
      if (this.queue.head === batch[middleIndex]) await this.#applyOrHalve(batch.slice(middleIndex));
    }
  }

  async #putAside(charge: UnappliedCharge, error: unknown): Promise<void> {
    const { pool } = this.#options;
    const { line, covered } = charge;
    // A batch without charges moves `applied_seq` past the refused line. The database returns the
    // rows of reported allotments only, and `#adopt` removes an allotment without a row.
    const reports = pool
      .report(allotmentsOf([charge]))
      .map((report) => ({ ...report, unapplied: report.unapplied - covered }));
    const result = await this.#send(line.seq, [], reports);
    if (result.outcome === 'mismatch') return this.#recover(result.appliedSeq);
    if (result.outcome === 'other_generation') return this.#endGeneration();
    this.#countPutAside(line, { err: error, covered: String(covered) });
    this.#finish(result, line.seq);
  }

  #countPutAside(line: ChargeLine, fields: { err: unknown; covered?: string }): void {
    const { log, counters } = this.#options;
    counters.linesPutAside += 1;
    log.error(
      { alarm: 'charge_put_aside', line: describeLine(line), ...fields },
      'the ledger refused a charge; it is not charged',
    );
  }

  async #apply(batch: readonly UnappliedCharge[]): Promise<void> {
    const toSeq = batch.at(-1)?.line.seq;
    if (toSeq === undefined) return;
    const lines = batch.map(({ line, covered }) => ({ ...line, covered }));
    const result = await this.#send(toSeq, lines, this.#options.pool.report(allotmentsOf(batch)));
    if (result.outcome === 'mismatch') await this.#recover(result.appliedSeq);
    else if (result.outcome === 'other_generation') this.#endGeneration();
    else this.#finish(result, toSeq);
  }

  /** The lines stay in the journal; the next replay puts it aside. */
  #endGeneration(): void {
    this.#stop.abort();
    this.#options.onOtherGeneration();
  }

  async #send(
    toSeq: number,
    charges: readonly CoveredCharge[],
    reports: readonly AllotmentReport[],
    expectedSeq = this.#appliedSeq,
  ): Promise<ApplyResult> {
    const { store, journal, generation, pool, onDatabaseAnswer } = this.#options;
    const result = await store.applyCharges({
      journalId: journal.journalId,
      generation,
      expectedSeq,
      toSeq,
      charges,
      reports,
    });
    onDatabaseAnswer();
    if (result.outcome !== 'applied') return result;
    for (const report of reports) {
      const allotment = pool.find(report.allotmentId);
      if (allotment !== undefined) confirmReport(allotment, report);
    }
    return result;
  }

  /**
   * Runs after the commit of the charges. Adopts the rows and lowers the counts in memory in the
   * same turn of the event loop, so that no reservation sees a credit as free twice.
   */
  #finish(result: ApplyResult, toSeq: number): void {
    this.#appliedSeq = Math.max(result.appliedSeq, toSeq);
    const charges = this.queue.remove(this.#appliedSeq);
    this.#adopt(charges, result.rows);
    const resultsBySeq = new Map(result.results.map((chargeResult) => [chargeResult.seq, chargeResult]));
    for (const { line, onApplied } of charges) {
      const chargeResult = resultsBySeq.get(line.seq) ?? null;
      if (chargeResult !== null) this.#count(line, chargeResult);
      onApplied?.(chargeResult);
    }
    this.#resolveWaiters(this.#appliedSeq);
  }

  #adopt(charges: readonly UnappliedCharge[], rows: readonly AllotmentRow[]): void {
    const { pool } = this.#options;
    for (const row of rows) {
      const allotment = pool.find(row.allotmentId);
      if (allotment === undefined) continue;
      adoptCharged(allotment, row);
      adoptRow(allotment, row);
    }
    // An allotment without a row has ended in the database.
    const openIds = new Set(rows.map(({ allotmentId }) => allotmentId));
    for (const { allotment } of charges)
      if (allotment !== null && allotment.state !== 'ended' && !openIds.has(allotment.allotmentId))
        pool.remove(allotment);
  }

  /**
   * Handles an `applied_seq` of the database that differs from this process's: a higher number
   * means that a response was lost, a lower number that the database lost commits.
   */
  async #recover(appliedSeq: number): Promise<void> {
    const { store, journal, generation, log } = this.#options;
    if (appliedSeq > this.#appliedSeq) {
      const charges = this.queue.nextBatch().filter(({ line }) => line.seq <= appliedSeq);
      const allotmentIds = charges.flatMap(({ allotment }) => allotment?.allotmentId ?? []);
      const rows = await store.read([...new Set(allotmentIds)]);
      return this.#finish({ appliedSeq, outcome: 'repeated', results: [], rows }, appliedSeq);
    }
    log.error(
      {
        alarm: 'ledger_went_back',
        journal_id: journal.journalId,
        applied_seq: appliedSeq,
        expected: this.#appliedSeq,
      },
      'the database lost charges that it had confirmed; they are applied again from the journal',
    );
    if (appliedSeq === 0) await store.openJournal(journal.journalId, generation);
    let resentSeq = appliedSeq;
    for await (const lines of journal.charges(appliedSeq)) {
      const lostLines = lines.filter(({ seq }) => seq <= this.#appliedSeq);
      if (lostLines.length === 0) break;
      const nextSeq = await this.#resend(lostLines, resentSeq);
      // `#appliedSeq` still differs from that of the database, so the next batch starts another recovery.
      if (nextSeq === null) return;
      resentSeq = nextSeq;
    }
    this.#appliedSeq = resentSeq;
  }

  /**
   * Applies lines that the database has lost. A line that it refuses, such as one that was put aside before,
   * does not stop the others. Returns the new `applied_seq`; null when the database has yet another one.
   */
  async #resend(lines: readonly ChargeLine[], expectedSeq: number): Promise<number | null> {
    const lastLine = lines.at(-1) as ChargeLine;
    try {
      return await this.#resendBatch(lines, expectedSeq, lastLine.seq);
    } catch (error) {
      if (isTransient(error)) throw error;
      if (lines.length === 1) {
        const nextSeq = await this.#resendBatch([], expectedSeq, lastLine.seq);
        if (nextSeq !== null) this.#countPutAside(lastLine, { err: error });
        return nextSeq;
      }
      const middleIndex = Math.ceil(lines.length / 2);
      const middleSeq = await this.#resend(lines.slice(0, middleIndex), expectedSeq);
      return middleSeq === null ? null : this.#resend(lines.slice(middleIndex), middleSeq);
    }
  }

  async #resendBatch(
    lines: readonly ChargeLine[],
    expectedSeq: number,
    toSeq: number,
  ): Promise<number | null> {
    const { outcome, appliedSeq } = await this.#send(toSeq, lines, [], expectedSeq);
    if (outcome === 'other_generation') this.#endGeneration();
    return outcome === 'applied' || outcome === 'repeated' ? appliedSeq : null;
  }

  #count(
    line: ChargeLine,
    { charged, overrun, isLate }: { charged: bigint; overrun: bigint; isLate: boolean },
  ): void {
    const { counters, log } = this.#options;
    if (overrun > 0n) {
      counters.overruns += 1;
      counters.overrunCredits += overrun;
      log.error(
        { alarm: 'overrun', line: describeLine(line), overrun: String(overrun) },
        'a call cost more than was reserved and available; the operator absorbs the rest',
      );
    }
    if (!isLate) return;
    counters.lateCharges += 1;
    log.warn(
      { line: describeLine(line), charged: String(charged) },
      'a charge arrived after its allotment ended; it is charged as far as credits are available',
    );
  }

  #resolveWaiters(appliedSeq: number): void {
    const finishedWaiters = this.#waiters.filter(({ seq }) => seq <= appliedSeq);
    this.#waiters = this.#waiters.filter(({ seq }) => seq > appliedSeq);
    for (const waiter of finishedWaiters) waiter.resolve();
  }

  #rejectWaiters(error: unknown): void {
    for (const waiter of this.#waiters.splice(0)) waiter.reject(error);
  }
}

/** The fields that an operator needs to charge a line by hand. */
export function describeLine({ seq, usageId, call, allotmentId, credits }: ChargeLine): object {
  return {
    seq,
    usage_id: usageId,
    request_id: call.requestId,
    user_id: call.userId,
    token_id: call.tokenId,
    allotment_id: allotmentId,
    credits: String(credits),
  };
}
