// The ledger for other slices: reservations in memory on allotments, and exact holds
// in the database for jobs and for calls with an Idempotency-Key.
import { createSharedReads } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { MakeId } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { askReports } from './allotments/ask-reports.ts';
import { closeEndedTokens, type FindEndedTokens } from './allotments/ended-tokens.ts';
import { recallUser } from './allotments/recall-user.ts';
import { endAllotments } from './allotments/leases.ts';
import { holdWithRecall } from './allotments/hold-with-recall.ts';
import { openAllotments, type Allotments } from './allotments/open-allotments.ts';
import { isInsufficient } from './allotments/problems.ts';
import type { AllotmentStore } from './allotments/store.ts';
import { defaultAllotmentTimes, type AllotmentTimes } from './allotments/times.ts';
import type { JournalDirectory } from './journal/journal.ts';
import type { Hold, Ledger } from './core/ports.ts';

export interface PaidLedgerOptions {
  holds: Pick<Ledger, 'hold' | 'available' | 'resume'>;
  store: AllotmentStore;
  /** Null with `JOURNAL=off`. */
  directory: JournalDirectory | null;
  findEndedTokens: FindEndedTokens;
  clock: Clock;
  makeId: MakeId;
  log: Log;
  isAlone: boolean;
  times?: Partial<AllotmentTimes>;
}

type Affordable = Awaited<ReturnType<AllotmentStore['affordable']>>;

const adoptAgainMs = 500;

/**
 * Opens its journal with the first call or with `start`, so that a read-only
 * command creates no files.
 */
export class PaidLedger implements Ledger {
  readonly #options: PaidLedgerOptions;
  readonly #times: AllotmentTimes;
  #opening: Promise<Allotments> | null = null;
  #allotments: Allotments | null = null;
  #closing: Promise<void> | null = null;
  #isStarted = false;
  /**
   * Allotments from before the ledger was restored. Calls that reserved from them may still be
   * running and write their charges, so the journals stay open until `close`.
   */
  readonly #former: Allotments[] = [];

  readonly #sharedBalances = createSharedReads<bigint>();
  readonly #sharedAffordable = createSharedReads<Affordable>();

  constructor(options: PaidLedgerOptions) {
    this.#options = options;
    this.#times = { ...defaultAllotmentTimes, ...options.times };
  }

  /** Null before the first call or `start`, and until a restored ledger is adopted. */
  get allotments(): Allotments | null {
    return this.#allotments;
  }

  readonly reserve: Ledger['reserve'] = (call, amount) => {
    if (this.#allotments !== null) return this.#allotments.ledger.reserve(call, amount);
    return this.#open().then(({ ledger }) => ledger.reserve(call, amount));
  };

  readonly hold: Ledger['hold'] = async (call, amount, options) => {
    const { userId, tokenId } = call;
    const write = () => this.#options.holds.hold(call, amount, options);
    const hold = await this.#withRecall({ userId, tokenId, amount }, write);
    return this.#recallOnRaise(hold, { userId, tokenId });
  };

  /** A resumed hold is that of a job, which is never raised, so it needs no recall of idle credits. */
  readonly resume: Ledger['resume'] = (holdId) => this.#options.holds.resume(holdId);

  // Each refused call reads the balance for its error message, so concurrent reads of one balance
  // share a query. Otherwise a thousand calls that are refused at once would wait for a database
  // connection until the statement timeout, and answer 503 instead of 402.
  readonly available: Ledger['available'] = (userId, tokenId) =>
    this.#sharedBalances(`${userId} ${tokenId}`, async () => {
      await this.report(userId);
      return this.#options.holds.available(userId, tokenId);
    });

  readonly record: Ledger['record'] = async (call, facts) => {
    const { ledger } = await this.#open();
    ledger.record(call, facts);
  };

  /**
   * Writes this process's charges and reservations to the database. Does not give idle credits
   * back. Never throws.
   */
  async report(userId?: string): Promise<void> {
    try {
      await this.#allotments?.ledger.report(userId);
    } catch (error) {
      this.#options.log.debug({ err: error }, 'a balance is read without the latest charges');
    }
  }

  /**
   * Does what `report` does, and requests it from the other gateways that hold credits of the user,
   * or of any user. Afterwards their earlier charges are in the database too, except those of a
   * gateway that does not respond within half a second.
   */
  async reportEverywhere(userId?: string): Promise<void> {
    const { store, clock, isAlone, log } = this.#options;
    if (isAlone) return this.report(userId);
    const reportRequest = {
      store,
      clock,
      gatewayId: this.#allotments?.gatewayId ?? null,
      userId: userId ?? null,
    };
    try {
      await Promise.all([this.report(userId), askReports(reportRequest)]);
    } catch (error) {
      log.debug({ err: error }, 'a balance is read without the latest charges of other gateways');
    }
  }

  /**
   * Gives back the idle credits of ended tokens in this process. Call it after
   * credentials have changed. Expired tokens are checked every second anyway. Throws when
   * the database is unavailable.
   */
  async closeEndedTokens(): Promise<void> {
    const ledger = this.#allotments?.ledger;
    if (ledger !== undefined) await closeEndedTokens(ledger, this.#options.findEndedTokens);
  }

  /**
   * Makes all gateways give back the user's idle credits, before credits are taken from the user.
   * Waits for them a second at most.
   */
  recallUser(userId: string): Promise<void> {
    const { store, clock, log } = this.#options;
    return recallUser(userId, { allotments: this.#allotments, store, clock, log });
  }

  /** Throws 503 `journal_unavailable` while no charge can be made durable in the journal. */
  requireJournal(): void {
    this.#allotments?.requireJournal();
  }

  /** Replays the journals of dead processes and starts the maintenance of allotments. */
  async start(): Promise<void> {
    this.#isStarted = true;
    const allotments = await this.#open();
    await allotments.start();
  }

  /** A second call has no effect. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const allotments = await this.#opening?.catch(() => null);
    await allotments?.close();
    for (const formerLedger of this.#former) await formerLedger.close();
  }

  #open(): Promise<Allotments> {
    const onOtherGeneration = (): void => void this.#adoptGeneration();
    this.#opening ??= openAllotments({ ...this.#options, onOtherGeneration }).then(
      (allotments) => (this.#allotments = allotments),
      (error: unknown) => {
        this.#opening = null;
        throw error;
      },
    );
    return this.#opening;
  }

  /** Opens a new journal and new allotments after the ledger was restored under this process. */
  async #adoptGeneration(): Promise<void> {
    const formerAllotments = this.#allotments;
    if (formerAllotments === null || this.#closing !== null) return;
    this.#former.push(formerAllotments);
    this.#allotments = null;
    this.#opening = null;
    const { store, clock, log } = this.#options;
    await formerAllotments.stop();
    while (this.#closing === null) {
      try {
        const allotments = await this.#open();
        // End allotments that the former instance opened while the restore was running.
        await endAllotments(store, await store.ofGateway(formerAllotments.gatewayId));
        if (this.#isStarted) await allotments.start();
        return log.info({ gateway_id: allotments.gatewayId }, 'continues with the restored ledger');
      } catch (error) {
        log.warn({ err: error }, 'the restored ledger cannot be used yet; retrying');
        await clock.sleep(adoptAgainMs);
      }
    }
  }

  async #withRecall<T>(
    payer: { userId: string; tokenId: string; amount: bigint },
    write: () => Promise<T>,
  ): Promise<T> {
    try {
      return await write();
    } catch (error) {
      if (!isInsufficient(error)) throw error;
    }
    const { store, clock, makeId } = this.#options;
    const allotments = await this.#open();
    const sharedStore: Pick<AllotmentStore, 'affordable' | 'recall'> = {
      recall: (request) => store.recall(request),
      affordable: (request) =>
        this.#sharedAffordable(JSON.stringify(request), () => store.affordable(request)),
    };
    return holdWithRecall(payer, write, {
      allotments,
      store: sharedStore,
      clock,
      makeId,
      times: this.#times,
    });
  }

  #recallOnRaise(hold: Hold, payer: { userId: string; tokenId: string }): Hold {
    const raise = hold.raise.bind(hold);
    hold.raise = (amount) => {
      const missingCredits = amount - hold.amount;
      return this.#withRecall({ ...payer, amount: missingCredits }, () => raise(amount));
    };
    return hold;
  }
}
