// Starts programs in a sandbox over a workspace that hides its secrets and keeps its protected files
// unchanged. A file that a command creates under a protected name is renamed, so that no other program
// runs or obeys it.
import { randomUUID } from 'node:crypto';
import { lstatSync } from 'node:fs';
import { lstat, rename } from 'node:fs/promises';
import { basename, dirname, join, relative, sep } from 'node:path';
import { isMissing } from '../../../../kernel/file-errors.ts';
import { isWithin } from '../../../../kernel/folder.ts';
import type { Log } from '../../../../kernel/log.ts';
import { startOfText } from '../../../../kernel/start-of-text.ts';
import type { Sandbox, SandboxedProgram, SandboxSettings } from '../../../processes/index.ts';
import { refusal } from '../../../refusal.ts';
import { withFolder, type FolderHandle } from './folder-handle.ts';
import { coverPaths } from './path-budget.ts';
import { createSharedLock } from './shared-lock.ts';
import type { Workspace } from './workspace.ts';
import { makeUsable, type ProtectedEntry, type WorkspaceScan } from './scan.ts';

export interface ProgramRequest {
  command: readonly string[];
  /** The workspace of the program; the agent's workspace by default. */
  workspace?: Workspace | undefined;
  /** The working directory, an absolute path; the workspace by default. */
  folder?: string | undefined;
  /** Environment variables from the program's own configuration. */
  ownEnv?: Readonly<Record<string, string>> | undefined;
  settings?: SandboxSettings | undefined;
}

export interface ProgramRunner {
  sandbox: Sandbox;
  /**
   * Prepares a long-running program, whose new protected files are not renamed. Throws a Problem
   * when a sandbox is required and unavailable.
   */
  prepare(request: ProgramRequest): Promise<SandboxedProgram>;
  /**
   * Runs one command. `execute` must resolve only after all processes of the command have exited, and reject
   * only if the command did not start.
   */
  run<T>(
    request: ProgramRequest & { mayChangeProtected: boolean },
    execute: (program: SandboxedProgram) => Promise<T>,
  ): Promise<{ result: T; renamed: RenamedFile[]; coveredFolders: CoveredFolders }>;
}

/** Folders, relative to the workspace, that were confined as a whole because of too many entries. */
export interface CoveredFolders {
  /** They appeared empty, since they hold secrets. */
  hidden: string[];
  /** They could not be written, since they hold protected files. */
  readOnly: string[];
}

/** A file whose old name needs an approval; both paths are relative to the workspace. */
export interface RenamedFile {
  from: string;
  to: string;
}

const suffix = '.needs-approval';
const maxReadOnly = 1_000;
const maxHidden = 400;

export interface ProgramRunnerOptions {
  sandbox: Sandbox;
  workspace: Workspace;
  /** The environment of all programs; none of the agent's secrets are in it. */
  env: Readonly<Record<string, string>>;
  log?: Pick<Log, 'warn'>;
}

export function createProgramRunner(options: ProgramRunnerOptions): ProgramRunner {
  const lockOf = createLocks();
  return {
    sandbox: options.sandbox,
    prepare: (request) => prepare(options, request),
    run(request, execute) {
      const lock = lockOf(request.workspace ?? options.workspace);
      // A command that may change protected files runs alone; otherwise those files
      // could be attributed to another command.
      const runLocked = request.mayChangeProtected ? lock.runExclusively : lock.runShared;
      return runLocked(() => runCommand(options, request, execute));
    },
  };
}

async function prepare(options: ProgramRunnerOptions, request: ProgramRequest): Promise<SandboxedProgram> {
  const scanBefore = await scan(options, request);
  const paths = { hidden: scanBefore.hidden, readOnly: readOnlyPaths(scanBefore) };
  const { program, coveredFolders } = confine(options, request, { paths, repositoryAccess: 'read' });
  if (coveredFolders.hidden.length + coveredFolders.readOnly.length > 0)
    options.log?.warn(
      { command: request.command[0], ...coveredFolders },
      'folders with too many secrets are empty for a program, and folders with too many protected files are read-only',
    );
  return program;
}

async function runCommand<T>(
  options: ProgramRunnerOptions,
  { mayChangeProtected, ...request }: ProgramRequest & { mayChangeProtected: boolean },
  execute: (program: SandboxedProgram) => Promise<T>,
): Promise<{ result: T; renamed: RenamedFile[]; coveredFolders: CoveredFolders }> {
  const { workspace = options.workspace } = request;
  const scanBefore = await scan(options, request);
  const readOnly = mayChangeProtected ? [] : readOnlyPaths(scanBefore);
  const { program, coveredFolders } = confine(options, request, {
    paths: { hidden: scanBefore.hidden, readOnly },
    repositoryAccess: mayChangeProtected ? 'write' : 'read',
  });
  const result = await execute(program);
  const isChecked = program.isSandboxed && !mayChangeProtected;
  return { result, renamed: isChecked ? await renameNew(workspace, scanBefore) : [], coveredFolders };
}

/** An empty scan if the program runs without a sandbox. */
async function scan(
  options: ProgramRunnerOptions,
  { workspace = options.workspace, settings }: ProgramRequest,
): Promise<WorkspaceScan> {
  const { isOff, missing } = options.sandbox;
  const isConfined = settings !== false && !isOff && missing === undefined;
  return isConfined ? workspace.scan() : { hidden: [], protected: [], configPaths: [], unreadableNames: [] };
}

/** Throws a Problem when the folder of the program is hidden. */
function confine(
  options: ProgramRunnerOptions,
  { command, workspace = options.workspace, folder = workspace.root, ownEnv, settings }: ProgramRequest,
  {
    paths,
    repositoryAccess,
  }: {
    paths: { hidden: readonly string[]; readOnly: readonly string[] };
    repositoryAccess: 'read' | 'write';
  },
): { program: SandboxedProgram; coveredFolders: CoveredFolders } {
  const { coveredFolders, ...limitedPaths } = boundPaths(workspace.root, paths);
  const hiddenFolder = coveredFolders.hidden.find((path) => isWithin(folder, join(workspace.root, path)));
  if (hiddenFolder !== undefined)
    throw refusal(
      `The folder ${hiddenFolder} holds so many secrets that it is hidden as a whole, so no command runs in it.`,
    );
  const program = options.sandbox.prepare({
    command,
    workspace: workspace.root,
    folder,
    env: options.env,
    ownEnv,
    settings: withRepository(settings, workspace, repositoryAccess),
    paths: limitedPaths,
  });
  return { program, coveredFolders };
}

/** One lock for each workspace. */
function createLocks(): (workspace: Workspace) => ReturnType<typeof createSharedLock> {
  const locks = new WeakMap<Workspace, ReturnType<typeof createSharedLock>>();
  return (workspace) => {
    const lock = locks.get(workspace) ?? createSharedLock();
    locks.set(workspace, lock);
    return lock;
  };
}

// git in a worktree reads the repository, which is outside of the worktree. A commit also writes there;
// the same access would let a program change hooks and config.
function withRepository(
  settings: SandboxSettings | undefined,
  { repository }: Workspace,
  access: 'read' | 'write',
): SandboxSettings | undefined {
  if (repository === null || settings === false) return settings;
  return { ...settings, [access]: [...(settings?.[access] ?? []), repository] };
}

/** Throws a Problem when there are too many paths even after folders have replaced them. */
function boundPaths(
  root: string,
  paths: { hidden: readonly string[]; readOnly: readonly string[] },
): { hidden: string[]; readOnly: string[]; unmovable: string[]; coveredFolders: CoveredFolders } {
  const cover = (label: string, paths: readonly string[], max: number) => {
    const coverage = coverPaths(paths, { root, max });
    if (coverage !== undefined) return coverage;
    throw refusal(
      `The workspace holds ${paths.length} ${label} in more than ${max} folders, too many for ` +
        'a sandbox; choose a smaller folder.',
    );
  };
  const hidden = cover('secrets', paths.hidden, maxHidden);
  const readOnly = cover('protected files', paths.readOnly, maxReadOnly);
  const names = (folders: readonly string[]) => folders.map((path) => relative(root, path));
  // git writes to its folder. A folder that covers protected files stays read-only as a whole.
  const isUnmovable = (path: string) => !readOnly.folders.includes(path) && isRepositoryFolder(path);
  return {
    hidden: hidden.paths,
    readOnly: readOnly.paths.filter((path) => !isUnmovable(path)),
    unmovable: readOnly.paths.filter(isUnmovable),
    coveredFolders: { hidden: names(hidden.folders), readOnly: names(readOnly.folders) },
  };
}

function isRepositoryFolder(path: string): boolean {
  return basename(path) === '.git' && lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

// A mount over a link would cover its target.
function readOnlyPaths(scan: WorkspaceScan): string[] {
  return scan.protected.filter(({ target }) => target === null).map(({ path }) => path);
}

/** Renames the protected files that a command created. Throws a Problem when one cannot be renamed. */
async function renameNew(workspace: Workspace, scanBefore: WorkspaceScan): Promise<RenamedFile[]> {
  // The command may have removed the permissions of its folders to keep the scan out.
  await makeUsable(workspace.root);
  const scanAfter = await workspace.scan((folder) => !scanBefore.hidden.includes(folder));
  const renamedFiles: RenamedFile[] = [];
  const failures: string[] = [];
  for (const { path } of newEntries(scanBefore.protected, scanAfter.protected)) {
    const oldPath = relative(workspace.root, path);
    try {
      const name = await withFolder(workspace.root, namesOf(dirname(oldPath)), (folder) =>
        renameEntry(folder, basename(path)),
      );
      renamedFiles.push({ from: oldPath, to: join(dirname(oldPath), name) });
    } catch (cause) {
      // A missing file has moved with its folder, which was renamed before.
      if (!isMissing(cause)) failures.push(oldPath);
    }
  }
  const unreadableFolders = scanAfter.unreadableNames.filter(
    (path) => !scanBefore.unreadableNames.includes(path),
  );
  if (unreadableFolders.length > 0)
    throw refusal(
      'The command created folders whose names are not UTF-8 or whose paths are too long, so that nothing in ' +
        `them can be checked: ${listFolders(unreadableFolders)}. Remove them.`,
    );
  if (failures.length > 0)
    throw refusal(
      'The command created files that other programs run or obey without "protected": true, ' +
        `and they cannot be renamed: ${failures.slice(0, 20).join(', ')}. Remove them.`,
    );
  return renamedFiles;
}

function listFolders(paths: readonly string[]): string {
  return paths
    .slice(0, 20)
    .map((path) => startOfText(path, 200))
    .join(', ');
}

/** Returns the new name. */
async function renameEntry(folder: FolderHandle, name: string): Promise<string> {
  const preferredName = `${name}${suffix}`;
  const isFree = await lstat(folder.entry(preferredName)).then(() => false, isMissing);
  const newName = isFree ? preferredName : `${randomUUID()}${suffix}`;
  // The command may have removed the write permission of its folder.
  await makeUsable(folder.path);
  await rename(folder.entry(name), folder.entry(newName));
  return newName;
}

// An entry is new when its path was free, or when its whole folder was replaced. The mount over an
// entry keeps a command from replacing it, so an entry with a new identity in the same folder comes
// from a program outside of the sandbox, such as an editor. A link has no mount, and a file that
// replaces it may get its inode: a link is the same one only if its path and target are unchanged.
function newEntries(before: readonly ProtectedEntry[], after: readonly ProtectedEntry[]): ProtectedEntry[] {
  const mountEntries = before.filter(({ target }) => target === null);
  const identities = new Set(mountEntries.map(({ identity }) => identity));
  const folders = new Map(mountEntries.map(({ path, folderIdentity }) => [path, folderIdentity]));
  const links = new Set(before.map(linkOf));
  return after.filter((entry) => {
    if (entry.target !== null && links.has(linkOf(entry))) return false;
    return !identities.has(entry.identity) && folders.get(entry.path) !== entry.folderIdentity;
  });
}

function linkOf({ path, folderIdentity, target }: ProtectedEntry): string {
  return JSON.stringify([path, folderIdentity, target]);
}

function namesOf(path: string): string[] {
  return path.split(sep).filter((name) => name !== '' && name !== '.');
}
