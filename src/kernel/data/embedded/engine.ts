// Where the files of the embedded database's engine are.
import { dirname, join } from 'node:path';
import { assetPath, isSingleExecutable, packageFile } from '../../assets.ts';

const engine = '@electric-sql/pglite';

/** The path of a file of PGlite, such as `pglite.wasm`. Throws when the package is not installed. */
export function engineFile(name: string): string {
  if (isSingleExecutable) return assetPath(`packages/${engine}/${name}`);
  const entry = packageFile(engine);
  if (entry === undefined) throw new Error(`The package ${engine} is not installed.`);
  return join(dirname(entry), name);
}
