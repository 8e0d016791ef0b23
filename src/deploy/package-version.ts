// The version in a project's package.json: read with its place, and raised by changing those characters alone, so that
// the file stays as its author wrote it.
import { readFile, rename, rm, stat, writeFile, access, constants } from 'node:fs/promises';
import { join } from 'node:path';
import { JsonError, offsetOf, parseJsonPlaces, placeOf } from './json-positions.ts';

const file = 'package.json';

export interface PackageVersion {
  current: string;
  /** The patch version after it. */
  next: string;
  /** The file's text with the next version. */
  raised: string;
  /** Writes the next version; the file is whole at every moment. */
  raise(): Promise<void>;
  /** Writes back what was there before. */
  restore(): Promise<void>;
}

/** Throws when there is no package.json whose version could be raised, and says where and why. */
export async function readPackageVersion(directory: string): Promise<PackageVersion> {
  const path = join(directory, file);
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    throw new Error(
      `${file} cannot be read in ${directory} (${(error as NodeJS.ErrnoException).code ?? 'unknown'}); a deployment raises its version.`,
    );
  });
  const refuse = (offset: number, message: string): never => {
    const { line, column } = placeOf(text, offset);
    throw new Error(`${file}:${line}:${column}: ${message}`);
  };
  const root = (() => {
    try {
      return parseJsonPlaces(text);
    } catch (error) {
      return refuse(
        error instanceof JsonError ? error.at : 0,
        error instanceof Error ? error.message : String(error),
      );
    }
  })();
  const node = root.members?.get('version')?.node;
  if (node === undefined) return refuse(root.start, 'version is required; a deployment raises it');
  const [, major, minor, patch] = /^(\d{1,9})\.(\d{1,9})\.(\d{1,9})$/.exec(String(node.value)) ?? [];
  if (typeof node.value !== 'string' || patch === undefined) {
    return refuse(
      offsetOf(root, ['version']),
      'version must be three numbers such as "0.1.0", whose last one a deployment can raise',
    );
  }
  await access(path, constants.W_OK).catch(() => {
    throw new Error(`${file} in ${directory} cannot be written; a deployment raises its version.`);
  });
  const next = `${major}.${minor}.${Number(patch) + 1}`;
  const raised = `${text.slice(0, node.start)}"${next}"${text.slice(node.end)}`;
  return {
    current: node.value,
    next,
    raised,
    raise: () => replace(path, raised),
    restore: () => replace(path, text),
  };
}

async function replace(path: string, text: string): Promise<void> {
  const { mode } = await stat(path);
  const unfinished = `${path}.townhall`;
  try {
    await writeFile(unfinished, text, { mode: mode & 0o777 });
    await rename(unfinished, path);
  } catch (error) {
    await rm(unfinished, { force: true });
    throw error;
  }
}
