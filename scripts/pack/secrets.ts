// Finds secrets that must not be published: tokens of our own format, private keys, and keys of
// well-known services. Example tokens in the documentation are truncated or repeat one letter, and
// do not match.

const shapes: readonly { name: string; pattern: RegExp }[] = [
  { name: 'one of our tokens', pattern: /\bth_(?:usr|adm|agt)_[0-9A-Za-z]{49}\b/g },
  { name: 'a private key', pattern: /-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s+[A-Za-z0-9+/=\s]{64,}/g },
  { name: 'a key of a model provider', pattern: /\bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{32,}\b/g },
  {
    name: 'a key of a payment provider',
    pattern: /\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}\b|\bwhsec_[A-Za-z0-9+/=]{24,}/g,
  },
  { name: 'a key of a cloud', pattern: /\bAKIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35}\b/g },
  {
    name: 'a token of a code host',
    pattern:
      /\bgh[pousr]_[A-Za-z0-9]{36,}\b|\bgithub_pat_[A-Za-z0-9_]{40,}\b|\bglpat-[A-Za-z0-9_-]{20,}\b|\bnpm_[A-Za-z0-9]{36}\b/g,
  },
  { name: 'a token of a chat service', pattern: /\bxox[abprs]-[A-Za-z0-9-]{20,}\b/g },
];

/**
 * The kinds of secrets in the text with their first characters. A match of few different characters is an
 * example and not reported.
 */
export function findSecrets(text: string): string[] {
  return shapes.flatMap(({ name, pattern }) =>
    [...text.matchAll(pattern)]
      .filter(([match]) => new Set(match.slice(8)).size > 6)
      .map(([match]) => `${name} (${match.slice(0, 10)}…)`),
  );
}
