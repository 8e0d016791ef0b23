// Wraps the ledger to record the usage and charges of each call for the request log, its span and
// the metrics, so that the callers of the ledger need no telemetry.
import type { CallNote } from '../../kernel/contract/operation.ts';
import type { Alongside, Hold, Ledger, Reservation } from '../credits/index.ts';
import type { UsageFacts } from '../usage/index.ts';

/**
 * A class, because one is created for each call: an object literal would create a getter and six
 * closures each time.
 */
class ObservedReservation implements Reservation {
  readonly #reservation: Reservation;
  readonly #note: (fields: CallNote) => void;

  constructor(reservation: Reservation, note: (fields: CallNote) => void) {
    this.#reservation = reservation;
    this.#note = note;
  }

  get amount(): bigint {
    return this.#reservation.amount;
  }

  raise(amount: bigint): void | Promise<void> {
    return this.#reservation.raise(amount);
  }

  markSent(attempt: Parameters<Reservation['markSent']>[0]): void {
    this.#reservation.markSent(attempt);
  }

  checkpoint(credits: bigint, facts: Partial<UsageFacts>, outputTokens: number): void {
    this.#reservation.checkpoint(credits, facts, outputTokens);
  }

  async settle(credits: bigint, facts: UsageFacts, alongside?: Alongside): Promise<{ charged: bigint }> {
    const settlement = await this.#reservation.settle(credits, facts, alongside);
    this.#note({ ...describeUsage(facts), credits: settlement.charged });
    return settlement;
  }

  release(): void {
    this.#reservation.release();
  }
}

export function observeLedger(ledger: Ledger, note: (fields: CallNote) => void): Ledger {
  const observe = (reservation: Reservation) => new ObservedReservation(reservation, note);

  // Object.assign keeps the getter `amount`; a spread would copy its current value. `raise` is replaced
  // because that of a hold always returns a promise, and that of a reservation only sometimes.
  function observeHold(hold: Hold): Hold {
    return Object.assign(observe(hold), {
      holdId: hold.holdId,
      raise: (amount: bigint) => hold.raise(amount),
    });
  }

  return {
    reserve(call, amount) {
      const reservation = ledger.reserve(call, amount);
      return reservation instanceof Promise ? reservation.then(observe) : observe(reservation);
    },
    hold: async (call, amount, options) => observeHold(await ledger.hold(call, amount, options)),
    available: (userId, tokenId) => ledger.available(userId, tokenId),
    async record(call, facts) {
      await ledger.record(call, facts);
      note(describeUsage(facts));
    },
    async resume(holdId) {
      const hold = await ledger.resume(holdId);
      return hold === null ? null : observeHold(hold);
    },
  };
}

function describeUsage({ model, provider, tokens, ttftMs }: UsageFacts): CallNote {
  return {
    tokens,
    ...(model === null ? {} : { model }),
    ...(provider === null ? {} : { provider }),
    ...(ttftMs === null ? {} : { ttftMs }),
  };
}
