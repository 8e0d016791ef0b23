// The patterns of vitest.config.ts match existing files: a renamed test file must not silently
// change its project. And tests use the versions of packages that the product uses.
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';

const root = path.join(import.meta.dirname, '../..');

/** Expands `a/{b,c}.ts` to `a/b.ts` and `a/c.ts`. */
function expandBraces(pattern: string): string[] {
  const [, head = '', choices = '', tail = ''] = /^(.*?)\{([^}]*)\}(.*)$/.exec(pattern) ?? [];
  if (choices === '') return [pattern];
  return choices.split(',').flatMap((choice) => expandBraces(`${head}${choice}${tail}`));
}

test('each pattern of the projects matches a test file', () => {
  const patterns = readFileSync(path.join(root, 'vitest.config.ts'), 'utf8').match(
    /(?<=')test\/[^']*test\.ts(?=')/g,
  );
  expect(patterns?.length).toBeGreaterThan(20);
  const unmatchedPatterns = (patterns ?? [])
    // A pattern with a negated folder matches all other folders, of which there may be none.
    .filter((pattern) => !pattern.includes('!('))
    .flatMap(expandBraces)
    .filter((pattern) => globSync(pattern, { cwd: root }).length === 0);
  expect(unmatchedPatterns).toEqual([]);
});

// @arethetypeswrong/cli prints with version 10 of it, and no test imports it.
const ofTools = ['highlight.js'];

test('the tests have the versions of the packages that the product has', () => {
  const versions = readVersions('package-lock.json');
  const testVersions = readVersions('test/package-lock.json');
  const { dependencies, devDependencies } = JSON.parse(
    readFileSync(path.join(root, 'package.json'), 'utf8'),
  ) as Record<'dependencies' | 'devDependencies', Record<string, string>>;
  const names = Object.keys({ ...dependencies, ...devDependencies }).filter(
    (name) => testVersions.has(name) && !ofTools.includes(name),
  );
  expect(names).toContain('openai');
  for (const name of names) expect(testVersions.get(name), name).toBe(versions.get(name));
});

/** The packages of a lock file that every file of its folder finds. */
function readVersions(lockFile: string): Map<string, string | undefined> {
  const { packages } = JSON.parse(readFileSync(path.join(root, lockFile), 'utf8')) as {
    packages: Record<string, { version?: string }>;
  };
  return new Map(
    Object.entries(packages).map(([place, { version }]) => [place.replace(/^node_modules\//, ''), version]),
  );
}
