// The data files that are part of the program, in the package and in the executable, by their path in the
// repository. Code below src reads them through src/kernel/assets.ts. A new folder of data files must be
// added here.

import { existsSync } from 'node:fs';
import path from 'node:path';
import { filesBelow } from '../generate/files.ts';

const folders: readonly { folder: string; only: RegExp }[] = [
  { folder: 'src/gateway/migrations', only: /\.sql$/ },
  { folder: 'src/agent/migrations', only: /\.sql$/ },
  { folder: 'src/contract/gateway', only: /\/bundle\.json$/ },
  { folder: 'src/contract/agent', only: /\/bundle\.json$/ },
  { folder: 'src/contract/agent-classic', only: /\/bundle\.json$/ },
  { folder: 'src/deploy/chart', only: /./ },
  { folder: 'docs/guides', only: /\.md$/ },
  { folder: 'build/docs', only: /./ },
];
const files: readonly string[] = ['build/pglite-seed.tgz', 'LICENSE'];

/**
 * The paths of all data files, sorted within their folders. Throws when a required one was not generated
 * yet.
 */
export function shippedFiles(root: string): string[] {
  for (const name of [...folders.map(({ folder }) => folder), ...files])
    if (!existsSync(path.join(root, name)))
      throw new Error(`${name} is missing; run "npm run prepare" first`);
  return [
    ...folders.flatMap(({ folder, only: pattern }) =>
      filesBelow(root, folder).filter((name) => pattern.test(name)),
    ),
    ...files,
  ];
}
