// How the search of the portal compares words: by their stems, and with synonyms that readers may type.

/**
 * The stem of an English word: `streams`, `streamed` and `streaming` have the same stem. It only has to
 * be the same for all forms of a word, so it may not be a word itself.
 */
export function stem(word: string): string {
  const lowerCaseWord = word.toLowerCase();
  // Short words and words with digits lose only the `s` of a plural: `keys`, but not `bus` or `pass`.
  if (lowerCaseWord.length < 5 || /\d/.test(lowerCaseWord))
    return lowerCaseWord.replace(/(?<=\w[^su])s$/, '');
  const base = lowerCaseWord
    .replace(/ies$/, 'y')
    .replace(/(?<=[^aeious])es$/, 'e')
    .replace(/(?<=[^sui]|[ae]u)s$/, '')
    .replace(/(?<=\w{4})ment$/, '')
    .replace(/(?<=\w{3})ation$/, 'ate')
    .replace(/(?<=\w{3})(?:ing|ed)$/, '');
  return base.replace(/([bdgmnprt])\1$/, '$1').replace(/(?<=\w{3})e$/, '');
}

/**
 * On the left what a reader may type, on the right the words of the documentation for it. A section with
 * a word on the right is also a result for the word on the left.
 */
const synonyms: Readonly<Record<string, readonly string[]>> = {
  budget: ['cap', 'allowance'],
  kubernetes: ['container', 'replica', 'compose'],
  helm: ['container'],
  docker: ['container'],
  react: ['browser'],
  vue: ['browser'],
  frontend: ['browser'],
  python: ['openai'],
  ollama: ['compatible'],
  vllm: ['compatible'],
  openrouter: ['compatible'],
  cors: ['origin', 'cors_origins'],
  sse: ['stream'],
  tenant: ['bureau'],
  team: ['bureau'],
  organization: ['bureau'],
  quota: ['limit', 'cap'],
  price: ['rate', 'credit'],
  cost: ['price', 'credit'],
  apikey: ['token'],
  migrate: ['upgrade'],
  sso: ['openid', 'oauth'],
  oidc: ['openid'],
  webhook: ['event'],
  retry: ['repeat'],
  crash: ['restart'],
};

/** The stems of what readers may type, by the stem of the documentation's word. */
const readerStems = invert(synonyms);

function invert(table: Readonly<Record<string, readonly string[]>>): ReadonlyMap<string, readonly string[]> {
  const stems = new Map<string, string[]>();
  for (const [readerWord, words] of Object.entries(table))
    for (const word of words) stems.set(stem(word), [...(stems.get(stem(word)) ?? []), stem(readerWord)]);
  return stems;
}

/** The stem of a word of a text, and the stems of what readers may type for it. */
export function indexedTerms(word: string): string[] {
  const wordStem = stem(word);
  return [wordStem, ...(readerStems.get(wordStem) ?? [])];
}
