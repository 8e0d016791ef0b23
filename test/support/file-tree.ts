// The content of a folder as text, to show that a command has changed nothing in it.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';

/** One line per entry with its path, its mode and, for a file, its hash; without the `ignored` paths. */
export function readTree(folder: string, ignored?: RegExp): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => ignored?.test(name) !== true)
    .map((name) => {
      const file = path.join(folder, name);
      const stats = statSync(file);
      const hash = stats.isFile() ? createHash('sha256').update(readFileSync(file)).digest('hex') : '';
      return `${name} ${stats.mode} ${hash}`;
    })
    .sort();
}
