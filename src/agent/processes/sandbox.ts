// Runs programs in a sandbox with bubblewrap: in namespaces of their own, with a writable workspace, a
// read-only system and nothing else. If bubblewrap cannot be used, programs are refused unless the
// operator has turned the sandbox off.
import { execFile } from 'node:child_process';
import { accessSync, constants, statSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { promisify } from 'node:util';
import { refusal } from '../refusal.ts';
import { sandboxArguments, sandboxHome, sandboxPath, type SandboxView } from './sandbox-arguments.ts';
import { leavesFolder, realPathOf, resolvePaths, type ResolvedPaths } from './real-paths.ts';

/** Rights of a program beyond the defaults; `false` runs it without a sandbox. */
export type SandboxSettings = false | { network?: boolean; read?: string[]; write?: string[] };

/** Paths of a workspace with special treatment, collected just before a program starts. */
export interface SandboxedPaths {
  /** Absolute paths that appear empty. */
  hidden: readonly string[];
  /** Absolute paths that cannot be changed. */
  readOnly: readonly string[];
  /** Absolute paths of folders that cannot be moved or removed; their content may be changed. */
  unmovable?: readonly string[];
}

export interface SandboxedProgram {
  command: readonly string[];
  /** The whole environment. */
  env: Record<string, string>;
  /**
   * The working folder of the spawned command; inside a sandbox the program runs in
   * the folder of its options.
   */
  folder: string;
  isSandboxed: boolean;
}

export interface ProgramOptions {
  command: readonly string[];
  /** Absolute and without links; the workspace of the sandbox by default. */
  workspace?: string;
  /** Absolute. */
  folder: string;
  /** Search path, language and time zone of the agent; in a sandbox its home and user are left out. */
  env: Readonly<Record<string, string>>;
  /** Environment variables from the program's own configuration. */
  ownEnv?: Readonly<Record<string, string>> | undefined;
  settings?: SandboxSettings | undefined;
  paths: SandboxedPaths;
}

export interface Sandbox {
  /**
   * Why no program can be confined; undefined when programs are confined, or run without a sandbox by choice.
   */
  readonly missing: string | undefined;
  /** Whether the operator has turned it off. */
  readonly isOff: boolean;
  /** Throws a Problem when the program would need a sandbox that is missing. */
  prepare(program: ProgramOptions): SandboxedProgram;
}

export interface SandboxOptions {
  /** The workspace of programs that name none; absolute and without links. */
  workspace: string;
  /** Absolute paths that no program may see. */
  hidden: readonly string[];
  /** Further absolute paths that programs may read. Links in them are followed once, at the start. */
  read: readonly string[];
  isOff: boolean;
  /** The search path for bubblewrap. */
  path: string | undefined;
}

const remedy =
  'Install bubblewrap 0.8 or newer and allow this user to create namespaces, or start with ' +
  '--unsafe-shell to run programs without a sandbox.';

/** Tries bubblewrap once. Never throws: a failure is stored as the reason. */
export async function openSandbox({ read, ...otherOptions }: SandboxOptions): Promise<Sandbox> {
  if (otherOptions.isOff) return { missing: undefined, isOff: true, prepare: prepareUnconfined };
  let sharedPaths: ResolvedPaths;
  try {
    sharedPaths = resolvePaths(read, [otherOptions.workspace]);
  } catch (error) {
    return missingSandbox(error instanceof Error ? error.message : String(error));
  }
  const options: OpenOptions = { ...otherOptions, shared: sharedPaths };
  const bubblewrap = findBubblewrap(options.path);
  if (bubblewrap === undefined) return missingSandbox(`The program bwrap is not installed. ${remedy}`);
  const attempts = await attemptSandbox(bubblewrap, options);
  if ('reason' in attempts)
    return missingSandbox(`bubblewrap does not work here: ${attempts.reason} ${remedy}`);
  const { disablesUserNamespaces } = attempts;
  return {
    missing: undefined,
    isOff: false,
    prepare: (program) =>
      program.settings === false
        ? prepareUnconfined(program)
        : confine(program, { ...options, bubblewrap, disablesUserNamespaces }),
  };
}

function missingSandbox(reason: string): Sandbox {
  return {
    missing: reason,
    isOff: false,
    prepare(program) {
      if (program.settings === false) return prepareUnconfined(program);
      throw refusal(reason);
    },
  };
}

function prepareUnconfined({ command, env, ownEnv, folder }: ProgramOptions): SandboxedProgram {
  return { command, env: { ...env, ...ownEnv }, folder, isSandboxed: false };
}

interface OpenOptions extends Omit<SandboxOptions, 'read'> {
  /** The files that all programs may read. */
  shared: ResolvedPaths;
}

function confine(
  { command, folder, env, ownEnv, settings, paths, ...program }: ProgramOptions,
  options: OpenOptions & { bubblewrap: string; disablesUserNamespaces: boolean },
): SandboxedProgram {
  const { network = false, read = [], write = [] } = settings === false ? {} : (settings ?? {});
  const { shared } = options;
  const { workspace = options.workspace } = program;
  const [file = ''] = command;
  const writablePlaces = resolvePaths(write, [workspace]);
  const changeablePaths = [workspace, ...writablePlaces.paths];
  // Do not mount a path that leaves the workspace through a link in it, such as the python of a virtual
  // environment: the link exists in the sandbox, and works if its target is visible there.
  const ownPaths = [folder, file].filter((path) => isAbsolute(path) && !leavesFolder(path, changeablePaths));
  const readablePlaces = resolvePaths([...read, ...ownPaths], changeablePaths);
  const links = [...shared.links, ...writablePlaces.links, ...readablePlaces.links];
  const view: SandboxView = {
    workspace,
    read: [...shared.paths, ...readablePlaces.paths],
    write: writablePlaces.paths,
    links,
    hidden: [...options.hidden, ...paths.hidden],
    readOnly: paths.readOnly,
    unmovable: paths.unmovable ?? [],
    hasNetwork: network,
    disablesUserNamespaces: options.disablesUserNamespaces,
  };
  const visiblePaths = [...shared.paths, ...read, ...write, ...links.map(({ path }) => path)];
  const ownFolder = realPathOf(folder) ?? folder;
  const args = [...sandboxArguments(view, ownFolder), ...command];
  requireLength(args);
  const { HOME: _home, USER: _user, LOGNAME: _login, SHELL: _shell, TMPDIR: _temporary, ...otherEnv } = env;
  return {
    command: [options.bubblewrap, ...args],
    env: { ...otherEnv, PATH: sandboxPath(env['PATH'] ?? '', visiblePaths), HOME: sandboxHome, ...ownEnv },
    folder: '/',
    isSandboxed: true,
  };
}

// Linux accepts a quarter of the stack for all arguments, which is 2 MiB almost everywhere.
const maxArgumentBytes = 1_500_000;
// bubblewrap's own limit is 9,000.
const maxArguments = 8_900;

function requireLength(args: readonly string[]): void {
  const bytes = args.reduce((sum, argument) => sum + Buffer.byteLength(argument) + 1, 0);
  if (bytes <= maxArgumentBytes && args.length <= maxArguments) return;
  throw refusal(
    `The program needs ${args.length} arguments of ${bytes} bytes for its sandbox, more than the ` +
      `${maxArguments} arguments or ${maxArgumentBytes} bytes that are possible: there are too many or too ` +
      'long paths of protected files and secrets in the workspace. Choose a smaller folder.',
  );
}

// Relative entries of a search path could select a program from the current folder.
function findBubblewrap(path = '/usr/bin:/bin'): string | undefined {
  return path
    .split(':')
    .filter((entry) => isAbsolute(entry))
    .map((entry) => join(entry, 'bwrap'))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return statSync(file).isFile();
      } catch {
        return false;
      }
    });
}

const executeFile = promisify(execFile);

// Some containers forbid `--disable-userns`. The sandbox then works without it: it is one defence of several.
async function attemptSandbox(
  bubblewrap: string,
  { workspace, hidden, shared }: OpenOptions,
): Promise<{ disablesUserNamespaces: boolean } | { reason: string }> {
  let reason = '';
  for (const disablesUserNamespaces of [true, false]) {
    const view = {
      workspace,
      hidden,
      read: shared.paths,
      write: [],
      links: shared.links,
      readOnly: [],
      unmovable: [],
      hasNetwork: false,
      disablesUserNamespaces,
    };
    try {
      await executeFile(bubblewrap, [...sandboxArguments(view, workspace), '/bin/sh', '-c', ':'], {
        timeout: 10_000,
        env: {},
        cwd: '/',
      });
      return { disablesUserNamespaces };
    } catch (error) {
      reason ||= firstLine(String((error as { stderr?: unknown }).stderr ?? error));
    }
  }
  return { reason };
}

function firstLine(text: string): string {
  const line = (text.trim().split('\n')[0] ?? '').slice(0, 300);
  return line.endsWith('.') ? line : `${line}.`;
}
