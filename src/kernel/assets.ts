// The files that ship with the program: migrations, contracts, guides, pages, the engine and its threads. In a checkout and in
// a package they are on the disk; in the single executable they are inside of it. Other files name an asset by its path in
// the repository.
import { createReadStream, existsSync, readFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import sea from 'node:sea';
import { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { Worker, type WorkerOptions } from 'node:worker_threads';

/** Whether this is the single executable. */
export const isSingleExecutable: boolean = sea.isSea();

// No path on a disk begins like this.
const inside = 'townhall-asset:';
// `src` in a checkout, `dist` in a package.
const program = new URL('../', import.meta.url);

/** The path of a file or folder that ships with the program, such as `src/gateway/migrations` or `docs/guides`. */
export function assetPath(path: string): string {
  if (isSingleExecutable) return `${inside}${path}`;
  return fileURLToPath(
    path.startsWith('src/') ? new URL(path.slice('src/'.length), program) : new URL(`../${path}`, program),
  );
}

/** The files below a folder, relative to it. Takes what `shipped` gives and any other folder; throws ENOENT as readdir does. */
export async function listFiles(folder: string): Promise<string[]> {
  const key = assetKey(folder);
  if (key === undefined) {
    const entries = await readdir(folder, { recursive: true, withFileTypes: true });
    return entries
      .filter((entry) => entry.isFile())
      .map((entry) => `${entry.parentPath}/${entry.name}`.slice(folder.replace(/\/+$/, '').length + 1))
      .sort();
  }
  const names = assetNames().flatMap((name) =>
    name.startsWith(`${key}/`) ? [name.slice(key.length + 1)] : [],
  );
  if (names.length === 0) throw notFound(folder);
  return names.sort();
}

/** The bytes of a file; takes what `shipped` gives, with or without more of a path behind it, and any other file. */
export async function readBytes(file: string): Promise<Uint8Array> {
  const key = assetKey(file);
  return key === undefined ? readFile(file) : assetBytes(key);
}

/** A file as text. */
export async function readText(file: string): Promise<string> {
  const bytes = await readBytes(file);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
}

/** The same synchronously, for values that a module needs while it loads. */
export function readTextNow(file: string): string {
  const key = assetKey(file);
  return key === undefined ? readFileSync(file, 'utf8') : Buffer.from(assetBytes(key)).toString('utf8');
}

/** The bytes of a file as a stream. */
export function readPieces(file: string): Readable {
  const key = assetKey(file);
  return key === undefined ? createReadStream(file) : Readable.from([assetBytes(key)]);
}

/** Whether there is such a file, or a folder with files. */
export function assetExists(file: string): boolean {
  const key = assetKey(file);
  return key === undefined
    ? existsSync(file)
    : assetNames().some((name) => name === key || name.startsWith(`${key}/`));
}

/** Starts a thread whose program is a file of ours, named without its ending, such as `src/kernel/data/embedded-worker`. */
export function startThread(path: string, options: WorkerOptions): Worker {
  if (isSingleExecutable) return new Worker(readTextNow(assetPath(`${path}.js`)), { ...options, eval: true });
  const ending = import.meta.url.endsWith('.ts') ? '.ts' : '.js';
  return new Worker(new URL(`${path.slice('src/'.length)}${ending}`, program), options);
}

/** The file that an import of a package would take, or undefined where the package is not installed or not inside. */
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
  return file.startsWith(inside) ? file.slice(inside.length) : undefined;
}

let names: readonly string[] | undefined;
function assetNames(): readonly string[] {
  // The list is itself an asset, written when the executable is made.
  names ??= JSON.parse(sea.getAsset('names.json', 'utf8')) as string[];
  return names;
}

function assetBytes(key: string): Uint8Array {
  if (!assetNames().includes(key)) throw notFound(key);
  // The memory of the executable itself: read-only, not a copy.
  return new Uint8Array(sea.getRawAsset(key) as ArrayBuffer);
}

function notFound(file: string): Error {
  return Object.assign(new Error(`There is no ${file} in this program.`), { code: 'ENOENT' });
}
