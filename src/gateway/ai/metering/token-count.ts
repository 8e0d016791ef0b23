// Tokens as a provider tells them and as we count them ourselves. The provider's word counts wherever it can be one;
// our own count, flagged as an estimate, stands in where there is no word, and guards against one that cannot be true.
import type { Usage } from '../hub/language-model.ts';
import type { Size } from './measure.ts';
import { inputTokens, noTokens, type Tokens } from './price.ts';

/** What a provider says that a call used; `faulty` where what it says cannot be a count. */
export type Claim = { tokens: Tokens; isFinal: boolean } | 'faulty';

type Counts = Readonly<Record<string, unknown>>;

/** How a format tells its usage. Absent where the object says nothing of it. */
export type ReadClaim = (usage: Counts) => Claim | undefined;

/**
 * Chat completions and embeddings: the cached tokens are among the input, and reasoning is among the output, but for
 * providers that count it beside, which the total gives away.
 */
export const chatClaim: ReadClaim = (usage) => {
  const inputDetails = counts(usage['prompt_tokens_details']);
  const outputDetails = counts(usage['completion_tokens_details']);
  return claim(usage, ['prompt_tokens', 'completion_tokens', 'total_tokens'], (count) => {
    // Under three names among those who speak the format.
    const cached =
      count(inputDetails['cached_tokens']) ||
      count(usage['prompt_cache_hit_tokens']) ||
      count(usage['cached_tokens']);
    const writeTokens = count(inputDetails['cache_write_tokens']);
    const reasoning = count(outputDetails['reasoning_tokens']);
    const total = count(usage['total_tokens']);
    const output = count(usage['completion_tokens']);
    // Those that give a total alone have no output.
    const input =
      usage['prompt_tokens'] === undefined ? Math.max(total - output, 0) : count(usage['prompt_tokens']);
    const isBeside = reasoning > output || (reasoning > 0 && total === input + output + reasoning);
    return {
      input: Math.max(input - cached - writeTokens, 0),
      cachedInput: cached,
      cacheWrite: writeTokens,
      output: isBeside ? output : output - reasoning,
      reasoning,
    };
  });
};

/** The responses format: as in chat completions, by other names. */
export const responsesClaim: ReadClaim = (usage) => {
  const inputDetails = counts(usage['input_tokens_details']);
  const outputDetails = counts(usage['output_tokens_details']);
  return claim(usage, ['input_tokens', 'output_tokens'], (count) => {
    const cached = count(inputDetails['cached_tokens']);
    const writeTokens = count(inputDetails['cache_write_tokens']);
    const reasoning = count(outputDetails['reasoning_tokens']);
    return {
      input: Math.max(count(usage['input_tokens']) - cached - writeTokens, 0),
      cachedInput: cached,
      cacheWrite: writeTokens,
      output: Math.max(count(usage['output_tokens']) - reasoning, 0),
      reasoning,
    };
  });
};

/**
 * The messages format: what was cached and what was written to the cache are beside the input, and what it took to
 * shorten the conversation is beside it all.
 */
export const messagesClaim: ReadClaim = (usage) => {
  const outputDetails = counts(usage['output_tokens_details']);
  return claim(usage, ['input_tokens', 'output_tokens'], (count) => {
    const reasoning = count(outputDetails['thinking_tokens']);
    const all = [usage, ...compactions(usage)];
    const sum = (name: string) => all.reduce((total, one) => total + count(one[name]), 0);
    return {
      input: sum('input_tokens'),
      cachedInput: sum('cache_read_input_tokens'),
      ...cacheWrites(all, count),
      output: Math.max(sum('output_tokens') - reasoning, 0),
      reasoning,
    };
  });
};

function compactions({ iterations }: Counts): Counts[] {
  return Array.isArray(iterations) ? iterations.map(counts).filter(({ type }) => type === 'compaction') : [];
}

// The writes of an hour are among all of them; where only the two kinds are told, they are all.
function cacheWrites(
  usages: readonly Counts[],
  count: (value: unknown) => number,
): Pick<Tokens, 'cacheWrite' | 'hourCacheWrite'> {
  let [cacheWrite, hourCacheWrite] = [0, 0];
  for (const usage of usages) {
    const kinds = counts(usage['cache_creation']);
    const hour = count(kinds['ephemeral_1h_input_tokens']);
    cacheWrite += Math.max(
      count(usage['cache_creation_input_tokens']),
      hour + count(kinds['ephemeral_5m_input_tokens']),
    );
    hourCacheWrite += hour;
  }
  return { cacheWrite, ...(hourCacheWrite === 0 ? {} : { hourCacheWrite }) };
}

/** Reranking is told in several ways, and by some in units that are no tokens. */
export const rerankClaim: ReadClaim = (usage) => {
  const tokens = { ...counts(usage['billed_units']), ...counts(usage['tokens']), ...usage };
  return claim(tokens, ['total_tokens', 'prompt_tokens', 'input_tokens'], (count) => ({
    ...noTokens,
    input: count(tokens['prompt_tokens']) || count(tokens['input_tokens']) || count(tokens['total_tokens']),
  }));
};

/**
 * The hub's usage; kinds that are not told apart are plain input or output. What Anthropic's package leaves out of it
 * is taken from what the provider said: how long a cache is kept, and the cache of what shortened the conversation.
 */
export function hubClaim({ inputTokens: input, outputTokens: output, raw }: Usage): Claim | undefined {
  return claim(
    { input: input.total ?? input.noCache, output: output.total ?? output.text },
    ['input', 'output'],
    (count) => {
      const cached = count(input.cacheRead);
      const writeTokens = count(input.cacheWrite);
      const compacted = compactions(counts(raw));
      const first = {
        cache_creation_input_tokens: writeTokens,
        cache_creation: counts(raw)['cache_creation'],
      };
      const reasoning = count(output.reasoning);
      return {
        input:
          input.noCache === undefined
            ? Math.max(count(input.total) - cached - writeTokens, 0)
            : Math.max(count(input.noCache), 0),
        cachedInput:
          cached + compacted.reduce((total, one) => total + count(one['cache_read_input_tokens']), 0),
        ...cacheWrites([first, ...compacted], count),
        output: output.text === undefined ? Math.max(count(output.total) - reasoning, 0) : count(output.text),
        reasoning,
      };
    },
  );
}

// One fault spoils the claim: whoever counts one thing wrong is not to be believed about the next.
function claim(
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

function counts(value: unknown): Counts {
  return typeof value === 'object' && value !== null ? (value as Counts) : {};
}

/** Far beyond what the call could use, so that it says nothing of what it did use. */
export function isAbsurd(tokens: Tokens, bound: { input: number; output: number }): boolean {
  return (
    inputTokens(tokens) > bound.input * absurdFactor + 1_024 ||
    tokens.output + tokens.reasoning > Math.max(bound.output, 16) * absurdFactor
  );
}

// A bound may be too low by a little, where a provider counts what it never showed; not by this.
const absurdFactor = 8;

const bytesPerToken = 4;
const tokensPerTurn = 4;

/** Our own count of a text: a token for each four bytes, and one at least where there is any. */
export function tokensOfText(bytes: number): number {
  return bytes === 0 ? 0 : Math.max(1, Math.floor(bytes / bytesPerToken));
}

/** Our own count of a request: its text, and what its media usually count for. `repeatedBytes` are read again. */
export function tokensOfRequest(
  { textBytes, turns, usualMediaTokens }: Pick<Size, 'textBytes' | 'turns' | 'usualMediaTokens'>,
  repeatedBytes = 0,
): number {
  return Math.ceil((textBytes + repeatedBytes) / bytesPerToken) + turns * tokensPerTurn + usualMediaTokens;
}

/** Whether so many tokens by our own count are far beyond the limit of the answer. */
export function isBeyondLimit(tokens: number, limit: number): boolean {
  return tokens > Math.max(limit, 16) * absurdFactor;
}
