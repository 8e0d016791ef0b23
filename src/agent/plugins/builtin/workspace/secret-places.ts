// Paths within a workspace that no tool opens: paths of the configuration, files with Townhall's
// own secrets, folders of embedded databases, and environment files.
import { lstat } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { isWithin } from '../../../../kernel/folder.ts';
import { foldCase } from './protected-files.ts';

export interface SecretPlaces {
  /**
   * Why no tool may use the path, worded to follow the path in a sentence; undefined when tools may
   * use it. The path is absolute and without links.
   */
  refusalOf(path: string): Promise<string | undefined>;
  /**
   * The same check for an entry of a checked folder; faster, since a listing has thousands of
   * entries.
   */
  hides(folder: string, entry: { name: string; isDirectory(): boolean }): Promise<boolean>;
}

const absentReason = 'does not exist';
// The data of another gateway or agent may be in the same workspace, and no setting of this agent names it.
const secretNames: ReadonlySet<string> = new Set([
  'master.key',
  'agent.token',
  'local.token',
  'control.sock',
  'townhall.lock',
]);
const databaseLock = 'townhall.lock';
const sampleSuffixes: ReadonlySet<string> = new Set(['example', 'sample', 'template', 'dist']);

/** `hidden` are absolute paths without links; they need not exist. */
export function secretPlaces(root: string, hidden: readonly string[]): SecretPlaces {
  const pathsWithin = hidden.filter((path) => isWithin(foldCase(path), foldCase(root)));

  // Device and inode also recognize a hidden path that is written in other letter
  // case or mounted a second time.
  async function isHiddenByIdentity(paths: readonly string[]): Promise<boolean> {
    if (pathsWithin.length === 0) return false;
    const [identities, ...secretPaths] = await Promise.all([
      Promise.all(pathsWithin.map(readIdentity)),
      ...paths.map(readIdentity),
    ]);
    return secretPaths.some((identity) => identity !== undefined && identities.includes(identity));
  }

  function isHiddenByPath(path: string): boolean {
    return pathsWithin.some((secret) => isWithin(secret, root) && isWithin(path, secret));
  }

  return {
    async refusalOf(path) {
      if (isHiddenByPath(path)) return absentReason;
      const names = relative(root, path).split(sep);
      if (names.some(isSecretName))
        return 'has a name that is reserved for secrets of Townhall; no tool opens it';
      const steps = ancestorsOf(root, path);
      const [isHidden, ...locks] = await Promise.all([
        isHiddenByIdentity(steps),
        ...steps.map(holdsDatabase),
      ]);
      return isHidden || locks.includes(true) ? absentReason : undefined;
    },
    async hides(folder, entry) {
      const path = join(folder, entry.name);
      if (isHiddenByPath(path) || isSecretName(entry.name)) return true;
      return (entry.isDirectory() && (await holdsDatabase(path))) || isHiddenByIdentity([path]);
    },
  };
}

/**
 * Whether the folder, or one above it, contains an embedded database. The path is absolute and
 * without links.
 */
export async function isWithinDatabase(folder: string): Promise<boolean> {
  if (await holdsDatabase(folder)) return true;
  return dirname(folder) !== folder && isWithinDatabase(dirname(folder));
}

/**
 * Whether the name is that of a dotenv file with real values, and not of a sample such as
 * `.env.example`.
 */
export function isEnvironmentFile(name: string): boolean {
  const [stem, extension, ...suffixes] = foldCase(name).split('.');
  return stem === '' && extension === 'env' && !sampleSuffixes.has(suffixes.at(-1) ?? '');
}

/** Whether the path is in a folder that package managers fill with hard links into their store. */
export function isPackageFile(path: string): boolean {
  return path.split(sep).some((name) => name === 'node_modules' || name === 'site-packages');
}

// The path and the folders above it, up to the root and without it.
function ancestorsOf(root: string, path: string): string[] {
  const steps: string[] = [];
  for (let step = path; step !== root && isWithin(step, root); step = dirname(step)) steps.push(step);
  return steps;
}

async function readIdentity(path: string): Promise<string | undefined> {
  return lstat(path).then(
    ({ dev, ino }) => `${dev}:${ino}`,
    () => undefined,
  );
}

function isSecretName(name: string): boolean {
  return secretNames.has(foldCase(name));
}

async function holdsDatabase(folder: string): Promise<boolean> {
  return lstat(join(folder, databaseLock)).then(
    () => true,
    () => false,
  );
}
