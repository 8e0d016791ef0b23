// Entry point of the thread that counts tokens: one job per message. An encoding takes 30 MB of memory and is
// loaded for its first job.
import { parentPort } from 'node:worker_threads';
import type { Encoding } from './encodings.ts';
import type { CountTokens, TokensCounted } from './token-counter.ts';

interface Tokenizer {
  countTokens(text: string, options: { disallowedSpecial: Set<string> }): number;
  /** Splits a text into the pieces that are encoded one by one. */
  pieces: RegExp;
}

async function load(encoding: Encoding): Promise<Tokenizer> {
  const { CL100K_TOKEN_SPLIT_REGEX, O200K_TOKEN_SPLIT_REGEX } =
    await import('gpt-tokenizer/encodingParams/constants');
  if (encoding === 'cl100k_base') {
    const { countTokens } = await import('gpt-tokenizer/encoding/cl100k_base');
    return { countTokens, pieces: CL100K_TOKEN_SPLIT_REGEX };
  }
  const { countTokens } = await import('gpt-tokenizer/encoding/o200k_base');
  return { countTokens, pieces: O200K_TOKEN_SPLIT_REGEX };
}

const tokenizers = new Map<Encoding, Promise<Tokenizer>>();

// Encoding a piece takes time quadratic in its length. Words are shorter than this limit; a longer piece
// counts as one token per byte.
const longestPiece = 256;
// A special token such as <|endoftext|> is ordinary text in a request.
const options = { disallowedSpecial: new Set<string>() };

function count({ countTokens, pieces }: Tokenizer, text: string): number {
  let tokens = 0;
  for (const [piece] of text.matchAll(pieces))
    tokens += piece.length > longestPiece ? Buffer.byteLength(piece) : countTokens(piece, options);
  return tokens;
}

// Providers put tools and their inputs into the prompt as JSON, so the JSON form counts when it has more
// tokens.
function countLongerForm(tokenizer: Tokenizer, text: string): number {
  const escapedText = JSON.stringify(text).slice(1, -1);
  const tokens = count(tokenizer, text);
  return escapedText === text ? tokens : Math.max(tokens, count(tokenizer, escapedText));
}

parentPort?.on('message', ({ jobId, encoding, texts }: CountTokens) => {
  const loading = tokenizers.get(encoding) ?? load(encoding);
  tokenizers.set(encoding, loading);
  void loading.then((tokenizer) => {
    const tokens = texts.reduce((sum, text) => sum + countLongerForm(tokenizer, text), 0);
    parentPort?.postMessage({ jobId, tokens } satisfies TokensCounted);
  });
});
