// Rates of models, and the lines that show them in the catalog. The lines are exact: rates
// are whole credits per million tokens, and the amount per thousand keeps every digit.

/** Credits per million tokens, or credits per unit for media. */
export interface Rates {
  input?: number;
  cached_input?: number;
  cache_write?: number;
  /**
   * Input that the provider caches for an hour. Some providers bill it higher
   * than caching for minutes.
   */
  cache_write_1h?: number;
  output?: number;
  reasoning?: number;
  image?: number;
  /** The rate of videos below the lowest resolution that has a rate of its own. */
  video_second?: number;
  /** The rate of videos with at least this many lines, up to the next resolution with a rate. */
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

/** The resolutions that have rates, ascending, in lines of the shorter side. */
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

/** The member `price` of a model in the catalog. */
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
  for (const [kind, unit] of tokenKinds) {
    const rate = rates[kind];
    if (rate !== undefined) lines.push(`${formatCredits(perThousand(rate))} per 1K ${unit}${condition}`);
  }
  for (const [kind, unit] of units) {
    const rate = rates[kind];
    if (rate !== undefined) lines.push(`${formatCredits(String(rate))} per ${unit}${condition}`);
  }
  return lines;
}

function formatCredits(amount: string): string {
  return `${amount} ${amount === '1' ? 'credit' : 'credits'}`;
}

// Moves the decimal point in the digits: a division could round.
function perThousand(rate: number): string {
  const digits = String(rate).padStart(4, '0');
  const fraction = digits.slice(-3).replace(/0+$/, '');
  return fraction === '' ? digits.slice(0, -3) : `${digits.slice(0, -3)}.${fraction}`;
}
