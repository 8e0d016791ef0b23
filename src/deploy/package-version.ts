// The version in a project's package.json. Raising it replaces only the version's characters, so
// the file keeps its format.
import { readFile, rename, rm, stat, writeFile, access, constants } from 'node:fs/promises';
import { join } from 'node:path';
import { JsonError, offsetOf, parseJsonWithPositions, positionOf, type JsonNode } from './json-positions.ts';

const file = 'package.json';

export interface PackageVersion {
  current: string;
  /** The next patch version. */
  next: string;
  /** The file's text with the next version. */
  raisedText: string;
  /** Writes the next version atomically. */
  raise(): Promise<void>;
  /** Restores the former text. */
  restore(): Promise<void>;
}

/** Throws with line and column when package.json has no version that can be raised. */
export async function readPackageVersion(directory: string): Promise<PackageVersion> {
  const path = join(directory, file);
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    throw new Error(
      `${file} cannot be read in ${directory} (${(error as NodeJS.ErrnoException).code ?? 'unknown'}); a deployment raises its version.`,
    );
  });
  const refuse = (offset: number, message: string): never => {
    const { line, column } = positionOf(text, offset);
    throw new Error(`${file}:${line}:${column}: ${message}`);
  };
  const root = parseOrRefuse(text, refuse);
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
  const raisedText = `${text.slice(0, node.start)}"${next}"${text.slice(node.end)}`;
  return {
    current: node.value,
    next,
    raisedText,
    raise: () => replace(path, raisedText),
    restore: () => replace(path, text),
  };
}

function parseOrRefuse(text: string, refuse: (offset: number, message: string) => never): JsonNode {
  try {
    return parseJsonWithPositions(text);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return refuse(error.offset, error.message);
  }
}

async function replace(path: string, text: string): Promise<void> {
  const { mode } = await stat(path);
  const staging = `${path}.townhall`;
  try {
    await writeFile(staging, text, { mode: mode & 0o777 });
    await rename(staging, path);
  } catch (error) {
    await rm(staging, { force: true });
    throw error;
  }
}
