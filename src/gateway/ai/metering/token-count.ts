// Token usage as reported by a provider, and the gateway's own estimate. The report is charged
// if it is plausible; the estimate replaces a missing report and detects an impossible one.
import type { Usage } from '../hub/language-model.ts';
import type { Size } from './measure.ts';
import { inputTokens, noTokens, type Tokens } from './price.ts';

/** The usage that a provider reports; `faulty` when one of its numbers is not a count. */
export type Claim = { tokens: Tokens; isFinal: boolean } | 'faulty';

type Counts = Readonly<Record<string, unknown>>;

/** Parses the usage object of a format. Undefined when it reports no tokens. */
export type ReadClaim = (usage: Counts) => Claim | undefined;

/**
 * Chat completions and embeddings: cached tokens are part of the input, and reasoning is part of the output.
 * Some providers count reasoning separately from the output, which shows in their total.
 */
export const chatClaim: ReadClaim = (usage) => {
  const inputDetails = countsOf(usage['prompt_tokens_details']);
  const outputDetails = countsOf(usage['completion_tokens_details']);
  return parseClaim(usage, ['prompt_tokens', 'completion_tokens', 'total_tokens'], (count) => {
    // Providers of this format have three names for cached tokens.
    const cachedTokens =
      count(inputDetails['cached_tokens']) ||
      count(usage['prompt_cache_hit_tokens']) ||
      count(usage['cached_tokens']);
    const writeTokens = count(inputDetails['cache_write_tokens']);
    const reasoning = count(outputDetails['reasoning_tokens']);
    const totalTokens = count(usage['total_tokens']);
    const output = count(usage['completion_tokens']);
    // A total alone means a call without output, such as embeddings.
    const input =
      usage['prompt_tokens'] === undefined
        ? Math.max(totalTokens - output, 0)
        : count(usage['prompt_tokens']);
    const isSeparate = reasoning > output || (reasoning > 0 && totalTokens === input + output + reasoning);
    return {
      input: Math.max(input - cachedTokens - writeTokens, 0),
      cachedInput: cachedTokens,
      cacheWrite: writeTokens,
      output: isSeparate ? output : output - reasoning,
      reasoning,
    };
  });
};

/** The responses format: like chat completions, with other names. */
export const responsesClaim: ReadClaim = (usage) => {
  const inputDetails = countsOf(usage['input_tokens_details']);
  const outputDetails = countsOf(usage['output_tokens_details']);
  return parseClaim(usage, ['input_tokens', 'output_tokens'], (count) => {
    const cachedTokens = count(inputDetails['cached_tokens']);
    const writeTokens = count(inputDetails['cache_write_tokens']);
    const reasoning = count(outputDetails['reasoning_tokens']);
    return {
      input: Math.max(count(usage['input_tokens']) - cachedTokens - writeTokens, 0),
      cachedInput: cachedTokens,
      cacheWrite: writeTokens,
      output: Math.max(count(usage['output_tokens']) - reasoning, 0),
      reasoning,
    };
  });
};

/**
 * The messages format: cached and cache-written tokens are separate from the input, and the usage
 * of a compaction is separate from all of them.
 */
export const messagesClaim: ReadClaim = (usage) => {
  const outputDetails = countsOf(usage['output_tokens_details']);
  return parseClaim(usage, ['input_tokens', 'output_tokens'], (count) => {
    const reasoning = count(outputDetails['thinking_tokens']);
    const reports = [usage, ...compactionsOf(usage)];
    const sum = (name: string) => reports.reduce((total, report) => total + count(report[name]), 0);
    return {
      input: sum('input_tokens'),
      cachedInput: sum('cache_read_input_tokens'),
      ...cacheWrites(reports, count),
      output: Math.max(sum('output_tokens') - reasoning, 0),
      reasoning,
    };
  });
};

function compactionsOf({ iterations }: Counts): Counts[] {
  return Array.isArray(iterations)
    ? iterations.map(countsOf).filter(({ type }) => type === 'compaction')
    : [];
}

// Hour-long writes are included in the total; without a total, the two kinds add up to it.
function cacheWrites(
  usages: readonly Counts[],
  count: (value: unknown) => number,
): Pick<Tokens, 'cacheWrite' | 'hourCacheWrite'> {
  let [cacheWrite, hourCacheWrite] = [0, 0];
  for (const usage of usages) {
    const kinds = countsOf(usage['cache_creation']);
    const hour = count(kinds['ephemeral_1h_input_tokens']);
    cacheWrite += Math.max(
      count(usage['cache_creation_input_tokens']),
      hour + count(kinds['ephemeral_5m_input_tokens']),
    );
    hourCacheWrite += hour;
  }
  return { cacheWrite, ...(hourCacheWrite === 0 ? {} : { hourCacheWrite }) };
}

/** Reranking providers report usage under several names, some in units other than tokens. */
export const rerankClaim: ReadClaim = (usage) => {
  const tokens = { ...countsOf(usage['billed_units']), ...countsOf(usage['tokens']), ...usage };
  return parseClaim(tokens, ['total_tokens', 'prompt_tokens', 'input_tokens'], (count) => ({
    ...noTokens,
    input: count(tokens['prompt_tokens']) || count(tokens['input_tokens']) || count(tokens['total_tokens']),
  }));
};

/**
 * Converts Amazon Bedrock's list of cache writes to Anthropic's format; undefined when it has no hour-long
 * cache write.
 */
function bedrockCacheWrites(details: unknown): Record<string, unknown> | undefined {
  if (!Array.isArray(details)) return undefined;
  const hour = details.map((detail) => countsOf(detail)).find(({ ttl }) => ttl === '1h');
  return hour && { ephemeral_1h_input_tokens: hour['inputTokens'] };
}

/**
 * The hub's usage. Tokens that a provider does not divide into kinds count as plain input or output.
 * Anthropic's package omits two values, which are read from the provider's raw usage: hour-long cache writes,
 * and the cached tokens of a compaction.
 */
export function hubClaim({ inputTokens: input, outputTokens: output, raw }: Usage): Claim | undefined {
  return parseClaim(
    { input: input.total ?? input.noCache, output: output.total ?? output.text },
    ['input', 'output'],
    (count) => {
      const cachedTokens = count(input.cacheRead);
      const writeTokens = count(input.cacheWrite);
      const compactionUsages = compactionsOf(countsOf(raw));
      const ownUsage = {
        cache_creation_input_tokens: writeTokens,
        cache_creation: countsOf(raw)['cache_creation'] ?? bedrockCacheWrites(countsOf(raw)['cacheDetails']),
      };
      const reasoning = count(output.reasoning);
      return {
        input:
          input.noCache === undefined
            ? Math.max(count(input.total) - cachedTokens - writeTokens, 0)
            : count(input.noCache),
        cachedInput: compactionUsages.reduce(
          (total, usage) => total + count(usage['cache_read_input_tokens']),
          cachedTokens,
        ),
        ...cacheWrites([ownUsage, ...compactionUsages], count),
        output: output.text === undefined ? Math.max(count(output.total) - reasoning, 0) : count(output.text),
        reasoning,
      };
    },
  );
}

// A single invalid number makes the whole report faulty.
function parseClaim(
  usage: Counts,
  countNames: readonly string[],
  read: (count: (value: unknown) => number) => Tokens,
): Claim | undefined {
  if (countNames.every((name) => usage[name] === undefined || usage[name] === null)) return undefined;
  let isFaulty = false;
  const tokens = read((value) => {
    if (value === undefined || value === null) return 0;
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value;
    isFaulty = true;
    return 0;
  });
  return isFaulty ? 'faulty' : { tokens, isFinal: true };
}

function countsOf(value: unknown): Counts {
  return typeof value === 'object' && value !== null ? (value as Counts) : {};
}

/** Whether the reported usage is far above the bound of the call and therefore not credible. */
export function isAbsurd(tokens: Tokens, bound: { input: number; output: number }): boolean {
  return (
    inputTokens(tokens) > bound.input * absurdFactor + 1_024 ||
    tokens.output + tokens.reasoning > Math.max(bound.output, 16) * absurdFactor
  );
}

// Tokens that a provider counts without showing them may exceed a bound slightly, but not eightfold. The
// 1,024 input tokens and 16 output tokens above are for bounds near zero, which a few such tokens exceed
// eightfold.
const absurdFactor = 8;

const bytesPerToken = 4;
const tokensPerTurn = 4;

/** Estimate for a text: one token per four bytes, at least one unless it is empty. */
export function tokensOfText(bytes: number): number {
  return bytes === 0 ? 0 : Math.max(1, Math.floor(bytes / bytesPerToken));
}

/**
 * Estimate for a request: its text and the usual tokens of its media. `repeatedBytes` are text that the model
 * reads again (Demand in bound.ts).
 */
export function tokensOfRequest(
  { textBytes, turns, usualMediaTokens }: Pick<Size, 'textBytes' | 'turns' | 'usualMediaTokens'>,
  repeatedBytes = 0,
): number {
  return Math.ceil((textBytes + repeatedBytes) / bytesPerToken) + turns * tokensPerTurn + usualMediaTokens;
}

/** Whether the estimated output is far beyond the limit of the answer. */
export function isBeyondLimit(tokens: number, limit: number): boolean {
  return tokens > Math.max(limit, 16) * absurdFactor;
}
