// Builds and starts the image of a new project from the Dockerfile of `townhall deploy --render`,
// with Debian's buildah on a Debian root made by debootstrap, in place of the base image of a
// registry. Needs root, debootstrap, buildah, and the packages of Debian and npm. Exits 1 on a
// violated promise. Takes three minutes.
//
//   npm run pack && node test/deploy/image.ts [--packages DIR]
import { execFileSync, spawn } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { freePort } from '../support/free-port.ts';

const repository = join(import.meta.dirname, '../..');
const baseImage = 'localhost/node-base:24';
const startDeadlineMs = 60_000;
const { values: options } = parseArgs({
  options: { packages: { type: 'string', default: join(repository, 'build/packages') } },
});
const folder = mkdtempSync(join(tmpdir(), 'townhall-image-'));
const storeOptions = [
  '--root',
  join(folder, 'store'),
  '--runroot',
  join(folder, 'run'),
  '--storage-driver',
  'vfs',
];

function run(program: string, words: readonly string[], cwd = folder): string {
  return execFileSync(program, words, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }).trim();
}

const buildah = (...words: string[]): string => run('buildah', [...storeOptions, ...words]);

/** A Debian root with Node, npm and the user "node", as in the official image. */
function createBaseImage(): void {
  const root = join(folder, 'root');
  run('debootstrap', ['--variant=minbase', 'bookworm', root, 'http://deb.debian.org/debian']);
  cpSync(process.execPath, join(root, 'usr/local/bin/node'));
  const npm = dirname(dirname(realpathSync(run('sh', ['-c', 'command -v npm']))));
  cpSync(npm, join(root, 'usr/local/lib/node_modules/npm'), { recursive: true });
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(root, 'usr/local/bin/npm'));
  run('chroot', [root, '/usr/sbin/useradd', '--create-home', '--shell', '/bin/bash', 'node']);
  trustAuthorities(root);
  const container = buildah('from', 'scratch');
  buildah('add', '--quiet', container, root, '/');
  buildah('config', '--env', 'NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt', container);
  buildah('commit', '--quiet', '--rm', container, baseImage);
}

// The authorities of this machine, which a proxy before the registry may need.
function trustAuthorities(root: string): void {
  const certificates = '/etc/ssl/certs/ca-certificates.crt';
  if (!existsSync(certificates)) return;
  mkdirSync(join(root, 'etc/ssl/certs'), { recursive: true });
  cpSync(certificates, join(root, certificates));
  mkdirSync(join(root, 'usr/local/etc'), { recursive: true });
  writeFileSync(join(root, 'usr/local/etc/npmrc'), `cafile=${certificates}\n`);
}

function buildImage(): void {
  const cli = join(repository, 'src/cli/main.ts');
  run(process.execPath, [cli, 'init', 'demo']);
  run(process.execPath, [cli, 'deploy', '--render', 'deployment'], join(folder, 'demo'));
  const tarballs = readdirSync(options.packages).filter((name) =>
    /^townhall-(gateway-)?\d.*\.tgz$/.test(name),
  );
  const packages = tarballs.map((name) => `/packages/${name}`).join(' ');
  const isolation = ['--isolation', 'chroot', '--network', 'host'];
  const volume = ['--volume', `${options.packages}:/packages:ro`];
  const baseArgument = ['--build-arg', `BASE_IMAGE=${baseImage}`];
  const packageArgument = ['--build-arg', `TOWNHALL_PACKAGE=${packages}`];
  const source = ['--file', 'demo/deployment/Dockerfile', '--tag', 'demo', 'demo'];
  buildah('bud', ...isolation, ...volume, ...baseArgument, ...packageArgument, ...source);
}

interface Container {
  url: string;
  stop(): Promise<void>;
}

async function startContainer(id: string): Promise<Container> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const words = ['run', '--isolation', 'chroot', '--network', 'host', '--env', `PORT=${port}`, id];
  const command = ['--', 'townhall', 'gateway', '--project', '/city'];
  const child = spawn('buildah', [...storeOptions, ...words, ...command], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const deadline = performance.now() + startDeadlineMs;
  while (
    !(await fetch(`${url}/ready`).then(
      (response) => response.ok,
      () => false,
    ))
  ) {
    if (child.exitCode !== null || performance.now() > deadline)
      throw new Error('The container does not answer.');
    await sleep(200);
  }
  return {
    url,
    async stop() {
      for (const pid of serverProcesses()) process.kill(pid, 'SIGTERM');
      await ended;
    },
  };
}

/** The processes of the gateway in the container. */
function serverProcesses(): number[] {
  const lines = run('sh', ['-c', 'pgrep -f "^node .*townhall gateway --project /city" || true']).split('\n');
  return lines.filter((line) => line !== '').map(Number);
}

function check(promise: string, isKept: boolean): void {
  console.log(`${isKept ? 'held  ' : 'BROKEN'} ${promise}`);
  if (!isKept) process.exitCode = 1;
}

try {
  console.log('debootstrap and the base image …');
  createBaseImage();
  console.log('the image …');
  buildImage();
  const id = buildah('from', 'localhost/demo');
  const first = await startContainer(id);
  const answer = await fetch(`${first.url}/v1/hello/world`);
  check('the service of the project answers', (await answer.text()).includes('Hello, world.'));
  const [pid = 0] = serverProcesses();
  const user = run('ps', ['-o', 'uid=', '-p', String(pid)]);
  check(`the gateway runs as an unprivileged user (${user})`, Number(user) >= 1_000);
  const login = await fetch(`${first.url}/v1/accounts/providers?bureau_id=local`);
  check('the local login is off', login.ok && !(await login.text()).includes('"local"'));
  await first.stop();
  const second = await startContainer(id);
  check('it starts again on its data', (await fetch(`${second.url}/health`)).ok);
  await second.stop();
} finally {
  rmSync(folder, { recursive: true, force: true });
}
