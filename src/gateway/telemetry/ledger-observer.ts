// Wraps the ledger: notes usage and charges of each call for the request log, its span and the metrics. Callers of the
// ledger need not know of telemetry.
import type { CallNote } from '../../kernel/contract/operation.ts';
import type { Hold, Ledger } from '../credits/index.ts';
import type { UsageFacts } from '../usage/index.ts';

export function observeLedger(ledger: Ledger, note: (fields: CallNote) => void): Ledger {
  // The hold is the prototype, so changing members such as `amount` stay current.
  function observeHold(hold: Hold): Hold {
    const settle: Hold['settle'] = async (credits, facts, alongside) => {
      const settlement = await hold.settle(credits, facts, alongside);
      note({ ...describeUsage(facts), credits: settlement.charged });
      return settlement;
    };
    return Object.assign(Object.create(hold) as Hold, { settle });
  }
  return {
    hold: async (call, amount, options) => observeHold(await ledger.hold(call, amount, options)),
    canSkipHoldWait: (call, amount) => ledger.canSkipHoldWait(call, amount),
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
