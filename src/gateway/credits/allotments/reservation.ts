// The bound of one call in memory: reserved → sent → settled or released.
import type { Clock } from '../../../kernel/clock.ts';
import type { UsageFacts } from '../../usage/index.ts';
import type { Journal } from '../journal/journal.ts';
import type { Alongside, PaidCall, Reservation, SentAttempt } from '../core/ports.ts';
import { chargeReservation, releaseCredits, type Allotment } from './allotment.ts';
import type { UnappliedCharge } from './charge-queue.ts';
import { isLeaseValid } from './lease.ts';
import { creditsBusy } from './problems.ts';
import { checkpointTokens, clampCredits, type AllotmentTimes } from './times.ts';

/** The functions of the ledger that a reservation uses. */
export interface ReservationContext {
  journal: Pick<Journal, 'append'>;
  clock: Pick<Clock, 'now' | 'monotonicMs'>;
  times: Pick<AllotmentTimes, 'checkpointEveryMs'>;
  /**
   * Reserves more from the same allotment, or from a first one when a free call becomes a paid one.
   */
  take(call: PaidCall, amount: bigint, from: Allotment | null): Allotment | Promise<Allotment>;
  /** Queues a charge for the database. */
  addCharge(charge: UnappliedCharge): void;
  /** Resolves when the line is durable. */
  sync(seq: number): Promise<void>;
  /**
   * Resolves with the credits that account and allotment paid for a charge;
   * undefined when the database does not respond.
   */
  readResult(charge: UnappliedCharge): Promise<bigint | undefined>;
}

type State =
  | { phase: 'reserved' }
  | { phase: 'sent'; model: string; writtenAtMs: number; tokensWritten: number }
  | { phase: 'settled'; settlement: Promise<{ charged: bigint }> }
  | { phase: 'released' };

export class CallReservation implements Reservation {
  readonly #context: ReservationContext;
  readonly #call: PaidCall;
  readonly #usageId: string;
  #amount: bigint;
  #allotment: Allotment | null;
  #state: State = { phase: 'reserved' };

  constructor(
    context: ReservationContext,
    init: { call: PaidCall; usageId: string; amount: bigint; allotment: Allotment | null },
  ) {
    this.#context = context;
    this.#call = init.call;
    this.#usageId = init.usageId;
    this.#amount = init.amount;
    this.#allotment = init.allotment;
  }

  get amount(): bigint {
    return this.#amount;
  }

  raise(amount: bigint): void | Promise<void> {
    if (amount <= this.#amount) return;
    const missingCredits = amount - this.#amount;
    const source = this.#context.take(this.#call, missingCredits, this.#allotment);
    if (!(source instanceof Promise)) return this.#grow(source, missingCredits);
    return source.then((allotment) => this.#grow(allotment, missingCredits));
  }

  markSent({ model, provider, inputCredits, facts }: SentAttempt): void {
    this.#requireLease();
    // The `sent` line of the first attempt covers a retry of the same model.
    if (this.#state.phase === 'sent' && this.#state.model === model) return;
    if (this.#state.phase === 'settled' || this.#state.phase === 'released')
      throw new Error('A call that has ended cannot be sent.');
    this.#context.journal.append({
      kind: 'sent',
      usageId: this.#usageId,
      call: { ...this.#call, model, provider },
      allotmentId: this.#allotment?.allotmentId ?? null,
      credits: clampCredits(inputCredits),
      facts,
    });
    const writtenAtMs = this.#context.clock.monotonicMs();
    this.#state = { phase: 'sent', model, writtenAtMs, tokensWritten: 0 };
  }

  checkpoint(credits: bigint, facts: Partial<UsageFacts>, outputTokens: number): void {
    if (this.#state.phase !== 'sent') return;
    const { journal, clock, times } = this.#context;
    const nowMs = clock.monotonicMs();
    const isDue =
      nowMs - this.#state.writtenAtMs >= times.checkpointEveryMs ||
      outputTokens - this.#state.tokensWritten >= checkpointTokens;
    if (!isDue) return;
    this.#state = { ...this.#state, writtenAtMs: nowMs, tokensWritten: outputTokens };
    journal.append({ kind: 'checkpoint', usageId: this.#usageId, credits: clampCredits(credits), facts });
  }

  settle(credits: bigint, facts: UsageFacts, alongside?: Alongside): Promise<{ charged: bigint }> {
    if (alongside !== undefined)
      return Promise.reject(new Error('Only a hold can be settled in a transaction with other work.'));
    if (this.#state.phase === 'settled') return this.#state.settlement;
    if (this.#state.phase === 'released') return Promise.resolve({ charged: 0n });
    const charge = this.#charge(clampCredits(credits), facts);
    const settlement = this.#finish(charge);
    this.#state = { phase: 'settled', settlement };
    return settlement;
  }

  release(): void {
    const { phase } = this.#state;
    if (phase === 'settled' || phase === 'released') return;
    // A call is marked as sent before its request is written, so it may be released if nothing was written.
    // Without a final line, a replay would charge it as if this process had died during the call.
    if (phase === 'sent') this.#charge(0n, unusedFacts(this.#call));
    else if (this.#allotment !== null) releaseCredits(this.#allotment, this.#amount);
    this.#state = { phase: 'released' };
  }

  #grow(allotment: Allotment, credits: bigint): void {
    if (this.#state.phase === 'settled' || this.#state.phase === 'released')
      return releaseCredits(allotment, credits);
    this.#allotment = allotment;
    this.#amount += credits;
  }

  #requireLease(): void {
    const allotment = this.#allotment;
    if (allotment === null) return;
    if (allotment.state !== 'ended' && isLeaseValid(allotment.lease, this.#context.clock)) return;
    throw creditsBusy('The credits that were reserved for this call are being returned; try again.');
  }

  /**
   * Appends the final line and turns the reservation into a charge, in one turn of the event loop.
   */
  #charge(credits: bigint, facts: UsageFacts): UnappliedCharge {
    const { journal, clock, addCharge } = this.#context;
    const allotment = this.#allotment;
    const nowMs = clock.monotonicMs();
    const body = {
      usageId: this.#usageId,
      call: this.#call,
      allotmentId: allotment?.allotmentId ?? null,
      credits,
      facts,
    };
    const seq = journal.append({ kind: 'final', ...body });
    const coveredCredits =
      allotment === null ? 0n : chargeReservation(allotment, { amount: this.#amount, credits, nowMs });
    const charge: UnappliedCharge = {
      line: { seq, ...body },
      allotment,
      covered: coveredCredits,
      addedAtMs: nowMs,
    };
    addCharge(charge);
    return charge;
  }

  async #finish(charge: UnappliedCharge): Promise<{ charged: bigint }> {
    const { credits, seq } = charge.line;
    // The database decides what an account pays above the covered part.
    const paidCredits = credits > charge.covered ? this.#context.readResult(charge) : undefined;
    // The usage line of a free call need not be synced: no credits are lost with it.
    if (credits > 0n) await this.#context.sync(seq);
    return { charged: (await paidCredits) ?? charge.covered };
  }
}

/** The usage of a call that sent nothing to a provider. */
export function unusedFacts({
  action,
  model,
  provider,
}: Pick<PaidCall, 'action' | 'model' | 'provider'>): UsageFacts {
  return {
    action,
    model,
    provider,
    tokens: { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 },
    units: {},
    outcome: 'rejected',
    estimated: false,
    ttftMs: null,
    durationMs: 0,
  };
}
