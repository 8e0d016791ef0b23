// Files that ship with the program: migrations, contracts, guides, pages, the database engine and
// worker threads. A checkout and a package have them on disk; the single executable contains them.
// Other files name an asset by its path in the repository.
import { createReadStream, existsSync, readFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import sea from 'node:sea';
import { join, relative } from 'node:path';
import { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { Worker, type WorkerOptions } from 'node:worker_threads';

/** Whether this is the single executable. */
export const isSingleExecutable: boolean = sea.isSea();

// A prefix that no path on a disk has.
const assetScheme = 'townhall-asset:';
// `src` in a checkout, `dist` in a package.
const program = new URL('../', import.meta.url);

/**
 * The path of a file or folder that ships with the program, such as
 * `src/gateway/migrations` or `docs/guides`.
 */
export function assetPath(path: string): string {
  if (isSingleExecutable) return `${assetScheme}${path}`;
  return fileURLToPath(
    path.startsWith('src/') ? new URL(path.slice('src/'.length), program) : new URL(`../${path}`, program),
  );
}

/**
 * The files below a folder, relative to it. Accepts the result of `assetPath` and any other folder;
 * throws ENOENT like readdir.
 */
export async function listFiles(folder: string): Promise<string[]> {
  const key = assetKey(folder);
  if (key === undefined) {
    const entries = await readdir(folder, { recursive: true, withFileTypes: true });
    return entries
      .filter((entry) => entry.isFile())
      .map((entry) => relative(folder, join(entry.parentPath, entry.name)))
      .sort();
  }
  const names = assetNames().flatMap((name) =>
    name.startsWith(`${key}/`) ? [name.slice(key.length + 1)] : [],
  );
  if (names.length === 0) throw notFound(folder);
  return names.sort();
}

/**
 * The bytes of a file. Accepts a result of `assetPath`, to which a relative path may have been
 * appended, and any other file.
 */
export async function readBytes(file: string): Promise<Uint8Array> {
  const key = assetKey(file);
  return key === undefined ? readFile(file) : assetBytes(key);
}

/** A file as text. */
export async function readText(file: string): Promise<string> {
  const bytes = await readBytes(file);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
}

/** Reads a file as text synchronously, for values that a module needs while it loads. */
export function readTextSync(file: string): string {
  const key = assetKey(file);
  return key === undefined ? readFileSync(file, 'utf8') : Buffer.from(assetBytes(key)).toString('utf8');
}

/** The bytes of a file as a stream. */
export function openByteStream(file: string): Readable {
  const key = assetKey(file);
  return key === undefined ? createReadStream(file) : Readable.from([assetBytes(key)]);
}

/** Whether the file exists, or a folder with files. */
export function assetExists(file: string): boolean {
  const key = assetKey(file);
  return key === undefined
    ? existsSync(file)
    : assetNames().some((name) => name === key || name.startsWith(`${key}/`));
}

/**
 * Starts a worker thread from one of our files, named without extension, such as
 * `src/kernel/data/embedded/worker`.
 */
export function startThread(path: string, options: WorkerOptions): Worker {
  if (isSingleExecutable)
    return new Worker(readTextSync(assetPath(`${path}.js`)), { ...options, eval: true });
  const extension = import.meta.url.endsWith('.ts') ? '.ts' : '.js';
  return new Worker(new URL(`${path.slice('src/'.length)}${extension}`, program), options);
}

/** The file that an import of the package resolves to; undefined when the package is absent. */
export function packageFile(name: string): string | undefined {
  if (isSingleExecutable) {
    const path = assetPath(`packages/${name}`);
    return assetExists(path) ? path : undefined;
  }
  try {
    return createRequire(import.meta.url).resolve(name);
  } catch {
    return undefined;
  }
}

function assetKey(file: string): string | undefined {
  return file.startsWith(assetScheme) ? file.slice(assetScheme.length) : undefined;
}

let names: readonly string[] | undefined;
function assetNames(): readonly string[] {
  // The list is itself an asset, written when the executable is built.
  names ??= JSON.parse(sea.getAsset('names.json', 'utf8')) as string[];
  return names;
}

function assetBytes(key: string): Uint8Array {
  if (!assetNames().includes(key)) throw notFound(key);
  // The memory of the executable itself: read-only, not a copy.
  return new Uint8Array(sea.getRawAsset(key) as ArrayBuffer);
}

function notFound(file: string): Error {
  return Object.assign(new Error(`This program does not contain ${file}.`), { code: 'ENOENT' });
}
