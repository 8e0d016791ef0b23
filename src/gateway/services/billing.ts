// Charges of a project's actions. Each charge raises one hold; the hold is settled once,
// after the action has answered. An action that fails, or whose process dies, costs nothing.
import type { Clock } from '../../kernel/clock.ts';
import type { Alongside, Hold, Ledger } from '../credits/index.ts';
import type { Identity } from '../identity.ts';
import type { UsageFacts, UsageOutcome } from '../usage/index.ts';
import type { ActionCall } from './definition.ts';

export interface ActionBilling {
  charge: ActionCall['charge'];
  /**
   * Charges the total. `alongside` is written in the same transaction, or not at all when there is no hold.
   */
  settle(alongside?: Alongside): Promise<void>;
  /** Settles the hold with 0 credits. Has no effect after `settle`. */
  release(outcome: UsageOutcome): Promise<void>;
}

export interface BillingOptions {
  ledger: Pick<Ledger, 'hold' | 'record'>;
  clock: Pick<Clock, 'monotonicMs'>;
}

const maxReasonLength = 200;

export function createActionBilling(
  { ledger, clock }: BillingOptions,
  call: { identity: Identity; requestId: string; action: string },
): ActionBilling {
  const { identity, requestId, action } = call;
  const startedMs = clock.monotonicMs();
  const reasons = new Set<string>();
  let totalCredits = 0n;
  let hold: Hold | undefined;
  let isClosed = false;
  // Charges run in sequence: the first creates the hold, later ones raise it.
  let lastCharge: Promise<void> = Promise.resolve();

  async function extend(amount: number | bigint, reason: string): Promise<void> {
    const credits = toWholeCredits(amount);
    requireReason(reason);
    if (identity.kind === 'guest')
      throw new Error('A guest has no credits to charge; let the action admit users.');
    if (isClosed) throw new Error('The action has ended and cannot charge any more.');
    if (identity.kind === 'user') {
      const newTotal = totalCredits + credits;
      if (hold === undefined) {
        const { userId, bureauId, tokenId } = identity;
        hold = await ledger.hold(
          { requestId, userId, bureauId, tokenId, action, model: null, provider: null },
          newTotal,
          { isSent: false },
        );
      } else {
        await hold.raise(newTotal);
      }
    }
    totalCredits += credits;
    reasons.add(reason);
  }

  function factsOf(outcome: UsageOutcome): UsageFacts {
    const tokens = { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 };
    const durationMs = Math.round(clock.monotonicMs() - startedMs);
    const reason = [...reasons].join('; ').slice(0, maxReasonLength);
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
      const chargePromise = lastCharge.then(() => extend(credits, reason));
      // An action may not await its charge: avoid an unhandled rejection.
      lastCharge = chargePromise.catch(() => undefined);
      return chargePromise;
    },
    async settle(alongside) {
      await lastCharge;
      isClosed = true;
      if (hold !== undefined) await hold.settle(totalCredits, factsOf('completed'), alongside);
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
      await lastCharge;
      await hold?.settle(0n, factsOf(outcome));
    },
  };
}

function requireReason(reason: unknown): void {
  if (
    typeof reason === 'string' &&
    reason !== '' &&
    reason.length <= maxReasonLength &&
    !/\p{Cc}|\p{Surrogate}/u.test(reason)
  )
    return;
  throw new TypeError(
    `The reason of a charge is a text of 1 to ${maxReasonLength} characters, none of them a control character.`,
  );
}

function toWholeCredits(credits: number | bigint): bigint {
  if ((typeof credits === 'bigint' || Number.isSafeInteger(credits)) && credits >= 0) return BigInt(credits);
  throw new TypeError('Credits are whole numbers of 0 or more.');
}
