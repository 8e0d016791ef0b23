// Charges of a project's actions. Each action has one hold, which every charge raises; it is settled once,
// after the action has answered. An action that fails, or whose process dies, costs nothing.
import type { Clock } from '../../kernel/clock.ts';
import type { Alongside, Hold, Ledger } from '../credits/index.ts';
import type { Identity } from '../identity.ts';
import type { UsageFacts, UsageOutcome } from '../usage/index.ts';
import type { ActionCall } from './definition.ts';

export interface ActionBilling {
  charge: ActionCall['charge'];
  /** Charges the total. `alongside` is written in the same transaction; without a hold it is not written. */
  settle(alongside?: Alongside): Promise<void>;
  /** Settles the hold with 0 credits. Has no effect after `settle`. */
  release(outcome: UsageOutcome): Promise<void>;
}

export interface BillingOptions {
  ledger: Pick<Ledger, 'hold' | 'record'>;
  clock: Pick<Clock, 'monotonicMs'>;
}

const maxReasonLength = 200;

interface BilledCall {
  identity: Identity;
  requestId: string;
  /** The service and the action, such as `shop/order`. */
  action: string;
}

/** The charges of one action so far. */
interface Charges {
  credits: bigint;
  reasons: Set<string>;
  /** The hold over `credits`; undefined before the first charge of a user. */
  hold: Hold | undefined;
  /** The action has ended: another charge throws. */
  isClosed: boolean;
}

export function createActionBilling({ ledger, clock }: BillingOptions, call: BilledCall): ActionBilling {
  const startedMs = clock.monotonicMs();
  const charges: Charges = { credits: 0n, reasons: new Set(), hold: undefined, isClosed: false };
  // Charges run one after another: the first creates the hold, and later charges raise it.
  let lastCharge: Promise<void> = Promise.resolve();

  const factsOf = (outcome: UsageOutcome): UsageFacts =>
    usageFacts(call.action, charges, { outcome, durationMs: Math.round(clock.monotonicMs() - startedMs) });

  return {
    charge(credits, reason) {
      const chargePromise = lastCharge.then(() => addCharge(ledger, call, charges, { credits, reason }));
      // The action may not await its charge: prevent an unhandled rejection.
      lastCharge = chargePromise.catch(() => undefined);
      return chargePromise;
    },
    async settle(alongside) {
      await lastCharge;
      charges.isClosed = true;
      const { hold, credits, reasons } = charges;
      if (hold !== undefined) await hold.settle(credits, factsOf('completed'), alongside);
      // An administrator's charges cost nothing and have no hold. Record the call, as a user's is recorded.
      else if (reasons.size > 0 && call.identity.kind === 'admin') {
        const { tokenId } = call.identity;
        const freeCall = { ...ledgerCall(call), userId: null, bureauId: null, tokenId };
        await ledger.record(freeCall, factsOf('completed'));
      }
    },
    async release(outcome) {
      charges.isClosed = true;
      await lastCharge;
      await charges.hold?.settle(0n, factsOf(outcome));
    },
  };
}

/** Creates or raises the hold of a user; an administrator pays nothing. Throws for a guest. */
async function addCharge(
  ledger: Pick<Ledger, 'hold'>,
  call: BilledCall,
  charges: Charges,
  { credits: amount, reason }: { credits: number | bigint; reason: string },
): Promise<void> {
  const { identity } = call;
  const credits = toWholeCredits(amount);
  requireReason(reason);
  if (identity.kind === 'guest')
    throw new Error('A guest has no credits to charge; require users in `identities` of the action.');
  if (charges.isClosed) throw new Error('The action has ended and can no longer charge.');
  const total = charges.credits + credits;
  if (identity.kind === 'user') {
    const { userId, bureauId, tokenId } = identity;
    const paidCall = { ...ledgerCall(call), userId, bureauId, tokenId };
    if (charges.hold === undefined) charges.hold = await ledger.hold(paidCall, total, { isSent: false });
    else await charges.hold.raise(total);
  }
  charges.credits = total;
  charges.reasons.add(reason);
}

function ledgerCall({ requestId, action }: BilledCall) {
  return { requestId, action, model: null, provider: null };
}

function usageFacts(
  action: string,
  { reasons }: Charges,
  { outcome, durationMs }: { outcome: UsageOutcome; durationMs: number },
): UsageFacts {
  return {
    action,
    model: null,
    provider: null,
    tokens: { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 },
    units: {},
    outcome,
    estimated: false,
    ttftMs: null,
    durationMs,
    reason: [...reasons].join('; ').slice(0, maxReasonLength),
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
    `The reason of a charge must be a string of 1 to ${maxReasonLength} characters without control characters.`,
  );
}

function toWholeCredits(credits: number | bigint): bigint {
  if ((typeof credits === 'bigint' || Number.isSafeInteger(credits)) && credits >= 0) return BigInt(credits);
  throw new TypeError('The credits of a charge must be a whole number of 0 or more.');
}
