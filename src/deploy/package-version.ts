// The version in a project's package.json. Raising it replaces only the version's characters, so
// the file keeps its format.
import { readFile, rename, rm, stat, writeFile, access, constants } from 'node:fs/promises';
import { join } from 'node:path';
import { errorCode } from '../kernel/file-errors.ts';
import { JsonError, offsetOf, parseJsonWithPositions, positionOf, type JsonNode } from './json-positions.ts';

const file = 'package.json';
const versionForm = /^(\d{1,9})\.(\d{1,9})\.(\d{1,9})$/;

export interface PackageVersion {
  current: string;
  /** The next patch version. */
  next: string;
  /** The current text of the file with the next version. */
  raisedText(): Promise<string>;
  /** Writes the next version atomically. Throws when the file has another version than `current`. */
  raise(): Promise<void>;
  /** Undoes `raise`: writes the version `current` if the file has the version `next`. */
  restore(): Promise<void>;
}

/** Throws with line and column when package.json has no version that can be raised. */
export async function readPackageVersion(directory: string): Promise<PackageVersion> {
  const { version: current } = await readVersion(directory);
  // The file is replaced by a rename, which needs the right to write to the folder.
  await access(directory, constants.W_OK).catch(() => {
    throw new Error(`${directory} is not writable; a deployment replaces its ${file} to raise the version.`);
  });
  const [, major, minor, patch] = versionForm.exec(current) as RegExpExecArray;
  const next = `${major}.${minor}.${Number(patch) + 1}`;
  // Others may edit the file during a deployment. Read it again and replace only the version.
  const raisedText = async (): Promise<string> => {
    const { version, withVersion } = await readVersion(directory);
    if (version !== current)
      throw new Error(
        `The version in ${file} changed from ${current} to ${version} during the deployment; deploy again.`,
      );
    return withVersion(next);
  };
  const path = join(directory, file);
  return {
    current,
    next,
    raisedText,
    raise: async () => replace(path, await raisedText()),
    async restore() {
      const { version, withVersion } = await readVersion(directory);
      if (version === next) await replace(path, withVersion(current));
    },
  };
}

interface VersionInText {
  version: string;
  /** The file's text with another version. */
  withVersion(version: string): string;
}

async function readVersion(directory: string): Promise<VersionInText> {
  const text = await readFile(join(directory, file), 'utf8').catch((error: unknown) => {
    throw new Error(
      `${file} cannot be read in ${directory} (${errorCode(error) ?? 'unknown'}); a deployment raises its version.`,
    );
  });
  const refuse = (offset: number, message: string): never => {
    const { line, column } = positionOf(text, offset);
    throw new Error(`${file}:${line}:${column}: ${message}`);
  };
  const root = parseOrRefuse(text, refuse);
  const node = root.members?.get('version')?.node;
  if (node === undefined) return refuse(root.start, 'version is required; a deployment raises it');
  if (typeof node.value !== 'string' || !versionForm.test(node.value)) {
    return refuse(
      offsetOf(root, ['version']),
      'version must be three numbers such as "0.1.0"; a deployment raises the last one',
    );
  }
  return {
    version: node.value,
    withVersion: (version) => `${text.slice(0, node.start)}"${version}"${text.slice(node.end)}`,
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
