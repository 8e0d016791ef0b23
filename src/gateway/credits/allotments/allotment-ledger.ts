// Reservations and charges in memory, on allotments of the database and a journal on the local
// disk. See docs/decisions/2026-11-22-allotments.md.
import { settlesWithin } from '../../../kernel/async.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { MakeId } from '../../../kernel/ids.ts';
import type { Log } from '../../../kernel/log.ts';
import type { UsageFacts } from '../../usage/index.ts';
import type { Journal } from '../journal/journal.ts';
import type { FreeCall, PaidCall, Reservation } from '../core/ports.ts';
import { idleCredits, releaseCredits, type Allotment } from './allotment.ts';
import { ApplyLoop, type ApplyCounters } from './apply-loop.ts';
import type { UnappliedCharge } from './charge-queue.ts';
import { DatabaseContact } from './database-contact.ts';
import { GiveBacks } from './give-backs.ts';
import { Leases } from './leases.ts';
import { AllotmentPool, sum } from './pool.ts';
import { creditsBusy, databaseUnavailable } from './problems.ts';
import { CallReservation, type ReservationContext } from './reservation.ts';
import { Reserving, type ReservingCounters } from './reserving.ts';
import type { AllotmentStore } from './store.ts';
import type { AllotmentTimes } from './times.ts';
import { AllotmentWrites } from './writes.ts';

export interface AllotmentLedgerOptions {
  store: AllotmentStore;
  journal: Journal;
  /** False with `JOURNAL=off`: a charge is durable once it is in the database. */
  isJournaled: boolean;
  generation: string;
  clock: Clock;
  makeId: MakeId;
  log: Log;
  times: AllotmentTimes;
  /**
   * Called once when the ledger was restored or recreated; this instance
   * refuses calls from then on.
   */
  onOtherGeneration?: () => void;
}

export interface AllotmentCounters extends ApplyCounters, ReservingCounters {
  /** Syncs of the journal that calls waited for, and the sum of their times. */
  syncs: number;
  syncMs: number;
  failedSyncs: number;
}

/** Counts of charges and credits that are not in the database yet. */
export interface UnappliedSummary {
  count: number;
  credits: bigint;
  oldestMs: number;
}

// A charge above its reservation is booked when it is applied. The caller waits
// this long for the result.
const resultMs = 1_000;

export class AllotmentLedger {
  readonly pool: AllotmentPool;
  readonly leases: Leases;
  readonly giveBacks: GiveBacks;
  readonly contact: DatabaseContact;
  readonly counters: AllotmentCounters = {
    overruns: 0,
    overrunCredits: 0n,
    lateCharges: 0,
    linesPutAside: 0,
    recalls: 0,
    busy: 0,
    syncs: 0,
    syncMs: 0,
    failedSyncs: 0,
  };
  readonly #options: AllotmentLedgerOptions;
  readonly #applyLoop: ApplyLoop;
  readonly #writes: AllotmentWrites;
  readonly #reserving: Reserving;
  readonly #context: ReservationContext;
  #isOtherGeneration = false;
  #answeredReport = 0;

  constructor(options: AllotmentLedgerOptions) {
    const { store, journal, generation, clock, makeId, log, times } = options;
    const gatewayId = journal.journalId;
    const { counters } = this;
    this.#options = options;
    this.contact = new DatabaseContact(clock);
    const pool = new AllotmentPool(makeId);
    this.pool = pool;
    const writes = new AllotmentWrites({
      store,
      pool,
      clock,
      gatewayId,
      generation,
      leaseMs: times.leaseMs,
      onGone: () => this.checkGeneration(),
    });
    this.#writes = writes;
    this.leases = new Leases({ store, pool, clock, gatewayId, leaseMs: times.leaseMs });
    this.giveBacks = new GiveBacks({ store, pool, writes, clock, gatewayId, times });
    this.#applyLoop = new ApplyLoop({
      store,
      journal,
      generation,
      pool,
      clock,
      log,
      times,
      counters,
      onOtherGeneration: () => this.endGeneration(),
      onDatabaseAnswer: () => this.contact.recordAnswer(),
      onDatabaseError: () => this.contact.recordError(),
    });
    const renewLeases = () => this.leases.renew();
    this.#reserving = new Reserving({
      store,
      pool,
      writes,
      clock,
      makeId,
      log,
      gatewayId,
      times,
      counters,
      renewLeases,
    });
    this.#context = {
      journal,
      clock,
      times,
      take: (call, amount, allotment) => this.#takeMore(call, amount, allotment),
      addCharge: (charge) => this.#applyLoop.add(charge),
      sync: (seq) => this.#sync(seq),
      readResult: (charge) => this.#readResult(charge),
    };
  }

  reserve(call: PaidCall, amount: bigint): Reservation | Promise<Reservation> {
    this.#requireGeneration();
    if (amount <= 0n) return this.#createReservation(call, 0n, null);
    const allotment = this.#reserving.take(call, amount);
    if (!(allotment instanceof Promise)) return this.#createReservation(call, amount, allotment);
    return allotment.then((grantedAllotment) => this.#createReservation(call, amount, grantedAllotment));
  }

  /** Records the usage of a free call. Waits for neither disk nor database. */
  record(call: FreeCall, facts: UsageFacts): void {
    const { journal, clock, makeId } = this.#options;
    const body = { usageId: makeId('use'), call, allotmentId: null, credits: 0n, facts };
    const seq = journal.append({ kind: 'final', ...body });
    const addedAtMs = clock.monotonicMs();
    this.#applyLoop.add({ line: { seq, ...body }, allotment: null, covered: 0n, addedAtMs });
  }

  /** Idle credits of the user's allotments in this process; with a token id, of that token only. */
  idle(userId: string, tokenId?: string): bigint {
    const allotments = this.pool.ofUser(userId);
    return sum(
      tokenId === undefined ? allotments : allotments.filter((allotment) => allotment.tokenId === tokenId),
      idleCredits,
    );
  }

  /** Whether a request to open an allotment has lost its response since the last call. */
  takeLostOpening(): boolean {
    const { hasLostOpening } = this.#writes;
    this.#writes.hasLostOpening = false;
    return hasLostOpening;
  }

  /**
   * Closes the allotments of these tokens and gives their idle credits back.
   * Reserved credits follow when their calls end.
   */
  async closeTokens(tokenIds: ReadonlySet<string>): Promise<void> {
    const allotments = [...this.pool.all()].filter(({ tokenId }) => tokenIds.has(tokenId));
    for (const allotment of allotments) if (allotment.state === 'open') allotment.state = 'closed';
    await this.giveBacks.ofClosed(allotments);
  }

  /**
   * Gives back credits that other gateways recall, and writes the reports that
   * readers of balances request.
   */
  async answerFlags(): Promise<void> {
    const reportNumber = await this.giveBacks.answerRecalls();
    if (reportNumber <= this.#answeredReport) return;
    await this.applyAll();
    await this.leases.report(this.pool.all(), reportNumber);
    this.#answeredReport = reportNumber;
  }

  /**
   * Writes the charges and reservations of the user, or of all users, to the
   * database. Rejects with 503 when it is unavailable.
   */
  async report(userId?: string): Promise<void> {
    await this.applyAll();
    await this.leases.report(userId === undefined ? this.pool.all() : this.pool.ofUser(userId));
  }

  /**
   * Resolves once all current charges are in the database. Rejects with 503 when it is unavailable.
   */
  applyAll(): Promise<void> {
    return this.#applyLoop.flush();
  }

  unapplied(): UnappliedSummary {
    const { queue } = this.#applyLoop;
    const { oldestAtMs } = queue;
    return {
      count: queue.length,
      credits: queue.credits,
      oldestMs: oldestAtMs === null ? 0 : this.#options.clock.monotonicMs() - oldestAtMs,
    };
  }

  /**
   * Ends this instance if the ledger now has another generation. Rejects with 503 when the database
   * is unavailable.
   */
  async checkGeneration(): Promise<void> {
    if ((await this.#options.store.generation()) !== this.#options.generation) this.endGeneration();
  }

  /** Refuses paid calls from now on. */
  endGeneration(): void {
    if (this.#isOtherGeneration) return;
    this.#isOtherGeneration = true;
    for (const allotment of this.pool.all()) this.pool.remove(allotment);
    this.#options.log.error(
      { alarm: 'other_generation' },
      'the ledger was restored or created anew under this process; earlier charges are put aside',
    );
    this.#options.onOtherGeneration?.();
  }

  /**
   * Applies pending charges and gives all idle credits back if the database is available; then
   * closes the journal.
   */
  async close(): Promise<void> {
    const { log, journal } = this.#options;
    this.#reserving.stopEnlarging();
    try {
      if (!this.#isOtherGeneration) {
        await this.applyAll();
        await this.giveBacks.ofAll();
      }
    } catch (error) {
      log.warn(
        { err: error },
        'charges wait in the journal for the next start, as the database does not answer',
      );
    }
    await this.#applyLoop.stop();
    await journal.close();
  }

  #createReservation(call: PaidCall, amount: bigint, allotment: Allotment | null): Reservation {
    const usageId = this.#options.makeId('use');
    return new CallReservation(this.#context, { call, usageId, amount, allotment });
  }

  #takeMore(call: PaidCall, amount: bigint, from: Allotment | null): Allotment | Promise<Allotment> {
    const allotment = this.#reserving.take(call, amount);
    if (!(allotment instanceof Promise)) return requireSame(allotment, amount, from);
    return allotment.then((grantedAllotment) => requireSame(grantedAllotment, amount, from));
  }

  /**
   * Resolves when the line is on disk, or in the database when the disk failed
   * or the journal is off.
   */
  async #sync(seq: number): Promise<void> {
    const { journal, isJournaled, clock, log } = this.#options;
    if (!isJournaled) return this.#applyLoop.waitUntilApplied(seq);
    const startedMs = clock.monotonicMs();
    try {
      await journal.sync(seq);
      this.counters.syncs += 1;
      this.counters.syncMs += clock.monotonicMs() - startedMs;
    } catch (error) {
      this.counters.failedSyncs += 1;
      log.error(
        { alarm: 'journal_failed', err: error },
        'the journal cannot be written; charges wait for the database',
      );
      await this.#applyLoop.waitUntilApplied(seq);
    }
  }

  async #readResult(charge: UnappliedCharge): Promise<bigint | undefined> {
    const { promise, resolve } = Promise.withResolvers<bigint | undefined>();
    charge.onApplied = (result) => resolve(result?.charged);
    this.#applyLoop.waitUntilApplied(charge.line.seq).catch(() => resolve(undefined));
    await settlesWithin(promise, { ms: resultMs, clock: this.#options.clock });
    resolve(undefined);
    return promise;
  }

  #requireGeneration(): void {
    if (this.#isOtherGeneration) throw databaseUnavailable('The ledger was restored; try again.');
  }
}

/** A reservation uses one allotment: throws 503 when another allotment granted its raise. */
function requireSame(grantedAllotment: Allotment, amount: bigint, from: Allotment | null): Allotment {
  if (from === null || grantedAllotment === from) return grantedAllotment;
  releaseCredits(grantedAllotment, amount);
  throw creditsBusy('The credits that were reserved for this call are being returned; try again.');
}
