// The folder `.townhall` of a project: where the deployed City keeps its versions, its data, its log and its sockets,
// and what is known there about what runs. Nobody but its owner reads it.
import { chmod, cp, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';

/** What survives a stop: enough to start the City again at the same address. */
export interface CityState {
  cityId: string;
  name: string;
  host: string;
  /** The one that is bound, also where a free one was asked for. */
  port: number;
  url: string;
  baseUrl: string;
  /** The version that serves, and the one before, to which a rollback leads. */
  version: string;
  previous: string | null;
}

export interface CityFolder {
  /** The project's folder. */
  readonly project: string;
  readonly root: string;
  /** The folder of the embedded database of that name. Throws when the path is too long for its socket. */
  dataPath(database: string): string;
  /** Images and videos, and what the database could not take at the time. */
  readonly mediaPath: string;
  readonly journalPath: string;
  readonly logFile: string;
  readonly pidFile: string;
  /** The supervisor's control socket. */
  readonly socket: string;
  /** Where the gateway of a generation is asked whether it is well. */
  gatewaySocket(generation: number): string;
  /** The data of a trial that cannot have the real ones. */
  readonly trialPath: string;
  versionPath(version: string): string;
  /** Makes the folder when it is not there. */
  make(): Promise<void>;
  /**
   * Copies the project as it is now, its packages excepted, with another package.json, under the version or, where that
   * one is kept already, under it and `+2` and so on. Returns the name.
   */
  keep(version: string, packageText: string): Promise<string>;
  removeVersion(version: string): Promise<void>;
  /** Versions that are kept, the oldest first. */
  versions(): Promise<string[]>;
  readState(): Promise<CityState | null>;
  writeState(state: CityState): Promise<void>;
}

// The address of a socket in the file system has no more in any operating system that we know.
const maximumPathBytes = 107;
const notKept = new Set(['.townhall', 'node_modules', '.git']);

/** Names the places; nothing is touched. Throws when the path is too long for a socket. */
export function cityFolder(directory: string): CityFolder {
  const project = resolve(directory);
  const root = join(project, '.townhall');
  const gatewaySocket = (generation: number): string => join(root, `gateway-${generation}.sock`);
  const requireSocket = (path: string): void => {
    const surplus = Buffer.byteLength(path) - maximumPathBytes;
    if (surplus > 0)
      throw new Error(
        `The path of ${project} is too long by ${surplus} bytes for the sockets of a deployment; move the project to a shorter one.`,
      );
  };
  requireSocket(join(root, 'gateway-9999.sock'));
  const versionPath = (version: string): string => join(root, 'versions', version);
  const stateFile = join(root, 'city.json');

  return {
    project,
    root,
    dataPath(database) {
      const path = join(root, 'data', database);
      requireSocket(join(path, 'control.sock'));
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
      await mkdir(join(root, 'versions'), { recursive: true, mode: 0o700 });
      await chmod(root, 0o700);
    },
    async keep(version, packageText) {
      const kept = new Set(await readdir(join(root, 'versions')));
      let name = version;
      for (let number = 2; kept.has(name); number += 1) name = `${version}+${number}`;
      const unfinished = join(root, 'versions', `.${name}`);
      await rm(unfinished, { recursive: true, force: true });
      await mkdir(unfinished, { recursive: true, mode: 0o700 });
      // A folder cannot be copied into itself, so its entries are, one by one.
      for (const entry of await readdir(project)) {
        if (notKept.has(entry)) continue;
        await cp(join(project, entry), join(unfinished, entry), {
          recursive: true,
          filter: (source) => !notKept.has(basename(source)),
        });
      }
      await writeFile(join(unfinished, 'package.json'), packageText);
      await rename(unfinished, versionPath(name));
      return name;
    },
    removeVersion: (version) => rm(versionPath(version), { recursive: true, force: true }),
    async versions() {
      const names = await readdir(join(root, 'versions')).catch(() => []);
      const kept = names.filter((name) => !name.startsWith('.'));
      const dated = await Promise.all(
        kept.map(async (name) => ({ name, at: (await stat(versionPath(name))).ctimeMs })),
      );
      return dated.sort((one, other) => one.at - other.at).map(({ name }) => name);
    },
    async readState() {
      const text = await readFile(stateFile, 'utf8').catch(() => null);
      return text === null ? null : (JSON.parse(text) as CityState);
    },
    async writeState(state) {
      await writeFile(`${stateFile}.new`, `${JSON.stringify(state, null, 2)}\n`, { mode: 0o600 });
      await rename(`${stateFile}.new`, stateFile);
    },
  };
}
