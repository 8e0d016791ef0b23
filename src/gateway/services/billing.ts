// What an action charges its caller: held as the action asks for it, so that nothing is given that cannot be paid, and
// taken once, when the answer is whole. An action that fails, or whose process dies, costs nothing.
import type { Clock } from '../../kernel/clock.ts';
import type { Alongside, Hold, Ledger } from '../credits/index.ts';
import type { Identity } from '../identity.ts';
import type { UsageFacts, UsageOutcome } from '../usage/index.ts';
import type { ActionCall } from './definition.ts';

export interface ActionBilling {
  charge: ActionCall['charge'];
  /** Takes what was asked for; `alongside` runs in the same transaction, or not at all when there is nothing to take. */
  settle(alongside?: Alongside): Promise<void>;
  /** Sets free what was held. Does nothing after a settlement. */
  release(outcome: UsageOutcome): Promise<void>;
}

export interface BillNeeds {
  ledger: Pick<Ledger, 'hold' | 'record'>;
  clock: Pick<Clock, 'monotonicMs'>;
}

const longestReason = 200;

export function createActionBilling(
  { ledger, clock }: BillNeeds,
  call: { identity: Identity; requestId: string; action: string },
): ActionBilling {
  const { identity, requestId, action } = call;
  const startedMs = clock.monotonicMs();
  const reasons = new Set<string>();
  let total = 0n;
  let hold: Hold | undefined;
  let isClosed = false;
  // One after another, so that there is one hold, which grows.
  let last: Promise<void> = Promise.resolve();

  async function extend(given: number | bigint, reason: string): Promise<void> {
    const credits = wholeCredits(given);
    requireReason(reason);
    if (identity.kind === 'guest')
      throw new Error('A guest has no credits to charge; let the action admit users.');
    if (isClosed) throw new Error('The action has ended, and can charge nothing any more.');
    if (identity.kind === 'user') {
      const wanted = total + credits;
      if (hold === undefined) {
        const { userId, bureauId, tokenId } = identity;
        hold = await ledger.hold(
          { requestId, userId, bureauId, tokenId, action, model: null, provider: null },
          wanted,
          { isSent: false },
        );
      } else {
        await hold.raise(wanted);
      }
    }
    total += credits;
    reasons.add(reason);
  }

  function factsOf(outcome: UsageOutcome): UsageFacts {
    const tokens = { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 };
    const durationMs = Math.round(clock.monotonicMs() - startedMs);
    const reason = [...reasons].join('; ').slice(0, longestReason);
    return {
      action,
      model: null,
      provider: null,
      tokens,
      units: {},
      outcome,
      estimated: false,
      ttftMs: null,
      durationMs,
      reason,
    };
  }

  return {
    charge(credits, reason) {
      const charged = last.then(() => extend(credits, reason));
      // So that one which nobody waits for does not end the process.
      last = charged.catch(() => undefined);
      return charged;
    },
    async settle(alongside) {
      await last;
      isClosed = true;
      if (hold !== undefined) await hold.settle(total, factsOf('completed'), alongside);
      else if (reasons.size > 0 && identity.kind === 'admin') {
        await ledger.record(
          {
            requestId,
            userId: null,
            bureauId: null,
            tokenId: identity.tokenId,
            action,
            model: null,
            provider: null,
          },
          factsOf('completed'),
        );
      }
    },
    async release(outcome) {
      isClosed = true;
      await last;
      await hold?.settle(0n, factsOf(outcome));
    },
  };
}

function requireReason(reason: unknown): void {
  if (
    typeof reason === 'string' &&
    reason !== '' &&
    reason.length <= longestReason &&
    !/\p{Cc}|\p{Surrogate}/u.test(reason)
  )
    return;
  throw new TypeError(
    `The reason of a charge is a text of 1 to ${longestReason} characters, none of them a control character.`,
  );
}

function wholeCredits(credits: number | bigint): bigint {
  if ((typeof credits === 'bigint' || Number.isSafeInteger(credits)) && credits >= 0) return BigInt(credits);
  throw new TypeError('Credits are whole numbers of 0 or more.');
}
