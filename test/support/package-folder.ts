// Where a package of the tests is installed: in test/node_modules, with the tools of releases, or
// in the root.
import { existsSync } from 'node:fs';
import path from 'node:path';

const testFolder = path.join(import.meta.dirname, '..');

/** Throws when the package is not installed. */
export function packageFolder(name: string): string {
  const root = path.dirname(testFolder);
  const folder = [testFolder, path.join(root, 'scripts'), root]
    .map((place) => path.join(place, 'node_modules', name))
    .find((place) => existsSync(place));
  if (folder === undefined) throw new Error(`${name} is not installed; run "npm run test:packages"`);
  return folder;
}
