// The patterns of vitest.config.ts match existing files: a renamed test file must not silently
// change its project.
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
