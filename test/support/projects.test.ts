// The configuration of the test runs: a renamed test file must not silently change its project, and the
// folders with packages of their own must use the versions of the product.
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

// @arethetypeswrong/cli uses version 10, and no test imports it.
const differingPackages = ['highlight.js'];

test('all folders have the same version of a shared package', () => {
  const rootNames = readNames('package.json');
  const versions = new Map<string, Set<string>>();
  for (const folder of ['.', 'examples', 'scripts', 'test']) {
    const installed = readVersions(path.join(folder, 'package-lock.json'));
    const ownNames = readNames(path.join(folder, 'package.json'));
    // A script or a test that imports a package of the root finds the copy of its folder first.
    for (const name of folder === 'examples' ? ownNames : [...rootNames, ...ownNames]) {
      const version = installed.get(name);
      if (version !== undefined) versions.set(name, (versions.get(name) ?? new Set()).add(version));
    }
  }
  expect([...versions.keys()]).toContain('openai');
  const names = [...versions].filter(([, { size }]) => size > 1).map(([name]) => name);
  expect(names).toEqual(differingPackages);
});

function readNames(manifest: string): string[] {
  const { dependencies, devDependencies } = JSON.parse(
    readFileSync(path.join(root, manifest), 'utf8'),
  ) as Record<'dependencies' | 'devDependencies', Record<string, string>>;
  return Object.keys({ ...dependencies, ...devDependencies });
}

/** The packages of a lock file that every file of its folder finds. */
function readVersions(lockFile: string): Map<string, string | undefined> {
  const { packages } = JSON.parse(readFileSync(path.join(root, lockFile), 'utf8')) as {
    packages: Record<string, { version?: string }>;
  };
  return new Map(
    Object.entries(packages).map(([folder, { version }]) => [folder.replace(/^node_modules\//, ''), version]),
  );
}
