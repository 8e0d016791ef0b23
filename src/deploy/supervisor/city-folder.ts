// The folder `.townhall` of a project, readable by its owner only. It contains the versions, data, log and
// sockets of the deployed City, and the record of the last deployment.
import { chmod, cp, mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { isMissing, readTextIfExists } from '../../kernel/file-errors.ts';

/** The record of the last deployment: enough to start the City again at the same address. */
export interface CityState {
  cityId: string;
  name: string;
  host: string;
  /** The bound port, even if the deployment requested any free port. */
  port: number;
  url: string;
  baseUrl: string;
  /** The running version, and the version that a rollback returns to. */
  version: string;
  previous: string | null;
}

export interface CityFolder {
  /** The project's folder. */
  readonly project: string;
  readonly root: string;
  /** The folder of an embedded database. Throws when its socket's path would be too long. */
  dataPath(database: string): string;
  /** Images and videos. */
  readonly mediaPath: string;
  /** The journal: charges that are not in the database yet. */
  readonly journalPath: string;
  readonly logFile: string;
  readonly pidFile: string;
  /** The supervisor's control socket. */
  readonly socket: string;
  /** The socket for health checks of a generation's gateway. */
  gatewaySocket(generation: number): string;
  /** Temporary data for a trial while the running version holds the real data. */
  readonly trialPath: string;
  versionPath(version: string): string;
  /** Creates the folder unless it exists. */
  make(): Promise<void>;
  /**
   * Copies the project without its packages and with another package.json. The copy is named by the
   * version, or with `+2` and so on when that name exists. Returns the name.
   */
  keep(version: string, packageText: string): Promise<string>;
  removeVersion(version: string): Promise<void>;
  /** Names of the stored copies, oldest first; none before the first deployment. */
  versions(): Promise<string[]>;
  /** Null before the first deployment. */
  readState(): Promise<CityState | null>;
  writeState(state: CityState): Promise<void>;
}

// sun_path holds 108 bytes with its terminator on Linux.
const maxSocketPathBytes = 107;
const excludedNames = new Set(['.townhall', 'node_modules', '.git']);

/** Computes paths only. Throws when the project's path is too long for a socket. */
export function cityFolder(directory: string): CityFolder {
  const project = resolve(directory);
  const root = join(project, '.townhall');
  const gatewaySocket = (generation: number): string => join(root, `gateway-${generation}.sock`);
  requireSocketPath(join(root, 'gateway-9999.sock'), project);
  const versionsPath = join(root, 'versions');
  const versionPath = (version: string): string => join(versionsPath, version);
  const stateFile = join(root, 'city.json');

  return {
    project,
    root,
    dataPath(database) {
      const path = join(root, 'data', database);
      requireSocketPath(join(path, 'control.sock'), project);
      return path;
    },
    mediaPath: join(root, 'media'),
    journalPath: join(root, 'journal'),
    logFile: join(root, 'city.log'),
    pidFile: join(root, 'supervisor.pid'),
    socket: join(root, 'city.sock'),
    trialPath: join(root, 'trial'),
    gatewaySocket,
    versionPath,
    async make() {
      await mkdir(versionsPath, { recursive: true, mode: 0o700 });
      await chmod(root, 0o700);
    },
    async keep(version, packageText) {
      const existing = new Set(await readdir(versionsPath));
      let name = version;
      for (let number = 2; existing.has(name); number += 1) name = `${version}+${number}`;
      const staging = join(versionsPath, `.${name}`);
      await copyProject(project, staging);
      await writeFile(join(staging, 'package.json'), packageText);
      await rename(staging, versionPath(name));
      return name;
    },
    removeVersion: (version) => rm(versionPath(version), { recursive: true, force: true }),
    versions: () => listVersions(versionsPath),
    async readState() {
      const text = await readTextIfExists(stateFile);
      return text === null ? null : (JSON.parse(text) as CityState);
    },
    async writeState(state) {
      await writeFile(`${stateFile}.new`, `${JSON.stringify(state, null, 2)}\n`, { mode: 0o600 });
      await rename(`${stateFile}.new`, stateFile);
    },
  };
}

function requireSocketPath(path: string, project: string): void {
  const surplus = Buffer.byteLength(path) - maxSocketPathBytes;
  if (surplus > 0)
    throw new Error(
      `The path of ${project} is too long by ${surplus} bytes for the sockets of a deployment; move the project to a shorter path.`,
    );
}

async function copyProject(project: string, target: string): Promise<void> {
  await rm(target, { recursive: true, force: true });
  await mkdir(target, { recursive: true, mode: 0o700 });
  // cp refuses to copy a folder into itself, so the entries are copied one by one.
  for (const entry of await readdir(project)) {
    if (excludedNames.has(entry)) continue;
    await cp(join(project, entry), join(target, entry), {
      recursive: true,
      filter: (source) => !excludedNames.has(basename(source)),
    });
  }
}

/** The finished copies, oldest first. The name of an unfinished copy begins with a dot. */
async function listVersions(folder: string): Promise<string[]> {
  const names = await readdir(folder).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  const finishedNames = names.filter((name) => !name.startsWith('.'));
  const versions = await Promise.all(
    finishedNames.map(async (name) => ({ name, at: (await stat(join(folder, name))).ctimeMs })),
  );
  return versions.sort((a, b) => a.at - b.at).map(({ name }) => name);
}
