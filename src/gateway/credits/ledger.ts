// Holds and their settlements. A hold sets aside the maximum price of a call before
// the request goes upstream; the settlement charges the actual price once. Holds
// have a lease; maintenance recovers holds whose lease has expired.
import type { Clock } from '../../kernel/clock.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { insufficientCredits } from './allotments/problems.ts';
import { maximumCredits } from './allotments/times.ts';
import type { WriteBatcher } from './write-batcher.ts';
import type { SettlementJournal, Settlement } from './journal/settlements.ts';
import { OpenHold, type HoldContext } from './open-hold.ts';
import type { Hold, Ledger, PaidCall } from './core/ports.ts';
import type { LeaseRenewal, CreditsStore, Verdict } from './core/store.ts';

export interface LedgerOptions {
  store: CreditsStore;
  batcher: WriteBatcher;
  journal: SettlementJournal;
  log: Log;
  clock: Pick<Clock, 'monotonicMs'>;
  leaseMs: number;
  /** How old a lease may be before it is renewed. */
  renewEveryMs: number;
  /** Requests a renewal of leases before the next interval. */
  renewSoon(): void;
}

/** Incidents since this process started, for alarms. */
export interface LedgerCounters {
  /**
   * Settlements that cost more than the user could pay, and the credits that the operator absorbed.
   */
  overruns: number;
  overrunCredits: bigint;
  /** Settlements that arrived after their hold was recovered. */
  lateSettlements: number;
  /** Holds that were recovered because their process was gone. */
  recovered: number;
  /** Settlements written to the journal during an outage of the database. */
  journaled: number;
  /** Files of the journal that could not be read. */
  unreadable: number;
  /** Inconsistent rows of the latest verification; 100 at most. */
  mismatches: number;
}

export class HoldLedger implements Pick<Ledger, 'hold' | 'available' | 'resume'> {
  readonly #options: LedgerOptions;
  readonly #context: HoldContext;
  readonly #tracked = new Map<string, OpenHold>();
  /**
   * Settlements that are in memory only: neither the database nor the journal could store them, for
   * example because the disk is full.
   */
  readonly #unwritten = new Map<string, Settlement>();
  #mayHaveEntries = false;
  readonly #counters: LedgerCounters = {
    overruns: 0,
    overrunCredits: 0n,
    lateSettlements: 0,
    recovered: 0,
    journaled: 0,
    unreadable: 0,
    mismatches: 0,
  };

  constructor(options: LedgerOptions) {
    this.#options = options;
    const { batcher, log, renewSoon } = options;
    this.#context = {
      batcher,
      log,
      renewSoon,
      isTracked: (holdId) => this.#tracked.has(holdId),
      onSettled: (holdId, credits, verdict) => {
        this.#tracked.delete(holdId);
        this.#countSettlement(holdId, credits, verdict);
      },
      writeToJournal: (settlement) => this.#writeToJournal(settlement),
    };
  }

  async hold(
    call: PaidCall,
    requestedAmount: bigint,
    { isSent = true }: { isSent?: boolean } = {},
  ): Promise<Hold> {
    const { store, batcher } = this.#options;
    const amount = requestedAmount < 0n ? 0n : requestedAmount;
    const holdId = id('hld');
    const accountId = call.userId;
    if (amount > maximumCredits)
      throw insufficientCredits(amount, await store.available(call.userId, call.tokenId));
    const { verdict, amount: grantedAmount } = await batcher.run({
      kind: 'hold',
      holdId,
      accountId,
      call,
      amount,
      isSent,
    });
    if (verdict === 'short') throw insufficientCredits(amount, grantedAmount);
    return this.#track(holdId, { accountId, action: call.action, amount });
  }

  async available(userId: string, tokenId: string): Promise<bigint> {
    const availableCredits = await this.#options.store.available(userId, tokenId);
    return availableCredits > 0n ? availableCredits : 0n;
  }

  async resume(holdId: string): Promise<Hold | null> {
    const { store, leaseMs } = this.#options;
    const row = await store.resume(holdId, leaseMs);
    if (row === null) return null;
    return this.#tracked.get(holdId) ?? this.#track(holdId, row);
  }

  counters(): LedgerCounters {
    return { ...this.#counters };
  }

  /** Number of holds whose leases this process renews. */
  openHolds(): number {
    return this.#tracked.size;
  }

  /** Renews the leases of all holds of this process that are due, and writes their checkpoints. */
  async renewLeases(): Promise<void> {
    const { store, clock, leaseMs, renewEveryMs } = this.#options;
    const nowMs = clock.monotonicMs();
    const dueHolds = [...this.#tracked.values()].filter(
      ({ newCheckpoint, renewedAtMs }) => newCheckpoint !== null || nowMs - renewedAtMs >= renewEveryMs,
    );
    if (dueHolds.length === 0) return;
    const renewals: LeaseRenewal[] = dueHolds.map(({ holdId, newCheckpoint }) => ({
      holdId,
      ...(newCheckpoint !== null && { checkpoint: newCheckpoint }),
    }));
    const result = await store.renewLeases(renewals, leaseMs);
    const renewedIds = new Set(result.renewed);
    for (const [index, hold] of dueHolds.entries()) {
      // The row was locked: the hold stays due, and the next renewal includes it.
      if (!renewedIds.has(hold.holdId)) continue;
      hold.renewedAtMs = nowMs;
      // Keep a checkpoint that arrived during the write; the next renewal writes it.
      if (hold.newCheckpoint === renewals[index]?.checkpoint) hold.newCheckpoint = null;
    }
    for (const holdId of result.resolved) this.#tracked.delete(holdId);
  }

  /** Settles the entries of the journal; throws when the database is unavailable. */
  async replay(): Promise<void> {
    const { journal } = this.#options;
    this.#mayHaveEntries = false;
    try {
      const entries = await journal.list((file, error) => this.#countUnreadable(file, error));
      await Promise.all([...this.#unwritten.values(), ...entries].map((entry) => this.#replayOne(entry)));
    } catch (error) {
      this.#mayHaveEntries = true;
      throw error;
    }
  }

  /** Whether settlements of this process may wait for a replay, or the last replay failed. */
  hasJournalEntries(): boolean {
    return this.#mayHaveEntries;
  }

  recordVerification(mismatches: number): void {
    this.#counters.mismatches = mismatches;
  }

  countRecovered(verdicts: readonly Verdict[]): void {
    for (const { verdict, overrun } of verdicts) {
      if (verdict === 'recovered' || verdict === 'voided') this.#counters.recovered += 1;
      this.#countOverrun(overrun, {});
    }
  }

  #track(
    holdId: string,
    { accountId, action, amount }: { accountId: string; action: string; amount: bigint },
  ): OpenHold {
    const renewedAtMs = this.#options.clock.monotonicMs();
    const hold = new OpenHold(this.#context, { holdId, accountId, action, amount, renewedAtMs });
    this.#tracked.set(holdId, hold);
    return hold;
  }

  async #replayOne(settlement: Settlement): Promise<void> {
    const { batcher, journal } = this.#options;
    const { holdId, credits } = settlement;
    const verdict = await batcher.run(settlement);
    this.#countSettlement(holdId, credits, verdict);
    this.#tracked.delete(holdId);
    this.#unwritten.delete(holdId);
    // Keep the file of an unknown hold: it belongs to another database.
    if (verdict.verdict !== 'unknown') await journal.remove(holdId);
  }

  async #writeToJournal(settlement: Settlement): Promise<void> {
    const { journal, log } = this.#options;
    this.#mayHaveEntries = true;
    try {
      await journal.write(settlement);
      this.#counters.journaled += 1;
    } catch (error) {
      this.#unwritten.set(settlement.holdId, settlement);
      log.error(
        { err: error, hold_id: settlement.holdId },
        'a settlement could not be written to the journal',
      );
      throw new Problem(
        'unavailable',
        'database_unavailable',
        'The charge of this call could not be recorded; try again.',
        {
          cause: error,
          headers: { 'retry-after': '2' },
        },
      );
    }
  }

  #countSettlement(holdId: string, credits: bigint, { verdict, amount, overrun }: Verdict): void {
    const { log } = this.#options;
    this.#countOverrun(overrun, { hold_id: holdId, credits: String(credits) });
    if (verdict === 'late') {
      this.#counters.lateSettlements += 1;
      log.warn(
        { hold_id: holdId, credits: String(credits), charged: String(amount) },
        'a settlement arrived after its hold was resolved; it is charged as far as credits are available',
      );
    }
    if (verdict === 'unknown')
      log.error({ hold_id: holdId }, 'a settlement names a hold that is not in this database');
  }

  #countOverrun(overrun: bigint, logFields: object): void {
    if (overrun === 0n) return;
    this.#counters.overruns += 1;
    this.#counters.overrunCredits += overrun;
    this.#options.log.error(
      { ...logFields, overrun: String(overrun) },
      'a call cost more than was held and available; the operator absorbs the rest',
    );
  }

  #countUnreadable(file: string, error: unknown): void {
    this.#counters.unreadable += 1;
    this.#options.log.error(
      { alarm: 'unreadable_journal', err: error, file },
      'a file of the journal could not be read; its call is not charged',
    );
  }
}
