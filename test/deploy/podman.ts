// Debian's podman with its own store, networks and limits, and a base image like the official image of Node:
// a Debian root that debootstrap makes, with Node, npm and the user "node".
import { execFile } from 'node:child_process';
import { existsSync, statfsSync } from 'node:fs';
import { chmod, cp, mkdir, mkdtemp, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { promisify } from 'node:util';

const execute = promisify(execFile);
const overlayFileSystem = 0x794c7630;

/** Why the tests of containers cannot run on this machine, or null when they can. */
export function missingForContainers(): string | null {
  if (process.getuid?.() !== 0) return 'this requires root';
  const missing = ['podman', 'podman-compose', 'runc', 'debootstrap'].filter((name) => !isInPath(name));
  return missing.length === 0 ? null : `not installed: ${missing.join(', ')}`;
}

function isInPath(name: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((folder) => existsSync(join(folder, name)));
}

export interface CommandResult {
  stdout: string;
  stderr: string;
}

export interface Podman {
  /** Removed by `close`. */
  folder: string;
  /** Rejects with the output when the command fails. */
  run(...words: string[]): Promise<CommandResult>;
  /** Runs podman-compose in a folder. */
  compose(
    directory: string,
    env: Readonly<Record<string, string>>,
    ...words: string[]
  ): Promise<CommandResult>;
  /** Removes all containers, and the folder. */
  close(): Promise<void>;
}

export async function openPodman(): Promise<Podman> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-podman-'));
  // podman-compose calls podman, so the settings are in files that both read, instead of options.
  const settings = {
    CONTAINERS_CONF: join(folder, 'containers.conf'),
    CONTAINERS_STORAGE_CONF: join(folder, 'storage.conf'),
    // Only this format stores the health check of an image.
    BUILDAH_FORMAT: 'docker',
    // Without systemd, no health check runs by itself. A test runs each one.
    DISABLE_HC_SYSTEMD: 'true',
  };
  await writeFile(settings.CONTAINERS_CONF, containersConf(folder));
  await writeFile(settings.CONTAINERS_STORAGE_CONF, storageConf(folder));
  const start = (program: string, words: readonly string[], options: object): Promise<CommandResult> =>
    execute(program, words, { maxBuffer: 64 * 2 ** 20, timeout: 600_000, ...options });
  const run = (...words: string[]): Promise<CommandResult> =>
    start('podman', words, { cwd: folder, env: { ...process.env, ...settings } });
  return {
    folder,
    run,
    compose: (directory, env, ...words) =>
      start('podman-compose', words, { cwd: directory, env: { ...process.env, ...settings, ...env } }),
    async close() {
      await run('rm', '--all', '--force', '--time', '5');
      // podman mounts its store on itself and leaves it so.
      for (const path of await mountsBelow(folder)) await execute('umount', [path]);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** The mount points below the folder, the longest path first, so that each can be unmounted. */
async function mountsBelow(folder: string): Promise<string[]> {
  const lines = (await readFile('/proc/self/mounts', 'utf8')).split('\n');
  const paths = lines.map((line) => line.split(' ')[1] ?? '').filter((path) => path.startsWith(`${folder}/`));
  return paths.sort((a, b) => b.length - a.length);
}

// podman's default limits exceed what a machine that is itself a container allows. runc works with both
// versions of control groups, also with both at once.
function containersConf(folder: string): string {
  return `[containers]
default_ulimits = ["nofile=8192:8192", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "${folder}/tmp"
[network]
network_backend = "netavark"
network_config_dir = "${folder}/networks"
`;
}

// An overlay file system cannot be mounted in a folder that is in an overlay file system.
function storageConf(folder: string): string {
  const driver = statfsSync(folder).type === overlayFileSystem ? 'vfs' : 'overlay';
  return `[storage]
driver = "${driver}"
graphroot = "${folder}/store"
runroot = "${folder}/run"
`;
}

/** Makes the base image with the name `image`, which takes a minute. */
export async function createBaseImage({ folder, run }: Podman, image: string): Promise<void> {
  const root = join(folder, 'root');
  await execute('debootstrap', ['--variant=minbase', 'bookworm', root], { maxBuffer: 64 * 2 ** 20 });
  await cp(process.execPath, join(root, 'usr/local/bin/node'));
  await chmod(join(root, 'usr/local/bin/node'), 0o755);
  const npmCommand = (await execute('sh', ['-c', 'command -v npm'])).stdout.trim();
  const npm = dirname(dirname(await realpath(npmCommand)));
  await cp(npm, join(root, 'usr/local/lib/node_modules/npm'), { recursive: true });
  await symlink('../lib/node_modules/npm/bin/npm-cli.js', join(root, 'usr/local/bin/npm'));
  await execute('chroot', [root, '/usr/sbin/useradd', '--create-home', '--shell', '/bin/bash', 'node']);
  await trustAuthorities(root);
  const archive = join(folder, 'root.tar');
  await execute('tar', ['--create', '--file', archive, '--directory', root, '.']);
  await run('import', archive, image);
  await rm(root, { recursive: true });
  await rm(archive);
}

// Installs the certificate authorities of this machine, since a proxy before the npm registry may need them.
async function trustAuthorities(root: string): Promise<void> {
  const certificates = '/etc/ssl/certs/ca-certificates.crt';
  if (!existsSync(certificates)) return;
  await mkdir(join(root, 'etc/ssl/certs'), { recursive: true });
  await cp(certificates, join(root, certificates));
  await mkdir(join(root, 'usr/local/etc'), { recursive: true });
  await writeFile(join(root, 'usr/local/etc/npmrc'), `cafile=${certificates}\n`);
}
