// Folds names of members as lenient servers do. Some ignore case, hyphens and
// underscores (protobuf's JSON also reads `maxTokens` as `max_tokens`), and some
// compare after Unicode case folding (Go reads `ſtream` as `stream`).

/**
 * The name without case, hyphens, underscores, spaces and invisible characters: all spellings of a
 * name fold to the same string.
 */
export function foldName(name: string): string {
  // Fast path: nearly all names are lower-case ASCII.
  if (/^[a-z0-9_]*$/.test(name)) return name.replaceAll('_', '');
  return name
    .normalize('NFKC')
    .toUpperCase()
    .toLowerCase()
    .replace(/[-_\s\p{Cf}]/gu, '');
}

/** The first of the names of which the members contain a spelling; undefined if there is none. */
export function findForm(names: readonly string[], members: Iterable<string>): string | undefined {
  const foldedMembers = new Set([...members].map(foldName));
  return names.find((name) => foldedMembers.has(foldName(name)));
}
