// Rates as lines for people. Exact: credits are integers per million tokens, and what is shown per thousand
// keeps every digit of them.

/** Credits per million tokens of a kind, or credits per unit of a medium. */
export interface Rates {
  input?: number;
  cached_input?: number;
  cache_write?: number;
  /** Input that the provider is to keep for an hour, which some bill dearer than what they keep for minutes. */
  cache_write_1h?: number;
  output?: number;
  reasoning?: number;
  image?: number;
  /** A film that has fewer lines than any other rate for films names. */
  video_second?: number;
  /** A film of so many lines or more, up to the next rate that is given. */
  video_second_480?: number;
  video_second_720?: number;
  video_second_1024?: number;
  video_second_1080?: number;
  video_second_2160?: number;
  speech_character?: number;
  audio_second?: number;
}

export interface Tier {
  above_input_tokens: number;
  rates: Rates;
}

/** The lines that films are sold by, fewest first: those of the shorter side. */
export const videoResolutions = [480, 720, 1024, 1080, 2160] as const;

const tokenKinds = [
  ['input', 'input tokens'],
  ['cached_input', 'cached input tokens'],
  ['cache_write', 'input tokens written to the cache'],
  ['cache_write_1h', 'input tokens written to the cache for an hour'],
  ['output', 'output tokens'],
  ['reasoning', 'reasoning tokens'],
] as const;

const units = [
  ['image', 'image'],
  ['video_second', 'second of video'],
  ...videoResolutions.map(
    (lines) => [`video_second_${lines}`, `second of video of ${lines} lines or more`] as const,
  ),
  ['speech_character', 'character of speech'],
  ['audio_second', 'second of audio'],
] as const;

/** The lines of the catalog's `price`. */
export function priceLines(rates: Rates | null, tiers: readonly Tier[]): string[] {
  if (rates === null) return ['free'];
  return [
    ...linesOf(rates, ''),
    ...tiers.flatMap((tier) =>
      linesOf(tier.rates, ` in calls above ${tier.above_input_tokens} input tokens`),
    ),
  ];
}

function linesOf(rates: Rates, condition: string): string[] {
  const lines: string[] = [];
  for (const [kind, words] of tokenKinds) {
    const rate = rates[kind];
    if (rate !== undefined) lines.push(`${credits(thousandth(rate))} per 1K ${words}${condition}`);
  }
  for (const [kind, unit] of units) {
    const rate = rates[kind];
    if (rate !== undefined) lines.push(`${credits(String(rate))} per ${unit}${condition}`);
  }
  return lines;
}

function credits(amount: string): string {
  return `${amount} ${amount === '1' ? 'credit' : 'credits'}`;
}

// In digits rather than by division, so that no rounding can happen.
function thousandth(rate: number): string {
  const digits = String(rate).padStart(4, '0');
  const fraction = digits.slice(-3).replace(/0+$/, '');
  return fraction === '' ? digits.slice(0, -3) : `${digits.slice(0, -3)}.${fraction}`;
}
