// The byte stream of one database connection: connects to a PostgreSQL server, with TLS where
// configured, and adds a deadline for answers. postgres.js has none, so an unresponsive server would
// block a caller forever.
import { once } from 'node:events';
import { connect as connectSocket, isIP, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';

export interface ConnectionTarget {
  hosts: readonly string[];
  /** One port for each host. */
  ports: readonly number[];
  /** A Unix socket, used instead of the hosts. */
  path?: string | undefined;
  /**
   * libpq's names: `require`, `prefer`, `allow`, `verify-ca`, `verify-full`; false or `disable` for none. Any
   * other value, such as `true`, means `verify-full`; an object has further options of the TLS connection.
   */
  tls: string | boolean | object;
}

/** The error with which a stream is destroyed when its server stops answering. */
export class UnresponsiveServerError extends Error {
  override readonly name = 'UnresponsiveServerError';
}

/** Connects to the first host that accepts the connection. Throws the last host's error. */
export async function openConnection(target: ConnectionTarget, connectMs: number): Promise<Duplex> {
  if (target.path) return connectTo({ path: target.path }, connectMs);
  let failure: unknown;
  for (const [index, host] of target.hosts.entries()) {
    try {
      const socket = await connectTo(
        { host, port: target.ports[index] ?? target.ports[0] ?? 5432 },
        connectMs,
      );
      return await startTls(socket, { host, tls: target.tls, connectMs });
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}

async function connectTo(
  address: { path: string } | { host: string; port: number },
  connectMs: number,
): Promise<Socket> {
  const socket = connectSocket({ ...address, noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 });
  await withConnectTimeout(socket, connectMs, once(socket, 'connect'));
  return socket;
}

async function startTls(
  socket: Socket,
  { host, tls, connectMs }: { host: string; tls: ConnectionTarget['tls']; connectMs: number },
): Promise<Duplex> {
  if (!tls || tls === 'disable') return socket;
  // SSLRequest: length 8, code 80877103. The server answers with one byte before the protocol begins.
  socket.write(Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]));
  const [answer] = (await withConnectTimeout(socket, connectMs, once(socket, 'data'))) as [Buffer];
  if (answer.length !== 1 || answer[0] !== 0x53) {
    if (answer[0] === 0x4e && (tls === 'prefer' || tls === 'allow')) return socket;
    socket.destroy();
    throw new Error('The database server does not offer TLS.');
  }
  const mustVerify = tls !== 'require' && tls !== 'prefer' && tls !== 'allow';
  const options: ConnectionOptions = {
    socket,
    rejectUnauthorized: mustVerify,
    ...(typeof tls === 'object' ? tls : {}),
  };
  if (!isIP(host)) options.servername = host;
  // verify-ca requires a known issuer and ignores the name in the certificate.
  if (tls === 'verify-ca') options.checkServerIdentity = () => undefined;
  const tlsSocket = connectTls(options);
  socket.on('error', (error) => tlsSocket.destroy(error));
  await withConnectTimeout(tlsSocket, connectMs, once(tlsSocket, 'secureConnect'));
  return tlsSocket;
}

async function withConnectTimeout<T>(stream: Duplex, limitMs: number, event: Promise<T>): Promise<T> {
  const timer = setTimeout(
    () =>
      stream.destroy(
        new UnresponsiveServerError('The database server did not accept the connection in time.'),
      ),
    limitMs,
  );
  try {
    return await event;
  } catch (error) {
    stream.destroy();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Destroys the stream when no byte of an answer arrives for `deadlineMs`. For
 * connections that carry one query at a time.
 */
export function withAnswerDeadline(stream: Duplex, deadlineMs: number): Duplex {
  let timer: NodeJS.Timeout | undefined;
  let tail: Buffer = Buffer.alloc(0);
  const write = stream.write;
  const restartTimer = (): void => {
    clearTimeout(timer);
    timer = setTimeout(
      () => stream.destroy(new UnresponsiveServerError(`The database gave no answer for ${deadlineMs} ms.`)),
      deadlineMs,
    );
  };
  stream.write = function writeAndRestartTimer(this: Duplex, ...parameters: Parameters<typeof write>) {
    restartTimer();
    return write.apply(this, parameters);
  } as typeof write;
  stream.on('data', (bytes: Buffer) => {
    // The last message may arrive in two chunks.
    tail = Buffer.concat([tail, bytes.subarray(-6)]).subarray(-6);
    if (timer === undefined) return;
    if (endsAnswer(tail)) {
      clearTimeout(timer);
      timer = undefined;
    } else {
      restartTimer();
    }
  });
  stream.on('close', () => clearTimeout(timer));
  return stream;
}

/**
 * Whether these last six bytes end an answer: ReadyForQuery, or PortalSuspended of a cursor. Looking at the
 * tail is enough, because rows are in the text format, which has no zero bytes outside of lengths.
 */
function endsAnswer(tail: Buffer): boolean {
  if (tail.length < 6) return false;
  const isReady = tail[0] === 0x5a && tail.readUInt32BE(1) === 5;
  const isSuspended = tail[1] === 0x73 && tail.readUInt32BE(2) === 4;
  return isReady || isSuspended;
}
