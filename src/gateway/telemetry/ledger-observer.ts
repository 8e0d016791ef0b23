// Wraps the ledger: notes usage and charges of each call for the request log, its span and the metrics. Callers of the
// ledger need not know of telemetry.
import type { CallNote } from '../../kernel/contract/operation.ts';
import type { Hold, Ledger, Reservation } from '../credits/index.ts';
import type { UsageFacts } from '../usage/index.ts';

export function observeLedger(ledger: Ledger, note: (fields: CallNote) => void): Ledger {
  function observe(reservation: Reservation): Reservation {
    return {
      get amount() {
        return reservation.amount;
      },
      raise: (amount) => reservation.raise(amount),
      markSent: (attempt) => reservation.markSent(attempt),
      checkpoint: (credits, facts, outputTokens) => reservation.checkpoint(credits, facts, outputTokens),
      async settle(credits, facts, alongside) {
        const settlement = await reservation.settle(credits, facts, alongside);
        note({ ...describeUsage(facts), credits: settlement.charged });
        return settlement;
      },
      release: () => reservation.release(),
    };
  }

  // The getter of `amount` must not be copied by a spread, which would freeze its value.
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
