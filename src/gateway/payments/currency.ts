// Money in the smallest unit of its currency, as providers count it: always whole, never a fraction.

// Without a smaller unit.
const withoutMinor = new Set([
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
// With thousandths, of which card networks take tens only.
const withThousandths = new Set(['bhd', 'jod', 'kwd', 'omr', 'tnd']);
// Counted in hundredths for the sake of old programs, and taken in whole units only.
const nominalHundredths = new Set(['isk', 'ugx']);

export interface MinorUnits {
  /** How many of them make one whole unit: 100 cents a dollar. */
  perUnit: bigint;
  /** An amount that can be paid is a multiple of this. */
  step: bigint;
}

export function minorUnits(currency: string): MinorUnits {
  if (withoutMinor.has(currency)) return { perUnit: 1n, step: 1n };
  if (withThousandths.has(currency)) return { perUnit: 1_000n, step: 10n };
  if (nominalHundredths.has(currency)) return { perUnit: 100n, step: 100n };
  return { perUnit: 100n, step: 1n };
}

/** A currency's code in lower case, or null for what is none. */
export function parseCurrency(text: string): string | null {
  const code = text.trim().toLowerCase();
  return /^[a-z]{3}$/.test(code) ? code : null;
}

/** For people, such as `USD 10.00`. */
export function formatAmount(amount: bigint, currency: string): string {
  const { perUnit } = minorUnits(currency);
  const digits = String(perUnit).length - 1;
  const whole = (amount / perUnit).toLocaleString('en-US');
  return `${currency.toUpperCase()} ${whole}${digits === 0 ? '' : `.${String(amount % perUnit).padStart(digits, '0')}`}`;
}
