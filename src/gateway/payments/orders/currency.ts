// Currencies and their minor units. Amounts are whole numbers of the minor unit, as providers count them.

// Currencies without a minor unit (ISO 4217 exponent 0).
const zeroDecimal = new Set([
  'bif',
  'clp',
  'djf',
  'gnf',
  'jpy',
  'kmf',
  'krw',
  'mga',
  'pyg',
  'rwf',
  'vnd',
  'vuv',
  'xaf',
  'xof',
  'xpf',
]);
// Exponent 3. Card networks require the last digit to be 0.
const threeDecimal = new Set(['bhd', 'jod', 'kwd', 'omr', 'tnd']);
// These currencies have no minor unit any more, but Stripe keeps two decimals for backward
// compatibility; they must be 00.
const nominalTwoDecimal = new Set(['isk', 'ugx']);

export interface MinorUnits {
  /** Minor units in one whole unit: 100 cents a dollar. */
  perUnit: bigint;
  /** Payable amounts are multiples of this. */
  step: bigint;
}

export function minorUnits(currency: string): MinorUnits {
  if (zeroDecimal.has(currency)) return { perUnit: 1n, step: 1n };
  if (threeDecimal.has(currency)) return { perUnit: 1_000n, step: 10n };
  if (nominalTwoDecimal.has(currency)) return { perUnit: 100n, step: 100n };
  return { perUnit: 100n, step: 1n };
}

/** The three-letter code in lower case, or null. */
export function parseCurrency(text: string): string | null {
  const code = text.trim().toLowerCase();
  return /^[a-z]{3}$/.test(code) ? code : null;
}

/** Formats an amount for display, such as `USD 10.00`. */
export function formatAmount(amount: bigint, currency: string): string {
  const { perUnit } = minorUnits(currency);
  const digits = String(perUnit).length - 1;
  const units = (amount / perUnit).toLocaleString('en-US');
  const fraction = digits === 0 ? '' : `.${String(amount % perUnit).padStart(digits, '0')}`;
  return `${currency.toUpperCase()} ${units}${fraction}`;
}
