// The arguments of bubblewrap for one program: its visible folders and their access
// rights. Every path that is not listed here is absent in the sandbox. Later mounts
// cover earlier ones, so the order is part of the rules.
import { lstatSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { isWithin } from '../../kernel/folder.ts';

/** The file system and network of a sandboxed program; all paths are absolute and without links. */
export interface SandboxView {
  /** A writable folder. */
  workspace: string;
  /** Folders and files that may be read besides those of the system. */
  read: readonly string[];
  /** Folders outside the workspace that may be written. */
  write: readonly string[];
  /** Configured links to these folders and files, to be created in the sandbox. */
  links: readonly { path: string; target: string }[];
  /** Folders and files that appear empty, inside or outside of the workspace. */
  hidden: readonly string[];
  /** Paths in the workspace that may be read, but neither changed nor moved. */
  readOnly: readonly string[];
  /** Folders in the workspace that can be neither moved nor removed, but whose content can be changed. */
  unmovable: readonly string[];
  /** Whether the program may use the host's network, including its loopback addresses. */
  hasNetwork: boolean;
  /** Whether the program may not create user namespaces of its own. */
  disablesUserNamespaces: boolean;
}

const systemFolders = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32'];
// Names of users, hosts and time zones, certificates, and links to the programs that
// Debian's alternatives select. No file here holds a secret, and /etc as a whole is absent.
const systemFiles = [
  '/etc/passwd',
  '/etc/group',
  '/etc/hosts',
  '/etc/nsswitch.conf',
  '/etc/protocols',
  '/etc/services',
  '/etc/localtime',
  '/etc/timezone',
  '/etc/mime.types',
  '/etc/ld.so.cache',
  '/etc/ld.so.conf',
  '/etc/ld.so.conf.d',
  '/etc/alternatives',
  '/etc/ssl/certs',
  '/etc/ssl/openssl.cnf',
  '/etc/ca-certificates',
  '/etc/pki/tls/certs',
];
// An agent that runs as root owns these files, so their permission bits allow writing even without a
// capability: core_pattern, for example, names a program that the kernel runs outside of the sandbox.
const kernelSettings = [
  '/proc/sys',
  '/proc/sysrq-trigger',
  '/proc/irq',
  '/proc/bus',
  '/proc/fs',
  '/proc/driver',
  '/proc/mtrr',
  '/proc/pressure',
];
const kernelSecrets = [
  '/proc/acpi',
  '/proc/asound',
  '/proc/kcore',
  '/proc/keys',
  '/proc/kmsg',
  '/proc/scsi',
  '/proc/timer_list',
  '/proc/vmallocinfo',
];
const temporaryBytes = 1024 * 1024 * 1024;
/** The home folder of a sandboxed program: it is empty at the start and disappears when the program exits. */
export const sandboxHome = '/tmp/home';

/** All arguments before the program itself. */
export function sandboxArguments(view: SandboxView, folder: string): string[] {
  return [
    '--unshare-all',
    // `--unshare-all` alone goes on without a user namespace where the kernel refuses one.
    '--unshare-user',
    ...(view.disablesUserNamespaces ? ['--disable-userns'] : []),
    ...(view.hasNetwork ? ['--share-net'] : []),
    '--die-with-parent',
    '--new-session',
    '--cap-drop',
    'ALL',
    '--hostname',
    'sandbox',
    ...systemFolders.flatMap(bindSystemFolder),
    ...systemFiles.flatMap((path) => ['--ro-bind-try', path, path]),
    // /etc/resolv.conf is often a link into /run, which is absent in the sandbox.
    ...(view.hasNetwork ? bindResolved('/etc/resolv.conf') : []),
    '--proc',
    '/proc',
    ...kernelSettings.flatMap((path) => ['--ro-bind-try', path, path]),
    ...kernelSecrets.flatMap(mask),
    '--dev',
    '/dev',
    '--size',
    String(temporaryBytes),
    '--tmpfs',
    '/tmp',
    '--dir',
    sandboxHome,
    ...view.read.flatMap((path) => ['--ro-bind-try', path, path]),
    ...view.write.flatMap((path) => ['--bind-try', path, path]),
    ...outsideMasks(view),
    ...linkArguments(view),
    '--bind',
    view.workspace,
    view.workspace,
    // Binds a folder onto itself only because a mount point cannot be renamed or removed.
    ...view.unmovable.flatMap((path) => ['--bind-try', path, path]),
    ...view.readOnly.flatMap((path) => ['--ro-bind-try', path, path]),
    ...topmostPaths(view.hidden.filter((path) => isWithin(path, view.workspace))).flatMap(mask),
    '--remount-ro',
    '/',
    '--chdir',
    folder,
    '--',
  ];
}

// Masks of hidden paths outside of the workspace. A mask that contains the workspace is not read-only like
// the others, since bubblewrap creates the mount point of the workspace in it.
function outsideMasks({ hidden, workspace, read, write }: SandboxView): string[] {
  const visiblePaths = [...systemFolders, ...read, ...write];
  return topmostPaths(
    hidden.filter(
      (path) => !isWithin(path, workspace) && visiblePaths.some((folder) => isWithin(path, folder)),
    ),
  ).flatMap((path) => (isWithin(workspace, path) ? ['--tmpfs', path] : mask(path)));
}

// Skips links below visible folders, which exist in the sandbox already.
function linkArguments({ links, read, write, workspace }: SandboxView): string[] {
  const visiblePaths = [...systemFolders, ...read, ...write, workspace];
  const outermostLinks = links.filter(
    ({ path }) =>
      !visiblePaths.some((folder) => isWithin(path, folder)) &&
      !links.some((otherLink) => otherLink.path !== path && isWithin(path, otherLink.path)),
  );
  const targets = new Map(outermostLinks.map(({ path, target }) => [path, target]));
  return [...targets].flatMap(([path, target]) => ['--symlink', target, path]);
}

// Covers a path with an empty folder or with a device that cannot be opened.
function mask(path: string): string[] {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return [];
  return stats.isDirectory()
    ? ['--size', '4096', '--tmpfs', path, '--remount-ro', path]
    : ['--ro-bind', '/dev/null', path];
}

// On systems with a merged /usr, /bin and other folders are links into it.
function bindSystemFolder(path: string): string[] {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return [];
  return stats.isSymbolicLink() ? ['--symlink', readlinkSync(path), path] : ['--ro-bind', path, path];
}

function bindResolved(path: string): string[] {
  try {
    return ['--ro-bind', realpathSync(path), path];
  } catch {
    return [];
  }
}

// A mask within a masked folder would have no mount point.
function topmostPaths(paths: readonly string[]): string[] {
  return paths.filter((path) => !paths.some((otherPath) => otherPath !== path && isWithin(path, otherPath)));
}

/** The search path of sandboxed programs: the system's folders, and those of `path` that they can see. */
export function sandboxPath(path: string, read: readonly string[]): string {
  const visiblePaths = [...systemFolders, ...read];
  const system = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];
  const visibleEntries = path
    .split(':')
    .filter((entry) => isAbsolute(entry) && visiblePaths.some((folder) => isWithin(entry, folder)));
  return [...new Set([...visibleEntries, ...system])].join(':');
}
