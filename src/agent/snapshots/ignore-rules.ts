// The rules of `.gitignore` files: a later rule wins over an earlier one, and a file deeper in the tree over
// one above it.
import { compileShape, matchesShape, type GlobShape } from '../../kernel/glob.ts';

interface IgnoreRule {
  shape: GlobShape;
  /** The only name that it matches, for the many rules without a wildcard. */
  literal: string | null;
  isNegated: boolean;
  onlyFolders: boolean;
  /** Whether it matches the whole path below its file, and not a name at any depth. */
  isAnchored: boolean;
}

/** The rules of one file. */
export interface IgnoreLevel {
  /** The depth of the file's folder; 0 for the root. */
  depth: number;
  rules: readonly IgnoreRule[];
}

const maxRules = 1_000;

export function parseIgnoreFile(text: string, depth: number): IgnoreLevel {
  const rules = text.split('\n').slice(0, maxRules).flatMap(parseRule);
  return { depth, rules };
}

/** `names` are the segments of the path from the root. */
export function isIgnored(
  levels: readonly IgnoreLevel[],
  names: readonly string[],
  isFolder: boolean,
): boolean {
  for (const { depth, rules } of [...levels].reverse()) {
    const rule = rules.findLast((candidate) => ruleApplies(candidate, names.slice(depth), isFolder));
    if (rule !== undefined) return !rule.isNegated;
  }
  return false;
}

function parseRule(line: string): IgnoreRule[] {
  // A blank at the end counts only after a backslash.
  const content = line.replace(/\r$/, '').replace(/(?<!\\) +$/, '');
  if (content === '' || content.startsWith('#')) return [];
  const isNegated = content.startsWith('!');
  const pattern = isNegated ? content.slice(1) : content;
  const onlyFolders = pattern.endsWith('/');
  const path = onlyFolders ? pattern.slice(0, -1) : pattern;
  const isAnchored = path.includes('/');
  const literal = !isAnchored && !/[\\*?[]/.test(path) ? path : null;
  return [{ shape: compileShape(path), literal, isNegated, onlyFolders, isAnchored }];
}

function ruleApplies(
  { shape, literal, onlyFolders, isAnchored }: IgnoreRule,
  names: readonly string[],
  isFolder: boolean,
): boolean {
  if (onlyFolders && !isFolder) return false;
  const name = names.at(-1) ?? '';
  if (literal !== null) return literal === name;
  return matchesShape(shape, isAnchored ? names : [name]);
}
