// The places of a workspace that no tool opens although they lie inside: paths that the configuration names, files
// that Townhall keeps its own secrets in, folders of embedded databases, and environment files.
import { lstat } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';

export interface SecretPlaces {
  /** Why no tool may touch the place, in words that follow its path; undefined when tools may. Absolute, without links. */
  refusalOf(place: string): Promise<string | undefined>;
  /** The same for an entry of a folder that passed the check before; a listing asks for thousands of them. */
  hides(folder: string, entry: { name: string; isDirectory(): boolean }): Promise<boolean>;
}

const absent = 'does not exist';
// Other gateways and agents may keep their data in the same workspace, and no setting of this agent names their paths.
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
  const within = hidden.filter((path) => isWithin(fold(path), fold(root)));

  /** Identities of the hidden paths. They recognize a path written in other letter case, and a second mount. */
  async function isHiddenByIdentity(places: readonly string[]): Promise<boolean> {
    if (within.length === 0) return false;
    const [identities, ...own] = await Promise.all([
      Promise.all(within.map(identityOf)),
      ...places.map(identityOf),
    ]);
    return own.some((identity) => identity !== undefined && identities.includes(identity));
  }

  function isHiddenByPath(place: string): boolean {
    return within.some((path) => isWithin(path, root) && isWithin(place, path));
  }

  return {
    async refusalOf(place) {
      if (isHiddenByPath(place)) return absent;
      const names = relative(root, place).split(sep);
      if (names.some(isSecretName))
        return 'has a name that is reserved for secrets of Townhall; no tool opens it';
      const steps = ancestors(root, place);
      const [isHidden, ...locks] = await Promise.all([
        isHiddenByIdentity(steps),
        ...steps.map(holdsDatabase),
      ]);
      return isHidden || locks.includes(true) ? absent : undefined;
    },
    async hides(folder, entry) {
      const place = join(folder, entry.name);
      if (isHiddenByPath(place) || isSecretName(entry.name)) return true;
      return (entry.isDirectory() && (await holdsDatabase(place))) || isHiddenByIdentity([place]);
    },
  };
}

/** Whether a folder, or one above it, is that of an embedded database. Absolute, without links. */
export async function isWithinDatabase(folder: string): Promise<boolean> {
  if (await holdsDatabase(folder)) return true;
  return dirname(folder) !== folder && isWithinDatabase(dirname(folder));
}

/** Whether a file name is that of an environment file (dotenv) with real values, rather than of a sample. */
export function isEnvironmentFile(name: string): boolean {
  const [first, second, ...suffixes] = fold(name).split('.');
  return first === '' && second === 'env' && !sampleSuffixes.has(suffixes.at(-1) ?? '');
}

/** Whether package managers fill the folder with hard links into a store of theirs. */
export function isPackageFile(place: string): boolean {
  return place.split(sep).some((name) => name === 'node_modules' || name === 'site-packages');
}

/** Whether a path is the folder or lies in it; both absolute and without links. */
export function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

// The place and the folders above it, up to the root and without it.
function ancestors(root: string, place: string): string[] {
  const steps: string[] = [];
  for (let step = place; step !== root && isWithin(step, root); step = dirname(step)) steps.push(step);
  return steps;
}

// One form for all names that a file system may take for the same: upper and lower case, composed and decomposed
// letters, and characters that HFS+ ignores.
function fold(name: string): string {
  return name
    .replaceAll(/\p{Default_Ignorable_Code_Point}/gu, '')
    .normalize('NFKC')
    .toLowerCase();
}

async function identityOf(path: string): Promise<string | undefined> {
  return lstat(path).then(
    ({ dev, ino }) => `${dev}:${ino}`,
    () => undefined,
  );
}

function isSecretName(name: string): boolean {
  return secretNames.has(fold(name));
}

async function holdsDatabase(folder: string): Promise<boolean> {
  return lstat(join(folder, databaseLock)).then(
    () => true,
    () => false,
  );
}
