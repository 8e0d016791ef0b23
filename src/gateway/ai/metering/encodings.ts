// Models whose tokenizer is published. OpenAI publishes its encodings (tiktoken). For a model name that is
// not listed here, one token per byte is assumed, since a later model may use another encoding.
import type { CatalogModel } from '../catalog/catalog.ts';

export type Encoding = 'o200k_base' | 'cl100k_base';

/** Maximum tokens of all text of a request, by encoding. */
export type TextTokens = Partial<Record<Encoding, number>>;

// After the listed prefix, a model name ends or continues with a dash: gpt-5-mini, gpt-4o-2024-11-20.
const encodings: readonly [RegExp, Encoding][] = [
  [/^(?:gpt-5(?:\.[1-6])?|gpt-4\.[15]|(?:chat)?gpt-4o|o[134])(?:-|$)/, 'o200k_base'],
  [/^(?:gpt-4|gpt-3\.5-turbo|text-embedding-3|text-embedding-ada-002)(?:-|$)/, 'cl100k_base'],
];

/** The encoding of the model's tokenizer; undefined when none is published. */
export function encodingOf({
  upstream_model: name,
  providerEntry,
}: Pick<CatalogModel, 'upstream_model' | 'providerEntry'>): Encoding | undefined {
  if (providerEntry.kind !== 'openai') return undefined;
  return encodings.find(([pattern]) => pattern.test(name))?.[1];
}
