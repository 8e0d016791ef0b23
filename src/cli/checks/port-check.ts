// Checks whether a server could listen on a port, and which process holds it otherwise.
import { readdir, readFile, readlink } from 'node:fs/promises';
import { createServer } from 'node:net';
import { callableUrl } from '../../kernel/http/listen.ts';
import { metricsNotice } from '../../kernel/telemetry/metrics-listener.ts';
import { fail, ok, type Finding } from './finding.ts';

/** A port that a Townhall server holds is fine, since the doctor may run while that server runs. */
export async function checkPort(
  name: string,
  { host, port, setting }: { host: string; port: number; setting: string },
): Promise<Finding> {
  const check = `port ${name}`;
  if (port === 0) return ok(check, `Any free port is used, since ${setting} is 0.`);
  const errorCode = await tryPort(host, port);
  switch (errorCode) {
    case undefined:
      return ok(check, `${port} is free.`);
    case 'EACCES':
      return fail(
        check,
        `This user may not open port ${port}.`,
        `Set a port above 1023 with ${setting}, or grant the program CAP_NET_BIND_SERVICE.`,
      );
    case 'EADDRNOTAVAIL':
      return fail(
        check,
        `${host} is not an address of this machine.`,
        `Set one of its addresses, or 0.0.0.0 for all.`,
      );
    case 'EADDRINUSE':
      return checkHeldPort(check, { host, port, setting });
    default:
      return fail(
        check,
        `${host}:${port} cannot be opened (${errorCode}).`,
        `Check ${setting} and the address beside it.`,
      );
  }
}

async function checkHeldPort(
  check: string,
  { host, port, setting }: { host: string; port: number; setting: string },
): Promise<Finding> {
  const holder = await findHolder(port);
  const program = holder === undefined ? 'another program' : `process ${holder.pid} (${holder.name})`;
  if (await isTownhall(callableUrl(host, port)))
    return ok(check, `${port} is held by a running Townhall server, ${program}.`);
  return fail(
    check,
    `Port ${port} is held by ${program}.`,
    `Stop that program, or set another port with ${setting}.`,
  );
}

/** Tries to listen on the port. Returns the error code, or undefined when it works. */
async function tryPort(host: string, port: number): Promise<string | undefined> {
  const probe = createServer();
  return new Promise((resolve) => {
    probe.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'unknown'));
    probe.listen({ host, port, exclusive: true }, () => probe.close(() => resolve(undefined)));
  });
}

/** Whether a gateway, an agent or the listener for the metrics of one answers at the address. */
async function isTownhall(url: string): Promise<boolean> {
  try {
    const response = await fetch(`${url}/health`, { signal: AbortSignal.timeout(1_500) });
    const text = await response.text();
    if (response.status === 404) return text === metricsNotice;
    const body = JSON.parse(text) as { ok?: unknown; status?: unknown };
    return response.headers.has('x-request-id') && (body.ok === true || body.status !== undefined);
  } catch {
    return false;
  }
}

/** The process that listens on a port; on Linux only, and only for processes of the same user. */
async function findHolder(port: number): Promise<{ pid: number; name: string } | undefined> {
  const sockets = await findListeningSockets(port);
  if (sockets.size === 0) return undefined;
  for (const pid of (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name))) {
    for (const handle of await readdir(`/proc/${pid}/fd`).catch(() => [])) {
      const target = await readlink(`/proc/${pid}/fd/${handle}`).catch(() => '');
      if (!sockets.has(target)) continue;
      const name = await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => 'unknown');
      return { pid: Number(pid), name: name.trim() };
    }
  }
  return undefined;
}

/** The sockets that listen on a port, written like the links in /proc/PID/fd: `socket:[INODE]`. */
async function findListeningSockets(port: number): Promise<Set<string>> {
  const hexPort = port.toString(16).toUpperCase().padStart(4, '0');
  const listenState = '0A';
  const sockets = new Set<string>();
  for (const table of ['/proc/net/tcp', '/proc/net/tcp6']) {
    for (const line of (await readFile(table, 'utf8').catch(() => '')).split('\n')) {
      const [, local = '', , state = '', , , , , , inode = ''] = line.trim().split(/\s+/);
      if (state === listenState && local.endsWith(`:${hexPort}`)) sockets.add(`socket:[${inode}]`);
    }
  }
  return sockets;
}
