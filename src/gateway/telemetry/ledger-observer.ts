// A ledger that also tells the line of a request, its span and the metrics what was used and charged; so nobody who
// holds and settles has to know of any of these.
import type { CallNote } from '../../kernel/contract/operation.ts';
import type { Hold, Ledger } from '../credits/index.ts';
import type { UsageFacts } from '../usage/index.ts';

export function observeLedger(ledger: Ledger, note: (fields: CallNote) => void): Ledger {
  // The hold itself behind it, whose members go on as they change.
  function observedHold(hold: Hold): Hold {
    const settle: Hold['settle'] = async (credits, facts, alongside) => {
      const settled = await hold.settle(credits, facts, alongside);
      note({ ...noteOf(facts), credits: settled.charged });
      return settled;
    };
    return Object.assign(Object.create(hold) as Hold, { settle });
  }
  return {
    hold: async (call, amount, options) => observedHold(await ledger.hold(call, amount, options)),
    canSkipHoldWait: (call, amount) => ledger.canSkipHoldWait(call, amount),
    available: (userId, tokenId) => ledger.available(userId, tokenId),
    async record(call, facts) {
      await ledger.record(call, facts);
      note(noteOf(facts));
    },
    async resume(holdId) {
      const hold = await ledger.resume(holdId);
      return hold === null ? null : observedHold(hold);
    },
  };
}

function noteOf({ model, provider, tokens, ttftMs }: UsageFacts): CallNote {
  return {
    tokens,
    ...(model === null ? {} : { model }),
    ...(provider === null ? {} : { provider }),
    ...(ttftMs === null ? {} : { ttftMs }),
  };
}
