// Reserves credits for a call. When there are too few, the error names the affordable output limit.
import { Problem } from '../../../kernel/problem.ts';
import type { Ledger, PaidCall, Reservation } from '../../credits/index.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import { affordableOutput, type Demand, insufficientCredits } from '../metering/bound.ts';
import { countTextTokens } from '../metering/closer-bound.ts';
import type { TokenCounter } from '../metering/token-counter.ts';
import {
  amountWithin,
  coversShorterAnswer,
  highestBound,
  mayShorten,
  shortestAmount,
  termsWithin,
} from './reservable.ts';

type ReservingLedger = Pick<Ledger, 'reserve' | 'hold' | 'available'>;
type Payer = Pick<PaidCall, 'userId' | 'tokenId'>;

export interface ReserveOptions {
  ledger: ReservingLedger;
  /** The model that is called, then its fallbacks. */
  models: readonly CatalogModel[];
  demand: Demand;
  /**
   * Whether the call has an Idempotency-Key. It then needs a hold, because its answer is stored in the
   * same transaction as the charge of the hold.
   */
  isKeyed: boolean;
  /** Whether no other call of the user runs in this process. */
  isAlone: () => boolean;
  tokenCounter: TokenCounter;
}

export interface ReservedCall {
  reservation: Reservation;
  /**
   * The demand of the successful reservation, with a tighter bound of its text when
   * the first one was rejected.
   */
  demand: Demand;
}

// Concurrent calls may take the balance between read and reservation. Give up with
// 402 after four lost races.
const maximumTries = 4;

/**
 * Reserves the highest bound of the models, or as much as the credits cover. Throws
 * a 402 that names the affordable limit.
 */
export async function reserveHighest(call: PaidCall, options: ReserveOptions): Promise<ReservedCall> {
  const { models, demand } = options;
  try {
    return { reservation: await reserveAmount(call, highestBound(models, demand), options), demand };
  } catch (error) {
    if (!isInsufficient(error)) throw error;
    const closerDemand = await countDemand(options);
    const reservation = await reserveAffordable(call, { ...options, demand: closerDemand }, error);
    return { reservation, demand: closerDemand };
  }
}

// The first bound assumes one token per byte; a tokenizer counts about a quarter of that in usual text.
// It is slow, so it runs in a thread and only for a call that would be rejected otherwise.
async function countDemand({ models, demand, tokenCounter }: ReserveOptions): Promise<Demand> {
  if (demand.size === undefined) return demand;
  return { ...demand, textTokens: await countTextTokens(models, demand.size, tokenCounter) };
}

function reserveAmount(
  call: PaidCall,
  amount: bigint,
  { ledger, isKeyed }: ReserveOptions,
): Reservation | Promise<Reservation> {
  return isKeyed ? ledger.hold(call, amount) : ledger.reserve(call, amount);
}

/** Reserves for all models at an affordable output limit, otherwise for the first model alone. */
async function reserveAffordable(
  call: PaidCall,
  options: ReserveOptions,
  refusal: Problem,
): Promise<Reservation> {
  const { ledger, models, demand } = options;
  const withoutFallbacks = models.slice(0, 1);
  let lastRefusal = refusal;
  let availableCredits = 0n;
  for (let tries = 0; tries < maximumTries; tries += 1) {
    availableCredits = await ledger.available(call.userId, call.tokenId);
    const amount = affordableAmount(options, availableCredits);
    if (amount === undefined) break;
    try {
      return await reserveAmount(call, amount, options);
    } catch (error) {
      if (!isInsufficient(error)) throw error;
      lastRefusal = error;
    }
  }
  const maxOutput = affordableOutput(withoutFallbacks, demand, availableCredits);
  throw insufficientCredits(demand, {
    maxOutput,
    price: highestBound(withoutFallbacks, demand),
    available: availableCredits,
    cause: lastRefusal,
  });
}

/**
 * The amount to reserve out of the available credits. A call whose answer may be shorter
 * reserves half of them while other calls of the user run, but enough for 16 tokens.
 */
function affordableAmount(
  { models, demand, isAlone }: ReserveOptions,
  available: bigint,
): bigint | undefined {
  const withoutFallbacks = models.slice(0, 1);
  const maxCredits = isAlone() || !mayShorten(models, demand) ? available : available / 2n;
  return (
    amountWithin(models, demand, maxCredits) ??
    amountWithin(withoutFallbacks, demand, maxCredits) ??
    shortestAmount(withoutFallbacks, demand, available)
  );
}

export interface RaiseOptions {
  ledger: Pick<Ledger, 'available'>;
  model: CatalogModel;
  demand: Demand;
  payer: Payer;
}

/**
 * Raises the reservation to the bound of a fallback, or keeps it when it covers a
 * shorter answer. Throws a 402.
 */
export async function raiseReservation(
  reservation: Reservation,
  { ledger, model, demand, payer }: RaiseOptions,
): Promise<void> {
  const price = termsWithin(model, demand).bound.credits;
  if (price <= reservation.amount) return;
  try {
    await reservation.raise(price);
  } catch (error) {
    if (!isInsufficient(error)) throw error;
    if (coversShorterAnswer(model, demand, reservation.amount)) return;
    const availableCredits = reservation.amount + (await ledger.available(payer.userId, payer.tokenId));
    const maxOutput = affordableOutput([model], demand, availableCredits);
    throw insufficientCredits(demand, { maxOutput, price, available: availableCredits, cause: error });
  }
}

/** The 402 for an output limit that an SDK package raised beyond what the credits cover. */
export async function refuseRaisedLimit(
  refusal: Problem,
  options: Omit<RaiseOptions, 'model'> & { reserved: bigint; price: bigint },
): Promise<Problem> {
  const { ledger, payer, reserved, demand, price } = options;
  const availableCredits = reserved + (await ledger.available(payer.userId, payer.tokenId));
  // The message names no affordable limit: the raised limit is not a member of the caller's request.
  return insufficientCredits(
    { ...demand, limit: undefined, limitMember: undefined },
    { maxOutput: -1, price, available: availableCredits, cause: refusal },
  );
}

export function isInsufficient(error: unknown): error is Problem {
  return error instanceof Problem && error.kind === 'insufficient_credits';
}
