// What an amount of money buys. One rule for both directions: credits follow from the amount, rounded down, and an
// amount that is asked for by its credits is rounded up, so that nobody gets less than they asked for.
import type { MinorUnits } from './currency.ts';

/** What one method charges, and for how much. Amounts are in the smallest unit of the currency. */
export interface Tariff {
  currency: string;
  /** Credits for one whole unit of the currency. */
  creditsPerUnit: bigint;
  /** How many of the smallest units make a whole one. */
  perUnit: bigint;
  step: bigint;
  minimum: bigint;
  maximum: bigint;
}

// 1,000,000 credits are one US dollar, so for dollars nothing needs to be said.
const dollarCredits = 1_000_000n;

/**
 * Reads `CREDITS_PER_UNIT`: one number for whatever currency, or `usd:1000000,jpy:6500`. Null when it does not say
 * what the currency is worth; for dollars it need not.
 */
export function parseCreditsPerUnit(setting: string | undefined, currency: string): bigint | null {
  const text = setting?.trim() ?? '';
  if (text === '') return currency === 'usd' ? dollarCredits : null;
  if (/^[1-9]\d{0,11}$/.test(text)) return BigInt(text);
  for (const entry of text.toLowerCase().split(',')) {
    const [, listed, credits] = /^\s*([a-z]{3})\s*:\s*([1-9]\d{0,11})\s*$/.exec(entry) ?? [];
    if (listed === currency && credits !== undefined) return BigInt(credits);
  }
  return null;
}

/** Null when nothing can be paid between the bounds, which are in credits. */
export function computeTariff(given: {
  currency: string;
  units: MinorUnits;
  creditsPerUnit: bigint;
  /** The price of a product of which only whole numbers are sold; without it any amount is. */
  pieceAmount?: bigint;
  minimumCredits: bigint;
  maximumCredits: bigint;
  /** The most that the provider takes. */
  mostAmount: bigint;
}): Tariff | null {
  const { currency, units, creditsPerUnit, pieceAmount, minimumCredits, maximumCredits, mostAmount } = given;
  const step = pieceAmount ?? units.step;
  const roundUp = (amount: bigint): bigint => ((amount + step - 1n) / step) * step;
  const minimum = roundUp(ceilDivide(minimumCredits * units.perUnit, creditsPerUnit));
  const bound = (maximumCredits * units.perUnit) / creditsPerUnit;
  const maximum = ((bound < mostAmount ? bound : mostAmount) / step) * step;
  const tariff = {
    currency,
    creditsPerUnit,
    perUnit: units.perUnit,
    step,
    minimum: minimum < step ? step : minimum,
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

/** The least amount that buys so many credits. */
export function amountFor(
  credits: bigint,
  { creditsPerUnit, perUnit, step }: Pick<Tariff, 'creditsPerUnit' | 'perUnit' | 'step'>,
): bigint {
  const amount = ceilDivide(credits * perUnit, creditsPerUnit);
  return ceilDivide(amount, step) * step;
}

/** Why the amount cannot be paid, as words that follow the name of the member; null when it can. */
export function amountError(
  amount: bigint,
  { minimum, maximum, step }: Pick<Tariff, 'minimum' | 'maximum' | 'step'>,
): string | null {
  if (amount < minimum) return `comes to ${amount}, and the least that can be paid is ${minimum}`;
  if (amount > maximum) return `comes to ${amount}, and the most that can be paid is ${maximum}`;
  return amount % step === 0n ? null : `comes to ${amount}, and must be a multiple of ${step}`;
}

function ceilDivide(value: bigint, by: bigint): bigint {
  return (value + by - 1n) / by;
}
