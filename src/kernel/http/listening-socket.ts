// A listening socket that this process owns but does not accept from. Its child processes accept
// connections, even two of them at a time; while none does, connections wait in the kernel's queue. So
// no connection is refused while one version replaces another.
import net from 'node:net';
import util from 'node:util';
import { callableUrl } from './listen.ts';

export interface ListeningSocket {
  /** The file descriptor that child processes inherit. */
  readonly fd: number;
  readonly host: string;
  readonly port: number;
  close(): void;
}

/**
 * The handle by which Node's cluster module shares sockets. It is not in the public types; a public
 * net.Server would accept connections in this process.
 */
interface Handle {
  readonly fd: number;
  getsockname(target: { port?: number }): number;
  close(): void;
}
type MakeHandle = (
  address: string,
  port: number,
  family: 4 | 6,
  fd: number,
  flags: number,
) => Handle | number;

/**
 * Binds the address; clients can connect once a child process listens. Throws when the address is not
 * available.
 */
export function openListeningSocket(host: string, port: number): ListeningSocket {
  const makeHandle = (net as unknown as { _createServerHandle?: MakeHandle })._createServerHandle;
  if (makeHandle === undefined)
    throw new Error(
      `Node ${process.version} cannot share a listening socket; use the version that Townhall was tested with.`,
    );
  const address = bindAddress(host);
  const family = net.isIP(address);
  if (family === 0) throw new Error(`The host "${host}" must be an address such as 0.0.0.0 or 127.0.0.1.`);
  const handle = makeHandle(address, port, family as 4 | 6, -1, 0);
  if (typeof handle === 'number')
    throw new Error(`The address ${host}:${port} is not available: ${describeError(handle)}.`);
  const bound: { port?: number } = {};
  // Node reports a port in use only here, not when it binds.
  const failure = handle.getsockname(bound);
  if (failure !== 0) {
    handle.close();
    throw new Error(`The address ${host}:${port} is not available: ${describeError(failure)}.`);
  }
  return { fd: handle.fd, host, port: bound.port ?? port, close: () => handle.close() };
}

/** The URL under which callers on this machine reach an address that is bound here. */
export function localUrl(host: string, port: number): string {
  return callableUrl(bindAddress(host), port);
}

// Node may resolve the name to an IPv6 address, which the IPv4 socket would not serve.
function bindAddress(host: string): string {
  return host === 'localhost' ? '127.0.0.1' : host;
}

function describeError(code: number): string {
  const sentences: Record<string, string> = {
    EADDRINUSE: 'another program listens there',
    EACCES: 'this user may not listen there',
    EADDRNOTAVAIL: 'this machine does not have that address',
  };
  const name = util.getSystemErrorName(code);
  return sentences[name] ?? name;
}
