// Holds and their settlements. A hold sets aside the maximum price of a call before the request goes upstream; the
// settlement charges the actual price once. Holds have a lease; maintenance recovers those whose lease has expired.
import type { Clock } from '../../kernel/clock.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { UsageFacts } from '../usage/index.ts';
import { insufficientCredits, isDatabaseUnavailable } from './allotments/problems.ts';
import { factsOfNothing } from './allotments/reservation.ts';
import { clampCredits, maximumCredits } from './allotments/times.ts';
import type { WriteBatcher } from './write-batcher.ts';
import type { SettlementJournal, Settlement } from './journal/settlements.ts';
import type { Alongside, Hold, Ledger, PaidCall } from './ports.ts';
import type { LeaseRenewal, CreditsStore, Verdict } from './store.ts';

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

/** Incidents since the start, for alarms. */
export interface LedgerCounters {
  /** Settlements that the operator paid a part of, and the sum of those parts. */
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
  /** Inconsistent rows of the latest verification. */
  mismatches: number;
}

export interface ManagedLedger extends Pick<Ledger, 'hold' | 'available' | 'resume'> {
  counters(): LedgerCounters;
  /** Holds that this process keeps alive. */
  openHolds(): number;
  /** Renews the leases of all holds of this process that are due, and writes their checkpoints. */
  renewLeases(): Promise<void>;
  /** Settles the entries of the journal; throws when the database does not answer. */
  replay(): Promise<void>;
  /** Whether the journal may have entries of this process. */
  hasJournalEntries(): boolean;
  countRecovered(verdicts: readonly Verdict[]): void;
  recordVerification(mismatches: number): void;
}

interface OpenHold {
  hold: Hold;
  holdId: string;
  renewedAtMs: number;
  checkpoint: { credits: bigint; facts: Partial<UsageFacts> } | null;
}

const checkpointTokens = 256;

export function createLedger(options: LedgerOptions): ManagedLedger {
  const { store, batcher, journal, log, clock, leaseMs, renewEveryMs, renewSoon } = options;
  const trackedHolds = new Map<string, OpenHold>();
  // Settlements that neither the database nor the journal took, for example because the disk is full.
  const unwritten = new Map<string, Settlement>();
  let mayHaveEntries = false;
  const counters: LedgerCounters = {
    overruns: 0,
    overrunCredits: 0n,
    lateSettlements: 0,
    recovered: 0,
    journaled: 0,
    unreadable: 0,
    mismatches: 0,
  };

  function countSettlement(holdId: string, credits: bigint, { verdict, amount, overrun }: Verdict): void {
    if (overrun > 0n) {
      counters.overruns += 1;
      counters.overrunCredits += overrun;
      log.error(
        { hold_id: holdId, credits: String(credits), overrun: String(overrun) },
        'a call cost more than was held and available; the operator absorbs the rest',
      );
    }
    if (verdict === 'late') {
      counters.lateSettlements += 1;
      log.warn(
        { hold_id: holdId, credits: String(credits), charged: String(amount) },
        'a settlement came after its hold was resolved; it is charged as far as credits are available',
      );
    }
    if (verdict === 'unknown')
      log.error({ hold_id: holdId }, 'a settlement names a hold that is not in this database');
  }

  function countUnreadable(file: string, error: unknown): void {
    counters.unreadable += 1;
    log.error(
      { alarm: 'unreadable_journal', err: error, file },
      'a file of the journal could not be read; its call is not charged',
    );
  }

  async function writeToJournal(settlement: Settlement): Promise<void> {
    mayHaveEntries = true;
    try {
      await journal.write(settlement);
      counters.journaled += 1;
    } catch (error) {
      unwritten.set(settlement.holdId, settlement);
      log.error(
        { err: error, hold_id: settlement.holdId },
        'a settlement could not be written to the journal',
      );
      throw new Problem('unavailable', 'database_unavailable', 'The call could not be settled yet.', {
        cause: error,
        headers: { 'retry-after': '2' },
      });
    }
  }

  function trackHold(
    holdId: string,
    { accountId, action }: { accountId: string; action: string },
    initialAmount: bigint,
  ): Hold {
    let amount = initialAmount;
    let settling: Promise<{ charged: bigint }> | undefined;
    let tokensWritten = 0;

    async function settle(
      price: bigint,
      facts: UsageFacts,
      alongside?: Alongside,
    ): Promise<{ charged: bigint }> {
      const credits = clampPrice(holdId, price);
      const work = alongside !== undefined && 'work' in alongside ? alongside.work : undefined;
      const answer = alongside !== undefined && 'answer' in alongside ? alongside.answer() : null;
      const settlement: Settlement = {
        kind: 'settle',
        holdId,
        accountId,
        credits,
        facts,
        answer,
        isHeldOnly: false,
      };
      try {
        const verdict = await batcher.run(settlement, work);
        trackedHolds.delete(holdId);
        countSettlement(holdId, credits, verdict);
        return { charged: verdict.amount };
      } catch (error) {
        if (!isDatabaseUnavailable(error)) throw error;
        // Keep renewing the hold until the journal is replayed; otherwise recovery would resolve it.
        await writeToJournal({ ...settlement, isHeldOnly: work !== undefined });
        return { charged: credits < amount ? credits : amount };
      }
    }

    const hold: Hold = {
      holdId,
      get amount() {
        return amount;
      },
      async raise(newAmount) {
        if (newAmount <= amount) return;
        const { verdict, amount: granted } = await batcher.run({
          kind: 'raise',
          holdId,
          accountId,
          amount: clampCredits(newAmount),
        });
        if (verdict === 'short') throw insufficientCredits(newAmount, granted);
        if (verdict !== 'raised')
          throw new Problem(
            'unavailable',
            'database_unavailable',
            'The credits held for this call were set free meanwhile.',
            { headers: { 'retry-after': '2' } },
          );
        amount = granted;
      },
      checkpoint(credits, facts, outputTokens) {
        const entry = trackedHolds.get(holdId);
        if (entry === undefined || settling !== undefined) return;
        entry.checkpoint = {
          credits: clampPrice(holdId, credits),
          facts: { ...entry.checkpoint?.facts, ...facts },
        };
        if (outputTokens - tokensWritten < checkpointTokens) return;
        tokensWritten = outputTokens;
        renewSoon();
      },
      // A hold is written as sent, and its lease is renewed until it is settled.
      markSent() {},
      settle(credits, facts, alongside) {
        settling ??= settle(credits, facts, alongside).catch((error: unknown) => {
          settling = undefined;
          throw error;
        });
        return settling;
      },
      release() {
        if (settling !== undefined) return;
        hold.settle(0n, factsOfNothing({ action, model: null, provider: null })).catch((error: unknown) => {
          log.warn({ err: error, hold_id: holdId }, 'a hold could not be released; its lease will end it');
        });
      },
    };
    trackedHolds.set(holdId, { hold, holdId, renewedAtMs: clock.monotonicMs(), checkpoint: null });
    return hold;
  }

  function clampPrice(holdId: string, credits: bigint): bigint {
    if (credits >= 0n && credits <= maximumCredits) return credits;
    log.error({ hold_id: holdId, credits: String(credits) }, 'a price is out of all bounds');
    return clampCredits(credits);
  }

  async function replaySettlement(settlement: Settlement): Promise<void> {
    const { holdId } = settlement;
    const verdict = await batcher.run(settlement);
    countSettlement(holdId, settlement.credits, verdict);
    trackedHolds.delete(holdId);
    unwritten.delete(holdId);
    // Keep the file of an unknown hold: it belongs to another database.
    if (verdict.verdict !== 'unknown') await journal.remove(holdId);
  }

  async function writeHold(
    call: PaidCall,
    requestedAmount: bigint,
    { isSent = true }: { isSent?: boolean } = {},
  ): Promise<Hold> {
    const amount = requestedAmount < 0n ? 0n : requestedAmount;
    const [holdId, accountId] = [id('hld'), call.userId];
    if (amount > maximumCredits)
      throw insufficientCredits(amount, await store.available(call.userId, call.tokenId));
    const { verdict, amount: granted } = await batcher.run({
      kind: 'hold',
      holdId,
      accountId,
      call,
      amount,
      isSent,
    });
    if (verdict === 'short') throw insufficientCredits(amount, granted);
    return trackHold(holdId, { accountId, action: call.action }, amount);
  }

  return {
    hold: writeHold,
    async available(userId, tokenId) {
      const available = await store.available(userId, tokenId);
      return available > 0n ? available : 0n;
    },
    async resume(holdId) {
      const row = await store.resume(holdId, leaseMs);
      if (row === null) return null;
      return trackedHolds.get(holdId)?.hold ?? trackHold(holdId, row, row.amount);
    },
    counters: () => ({ ...counters }),
    openHolds: () => trackedHolds.size,
    async renewLeases() {
      const nowMs = clock.monotonicMs();
      const due = [...trackedHolds.values()].filter(
        ({ checkpoint, renewedAtMs }) => checkpoint !== null || nowMs - renewedAtMs >= renewEveryMs,
      );
      if (due.length === 0) return;
      const renewals: LeaseRenewal[] = due.map(({ holdId, checkpoint }) => ({
        holdId,
        ...(checkpoint !== null && { checkpoint }),
      }));
      const { resolved } = await store.renewLeases(renewals, leaseMs);
      for (const [index, entry] of due.entries()) {
        entry.renewedAtMs = nowMs;
        // Keep a checkpoint that arrived during the write; the next renewal writes it.
        if (entry.checkpoint === renewals[index]?.checkpoint) entry.checkpoint = null;
      }
      for (const holdId of resolved) trackedHolds.delete(holdId);
    },
    async replay() {
      mayHaveEntries = false;
      try {
        await Promise.all(
          [...unwritten.values(), ...(await journal.list(countUnreadable))].map(replaySettlement),
        );
      } catch (error) {
        mayHaveEntries = true;
        throw error;
      }
    },
    hasJournalEntries: () => mayHaveEntries,
    recordVerification: (mismatches) => void (counters.mismatches = mismatches),
    countRecovered(verdicts) {
      for (const { verdict, overrun } of verdicts) {
        if (verdict === 'recovered' || verdict === 'voided') counters.recovered += 1;
        if (overrun === 0n) continue;
        counters.overruns += 1;
        counters.overrunCredits += overrun;
        log.error(
          { overrun: String(overrun) },
          'a call cost more than was held and available; the operator absorbs the rest',
        );
      }
    },
  };
}
