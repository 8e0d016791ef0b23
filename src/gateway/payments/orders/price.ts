// Converts between money and credits. The credits for an amount are rounded down. The amount for
// requested credits is rounded up, so a buyer gets at least the requested credits.
import { maxBigInt, minBigInt } from '../../../kernel/bigint.ts';
import type { MinorUnits } from './currency.ts';

/** The price of credits through one payment method. Amounts are in minor units. */
export interface Tariff {
  currency: string;
  /** Credits for one whole unit of the currency. */
  creditsPerUnit: bigint;
  /** Minor units in one whole unit. */
  perUnit: bigint;
  step: bigint;
  minimum: bigint;
  maximum: bigint;
}

// The default for dollars: 1,000,000 credits are one US dollar.
const dollarCredits = 1_000_000n;

/**
 * Reads `CREDITS_PER_UNIT`: one number for any currency, or a list such as `usd:1000000,jpy:6500`.
 * Null when it has no rate for the currency, except for dollars, which have a default.
 */
export function parseCreditsPerUnit(setting: string | undefined, currency: string): bigint | null {
  const text = setting?.trim() ?? '';
  if (text === '') return currency === 'usd' ? dollarCredits : null;
  if (/^[1-9]\d{0,11}$/.test(text)) return BigInt(text);
  for (const entry of text.toLowerCase().split(',')) {
    const [, entryCurrency, credits] = /^\s*([a-z]{3})\s*:\s*([1-9]\d{0,11})\s*$/.exec(entry) ?? [];
    if (entryCurrency === currency && credits !== undefined) return BigInt(credits);
  }
  return null;
}

/** Null when no payable amount lies between `minimumCredits` and `maximumCredits`. */
export function computeTariff({
  currency,
  units,
  creditsPerUnit,
  pieceAmount,
  minimumCredits,
  maximumCredits,
  maxAmount,
}: {
  currency: string;
  units: MinorUnits;
  creditsPerUnit: bigint;
  /** The price of one piece, where only whole pieces are sold. */
  pieceAmount?: bigint;
  minimumCredits: bigint;
  maximumCredits: bigint;
  /** The provider's limit. */
  maxAmount: bigint;
}): Tariff | null {
  const step = pieceAmount ?? units.step;
  const roundUp = (amount: bigint): bigint => ((amount + step - 1n) / step) * step;
  const minimum = roundUp(ceilDivide(minimumCredits * units.perUnit, creditsPerUnit));
  const maximumForCredits = (maximumCredits * units.perUnit) / creditsPerUnit;
  const maximum = (minBigInt(maximumForCredits, maxAmount) / step) * step;
  const tariff = {
    currency,
    creditsPerUnit,
    perUnit: units.perUnit,
    step,
    minimum: maxBigInt(minimum, step),
    maximum,
  };
  return tariff.minimum <= tariff.maximum && creditsFor(tariff.minimum, tariff) > 0n ? tariff : null;
}

export function creditsFor(
  amount: bigint,
  { creditsPerUnit, perUnit }: Pick<Tariff, 'creditsPerUnit' | 'perUnit'>,
): bigint {
  return (amount * creditsPerUnit) / perUnit;
}

/** The smallest payable amount that buys at least this many credits. */
export function amountFor(
  credits: bigint,
  { creditsPerUnit, perUnit, step }: Pick<Tariff, 'creditsPerUnit' | 'perUnit' | 'step'>,
): bigint {
  const amount = ceilDivide(credits * perUnit, creditsPerUnit);
  return ceilDivide(amount, step) * step;
}

/**
 * Why the amount cannot be paid, as the end of a sentence that starts with the member's name; null
 * when it can be paid.
 */
export function amountError(
  amount: bigint,
  { minimum, maximum, step }: Pick<Tariff, 'minimum' | 'maximum' | 'step'>,
): string | null {
  if (amount < minimum) return `comes to ${amount}, which is below the minimum payment of ${minimum}`;
  if (amount > maximum) return `comes to ${amount}, which is above the maximum payment of ${maximum}`;
  return amount % step === 0n ? null : `comes to ${amount}, which is not a multiple of ${step}`;
}

function ceilDivide(dividend: bigint, divisor: bigint): bigint {
  return (dividend + divisor - 1n) / divisor;
}
