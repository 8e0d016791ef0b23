// Reserves the bounds of calls. Order: the token's own allotment, idle credits of
// the account's other allotments in this process, an enlargement, and idle credits
// of other gateways, for which a call waits a second at most.
import type { Clock } from '../../../kernel/clock.ts';
import type { MakeId } from '../../../kernel/ids.ts';
import type { Log } from '../../../kernel/log.ts';
import { freeCredits, idleCredits, reserveCredits, type Allotment, type Payer } from './allotment.ts';
import { payerKey, type AllotmentPool } from './pool.ts';
import { creditsBusy, insufficientCredits } from './problems.ts';
import { enlargementOf, needsEnlargement } from './sizing.ts';
import type { AllotmentStore, AllotResult } from './store.ts';
import type { AllotmentTimes } from './times.ts';
import { TokenQueue, type WaitingCall } from './token-queue.ts';
import type { AllotmentWrites } from './writes.ts';

export interface ReservingOptions {
  store: Pick<AllotmentStore, 'recall'>;
  pool: AllotmentPool;
  writes: AllotmentWrites;
  clock: Clock;
  makeId: MakeId;
  log: Log;
  gatewayId: string;
  times: Pick<AllotmentTimes, 'recallMs' | 'recallPollMs'>;
  counters: ReservingCounters;
  /** Renews all leases of this process now. */
  renewLeases(): Promise<void>;
}

export interface ReservingCounters {
  recalls: number;
  busy: number;
}

// An allotment may end while a call waits for it. Give up after this many new allotments.
const maximumOpenings = 5;
// Repeated, since calls of the account's other tokens may take the returned credits first.
const maximumGiveBacks = 8;
// The pause after a refused or useless background enlargement.
const enlargePauseMs = 1_000;

export class Reserving {
  readonly #options: ReservingOptions;
  readonly #queues = new Map<string, TokenQueue>();
  #mayEnlarge = true;

  constructor(options: ReservingOptions) {
    this.#options = options;
  }

  /**
   * Reserves the amount in the token's allotment; synchronously when the allotment has enough free
   * credits and no call of the token waits.
   */
  take(payer: Payer, amount: bigint): Allotment | Promise<Allotment> {
    const allotment = this.#options.pool.ofPayer(payer);
    const key = payerKey(payer);
    const nowMs = this.#options.clock.monotonicMs();
    if (
      allotment !== undefined &&
      !this.#queues.has(key) &&
      freeCredits(allotment, this.#options.clock) >= amount
    ) {
      allotment.latestBound = amount;
      reserveCredits(allotment, amount, nowMs);
      this.#enlargeInBackground(allotment, nowMs);
      return allotment;
    }
    return this.#wait(payer, key, amount);
  }

  /** Stops background enlargement: allotments then grow only by the bounds of calls. */
  stopEnlarging(): void {
    this.#mayEnlarge = false;
  }

  #wait(payer: Payer, key: string, amount: bigint): Promise<Allotment> {
    const { promise, resolve, reject } = Promise.withResolvers<Allotment>();
    let queue = this.#queues.get(key);
    if (queue === undefined) this.#queues.set(key, (queue = new TokenQueue()));
    queue.waiting.push({ amount, giveBacks: 0, recall: null, resolve, reject });
    if (!queue.isFilling) void this.#fill(payer, queue);
    return promise;
  }

  /** Acquires credits until no call of the token waits. One run per token. */
  async #fill(payer: Payer, queue: TokenQueue): Promise<void> {
    queue.isFilling = true;
    try {
      // The calls of this turn of the event loop share one statement.
      await Promise.resolve();
      let openings = 0;
      while (queue.head !== undefined) {
        const allotment = await this.#usableAllotment(payer);
        // While leases were renewed, a give-back of the allotment may have begun: wait for it.
        if (this.#serve(queue, allotment) || allotment.write !== null) continue;
        const outcome = await this.#fillOnce(payer, queue, allotment);
        if (outcome === 'gone' || outcome === 'closed') openings += 1;
        if (openings > maximumOpenings)
          throw creditsBusy('The credits of this account are being returned; try again.');
      }
    } catch (error) {
      queue.rejectAll(error);
    } finally {
      queue.isFilling = false;
      this.#queues.delete(payerKey(payer));
    }
  }

  /** The token's allotment without a pending write and with a valid lease, or a new one. */
  async #usableAllotment(payer: Payer): Promise<Allotment> {
    const { pool, clock } = this.#options;
    const existing = pool.ofPayer(payer);
    if (existing === undefined) return this.#open(payer);
    if (existing.write !== null) {
      await waitForWrite(existing.write);
      return this.#usableAllotment(payer);
    }
    if (existing.version > 0 && idleCredits(existing) > 0n && freeCredits(existing, clock) === 0n)
      await this.#options.renewLeases();
    return pool.ofPayer(payer) ?? this.#open(payer);
  }

  async #open(payer: Payer): Promise<Allotment> {
    const { pool, writes, clock } = this.#options;
    if (!pool.hasRoom()) {
      const idlestAllotment = pool.leastRecentlyUsed();
      if (idlestAllotment !== undefined) await writes.giveBack([idlestAllotment], { end: true });
      if (!pool.hasRoom()) throw creditsBusy('This gateway serves too many tokens at once; try again.');
    }
    return pool.ofPayer(payer) ?? pool.open(payer, clock.monotonicMs());
  }

  /** Grants waiting calls in order; returns whether any was granted. */
  #serve(queue: TokenQueue, allotment: Allotment): boolean {
    const { clock } = this.#options;
    const nowMs = clock.monotonicMs();
    let remainingCredits = freeCredits(allotment, clock);
    const calls = queue.take(({ amount }) => {
      if (amount > remainingCredits) return false;
      remainingCredits -= amount;
      return true;
    });
    for (const { amount, resolve } of calls) {
      allotment.latestBound = amount;
      reserveCredits(allotment, amount, nowMs);
      resolve(allotment);
    }
    if (calls.length > 0 && queue.head === undefined) this.#enlargeInBackground(allotment, nowMs);
    return calls.length > 0;
  }

  async #fillOnce(payer: Payer, queue: TokenQueue, allotment: Allotment): Promise<AllotResult['outcome']> {
    const { clock, pool, writes } = this.#options;
    const head = queue.head as WaitingCall;
    const free = freeCredits(allotment, clock);
    const need = head.amount - free;
    const enlargement = enlargementOf(allotment, {
      nowMs: clock.monotonicMs(),
      available: writes.available(payer.userId),
      idleOfUser: pool.idleOfUser(payer.userId),
    });
    const want = queue.total - free + enlargement;
    const giveBacksBefore = writes.giveBacks;
    const result = await writes.enlarge(allotment, { need, want, ticket: head.recall?.ticket });
    if (result.outcome !== 'short') return result.outcome;
    if (head.giveBacks < maximumGiveBacks) {
      const isOutdated = writes.giveBacks !== giveBacksBefore;
      if ((await this.#giveBackOfSiblings(payer, allotment)) || isOutdated) {
        head.giveBacks += 1;
        return result.outcome;
      }
    }
    const idleOfSiblings = pool.idleOfUser(payer.userId) - idleCredits(allotment);
    await this.#waitForOthers(payer, queue, {
      free: freeCredits(allotment, clock),
      available: result.available,
      elsewhere: result.idleElsewhere + idleOfSiblings,
    });
    return result.outcome;
  }

  /**
   * Gives the idle credits of the account's other allotments back for this token.
   * False when there are none and no pending write may return any.
   */
  async #giveBackOfSiblings(payer: Payer, allotment: Allotment): Promise<boolean> {
    const { pool, writes } = this.#options;
    const siblings = pool.ofUser(payer.userId).filter((sibling) => sibling !== allotment);
    const pendingSiblings = siblings.filter(({ write }) => write !== null);
    // A give-back of unknown outcome is repeated: its credits may be neither
    // here nor in the account.
    const uncertainSiblings = siblings.filter(
      ({ isGiveBackUncertain, write }) => isGiveBackUncertain && write === null,
    );
    const idleSiblings = siblings.filter(
      (sibling) => idleCredits(sibling) > 0n && !sibling.isGiveBackUncertain,
    );
    if ((await writes.giveBack([...idleSiblings, ...uncertainSiblings])) > 0n || uncertainSiblings.length > 0)
      return true;
    await Promise.all(pendingSiblings.map(({ write }) => waitForWrite(write)));
    return pendingSiblings.length > 0;
  }

  /**
   * Rejects with 402 the calls that all idle credits together cannot pay; the others
   * wait for other gateways.
   */
  async #waitForOthers(
    payer: Payer,
    queue: TokenQueue,
    { free, available, elsewhere }: { free: bigint; available: bigint; elsewhere: bigint },
  ): Promise<void> {
    const { store, clock, times, makeId, gatewayId, counters } = this.#options;
    const obtainableCredits = free + available + elsewhere;
    const firstCall = queue.head;
    // Once a call has a ticket, only that call can be refused: the other gateways answered for this
    // ticket, and may have idle credits again for later calls.
    const mayRefuse = (call: WaitingCall): boolean =>
      firstCall === undefined || firstCall.recall === null || call === firstCall;
    for (const call of queue.take((call) => call.amount > obtainableCredits && mayRefuse(call)))
      call.reject(insufficientCredits(call.amount, free + available));
    const { head } = queue;
    // Concurrent calls may have released credits meanwhile.
    if (head === undefined || head.amount <= free) return;
    const nowMs = clock.monotonicMs();
    if (head.recall === null) {
      const ticket = makeId('tkt');
      head.recall = { ticket, sinceMs: nowMs };
      counters.recalls += 1;
      const { userId, tokenId } = payer;
      await store.recall({ ticket, gatewayId, userId, tokenId, need: head.amount - free });
    } else if (nowMs - head.recall.sinceMs >= times.recallMs) {
      counters.busy += 1;
      const [expiredCall] = queue.take((call) => call === head);
      return expiredCall?.reject(creditsBusy('Other gateways hold the credits of this account; try again.'));
    }
    await clock.sleep(times.recallPollMs);
  }

  /**
   * Keeps credits ready for the token's next calls. Failures have no effect: a call
   * that needs more credits requests them itself.
   */
  #enlargeInBackground(allotment: Allotment, nowMs: number): void {
    const { pool, writes, log } = this.#options;
    if (!this.#mayEnlarge) return;
    if (allotment.write !== null || nowMs < allotment.enlargeAfterMs || allotment.state !== 'open') return;
    if (!needsEnlargement(allotment, nowMs)) return;
    const want = enlargementOf(allotment, {
      nowMs,
      available: writes.available(allotment.userId),
      idleOfUser: pool.idleOfUser(allotment.userId),
    });
    allotment.enlargeAfterMs = nowMs + (want > 0n ? 0 : enlargePauseMs);
    if (want === 0n) return;
    writes.enlarge(allotment, { need: 1n, want }).then(
      ({ outcome }) => {
        if (outcome !== 'granted') allotment.enlargeAfterMs = nowMs + enlargePauseMs;
      },
      (error: unknown) => {
        allotment.enlargeAfterMs = nowMs + enlargePauseMs;
        log.debug({ err: error }, 'an allotment could not be enlarged in the background');
      },
    );
  }
}

/** Resolves when the write has ended, successfully or not. */
function waitForWrite(write: Promise<unknown> | null): Promise<unknown> {
  return Promise.resolve(write).catch(() => undefined);
}
