// Where a package of the tests is installed: in test/node_modules, or in the root for one that the
// product has too.
import { existsSync } from 'node:fs';
import path from 'node:path';

const testFolder = path.join(import.meta.dirname, '..');

/** Throws when the package is not installed. */
export function packageFolder(name: string): string {
  const folder = [testFolder, path.dirname(testFolder)]
    .map((place) => path.join(place, 'node_modules', name))
    .find((place) => existsSync(place));
  if (folder === undefined) throw new Error(`${name} is not installed; run "npm run test:packages"`);
  return folder;
}
