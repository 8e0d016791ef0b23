// Data files that are part of the program, in the package and in the executable, by their path in
// the repository. Code reads those of src through src/kernel/assets.ts; their folders are listed
// here.

import { existsSync, readdirSync, statSync } from 'node:fs';
import path from 'node:path';

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

/** The files in the wanted folders, or all of them. Throws when a required file was not generated yet. */
export function shippedFiles(root: string, wantedFolders?: readonly string[]): string[] {
  if (wantedFolders !== undefined) return wantedFolders.flatMap((folder) => listFilesBelow(root, folder));
  for (const name of [...folders.map(({ folder }) => folder), ...files])
    if (!existsSync(path.join(root, name)))
      throw new Error(`${name} is not there; run "npm run prepare" first`);
  return [
    ...folders.flatMap(({ folder, only: pattern }) =>
      listFilesBelow(root, folder).filter((name) => pattern.test(name)),
    ),
    ...files,
  ];
}

function listFilesBelow(root: string, folder: string): string[] {
  return readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
    .map((name) => `${folder}/${name}`)
    .filter((name) => statSync(path.join(root, name)).isFile())
    .sort();
}
