// A tighter bound than one token per byte, for calls that the byte bound would reject: if the model's
// tokenizer is published, it counts the text of the request. Ordinary text has about four bytes per token.
import type { CatalogModel } from '../catalog/catalog.ts';
import { encodingOf, type TextTokens } from './encodings.ts';
import type { RequestText, Size } from './measure.ts';
import type { TokenCounter } from './token-counter.ts';

/** The largest text that is counted; a larger one keeps its byte bound. */
export const longestCountedBytes = 256 * 1024;

// Tokens that a provider adds around a string: quotes, separators, and tokens that span them. OpenAI
// documents 3 tokens around a message or a tool's property, and 12 at the end of a tool. Each of these
// consists of several strings, so 4 tokens per string are enough.
const tokensAround = 4;

/**
 * The maximum tokens of the text for the model; undefined to keep the byte bound. Never rejects.
 */
export async function computeCloserBound(
  model: Pick<CatalogModel, 'upstream_model' | 'providerEntry'>,
  { texts, otherBytes }: RequestText,
  counter: TokenCounter,
): Promise<number | undefined> {
  const encoding = encodingOf(model);
  if (encoding === undefined) return undefined;
  let bytes = otherBytes;
  for (const text of texts) bytes += Buffer.byteLength(text);
  if (bytes > longestCountedBytes) return undefined;
  const tokens = await counter.count(encoding, texts);
  return tokens === undefined ? undefined : tokens + texts.length * tokensAround + otherBytes;
}

/**
 * Counts the text of the call for all models that may answer it; undefined to keep the byte bound. Never
 * rejects.
 */
export async function countTextTokens(
  models: readonly CatalogModel[],
  size: Pick<Size, 'readText'>,
  counter: TokenCounter,
): Promise<TextTokens | undefined> {
  const modelByEncoding = new Map(models.map((model) => [encodingOf(model), model]));
  modelByEncoding.delete(undefined);
  if (modelByEncoding.size === 0) return undefined;
  const text = size.readText();
  const bounds: TextTokens = {};
  for (const [encoding, model] of modelByEncoding) {
    const tokens = await computeCloserBound(model, text, counter);
    if (encoding !== undefined && tokens !== undefined) bounds[encoding] = tokens;
  }
  return bounds;
}
