// Names of members as a lenient server may read them. Some servers and libraries ignore case, hyphens and underscores
// (protobuf's JSON also takes `maxTokens` for `max_tokens`), and some compare after Unicode folding (Go takes `ſtream` for
// `stream`).

/** The name without case, hyphens, underscores, spaces and invisible characters; equal for all forms of one name. */
export function foldName(name: string): string {
  // Nearly all names are plain.
  if (/^[a-z0-9_]*$/.test(name)) return name.replaceAll('_', '');
  return name
    .normalize('NFKC')
    .toUpperCase()
    .toLowerCase()
    .replace(/[-_\s\p{Cf}]/gu, '');
}

/** The first of the names that is a form of one of the members, or undefined. */
export function findForm(names: readonly string[], members: Iterable<string>): string | undefined {
  const folded = new Set([...members].map(foldName));
  return names.find((name) => folded.has(foldName(name)));
}
