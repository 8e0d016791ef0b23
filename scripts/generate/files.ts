// Publishes generated files and computes the digest of their inputs. A file is replaced only if its
// content differs, which does not wake a watcher in vain, and atomically, so that no other process reads
// an incomplete file.

import { createHash } from 'node:crypto';
import {
  copyFileSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';

/** The sorted paths from `root` of all files below a folder or file; empty when it does not exist. */
export function filesBelow(root: string, relativePath: string): string[] {
  const fullPath = path.join(root, relativePath);
  const stats = statSync(fullPath, { throwIfNoEntry: false });
  if (stats === undefined) return [];
  if (stats.isFile()) return [relativePath];
  return readdirSync(fullPath, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name)))
    .sort();
}

/** A digest of the names and bytes of files and of `extraInputs`, such as tool versions. */
export function digestFiles(
  root: string,
  relativePaths: readonly string[],
  extraInputs: readonly string[] = [],
): string {
  const hash = createHash('sha256');
  for (const text of extraInputs) hash.update(text).update('\0');
  for (const file of relativePaths.flatMap((relativePath) => filesBelow(root, relativePath))) {
    hash
      .update(file)
      .update('\0')
      .update(readFileSync(path.join(root, file)))
      .update('\0');
  }
  return hash.digest('hex');
}

/** Makes `target` equal to `source`; returns the number of written and removed files. */
export function publish(source: string, target: string): number {
  let changes = 0;
  const names = filesBelow(source, '.');
  for (const file of names) {
    if (writeIfChanged(path.join(target, file), readFileSync(path.join(source, file)))) changes += 1;
  }
  for (const file of filesBelow(target, '.')) {
    // Temporary files may belong to another run.
    if (names.includes(file) || file.endsWith('.tmp')) continue;
    rmSync(path.join(target, file));
    changes += 1;
  }
  return changes;
}

/** Writes a file atomically by a rename; false when its content is unchanged. */
export function writeIfChanged(file: string, content: string | Uint8Array): boolean {
  const bytes = Buffer.from(content);
  if (statSync(file, { throwIfNoEntry: false })?.isFile() === true && readFileSync(file).equals(bytes))
    return false;
  mkdirSync(path.dirname(file), { recursive: true });
  const temporaryFile = `${file}.${process.pid}.tmp`;
  writeFileSync(temporaryFile, bytes);
  renameSync(temporaryFile, file);
  return true;
}

/** Moves a file into its place by a rename, also from another disk; the mode stays. */
export function moveFile(source: string, target: string): void {
  mkdirSync(path.dirname(target), { recursive: true });
  const temporaryFile = `${target}.${process.pid}.tmp`;
  try {
    copyFileSync(source, temporaryFile);
    renameSync(temporaryFile, target);
  } finally {
    rmSync(temporaryFile, { force: true });
  }
  rmSync(source);
}
