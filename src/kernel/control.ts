// The control socket in the data folder, by which commands call a server that holds the embedded
// database. Its mode is 0600; a connection carries one JSON line each way. While a handler runs,
// the server writes a space every five seconds; JSON allows white space before the answer.
import { once } from 'node:events';
import { chmod, lstat, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { asRecord } from './json-value.ts';
import type { Log } from './log.ts';
import { Problem } from './problem.ts';

export type ControlHandler = (input: unknown) => Promise<unknown>;

export interface Control {
  /** Finishes running requests, then removes the socket. */
  close(): Promise<void>;
}

export interface ControlOptions {
  log: Log;
  /** The time between two heartbeats; 5 seconds by default. */
  heartbeatMs?: number;
}

type ControlAnswer =
  | { ok: true; result: unknown }
  | { ok: false; error: { kind: Problem['kind']; code: Problem['code']; message: string } };

const maximumLine = 16 * 1024 * 1024;
// Deadline of the request line.
const requestMs = 10_000;
const heartbeatMs = 5_000;
// Deadline of the next byte of the answer. A backup may take longer than that, but a process that
// is stopped or whose event loop is blocked sends no heartbeat.
const silenceMs = 60_000;

/**
 * Serves the handlers at `path`. Replaces the socket of a killed server; throws when a running
 * server listens there.
 */
export async function serveControl(
  path: string,
  handlers: Readonly<Record<string, ControlHandler>>,
  options: ControlOptions,
): Promise<Control> {
  await removeStaleSocket(path);
  const handlersByName = new Map(Object.entries(handlers));
  const openRequests = new Set<Promise<void>>();
  const server = createServer((socket) => {
    const answer = answerRequest(socket, handlersByName, options).finally(() => openRequests.delete(answer));
    openRequests.add(answer);
  });
  const listenEvent = once(server, 'listening');
  // listen() binds before it returns, so this umask applies only to the socket, which no other user can
  // open at any time.
  const previousMask = process.umask(0o177);
  try {
    server.listen(path);
  } finally {
    process.umask(previousMask);
  }
  await listenEvent;
  await chmod(path, 0o600);
  return {
    async close() {
      const closePromise = new Promise((resolve) => server.close(resolve));
      await Promise.allSettled(openRequests);
      await closePromise;
      await rm(path, { force: true });
    },
  };
}

/**
 * Calls the server at `path`. Throws the Problem of its handler, `not_ready` when no server runs
 * there, and an Error when the server sends nothing for `silenceMs`, 60 seconds by default.
 */
export async function callControl(
  path: string,
  name: string,
  input: unknown,
  options: { silenceMs?: number } = {},
): Promise<unknown> {
  const socket = await connectTo(path);
  if (!socket)
    throw new Problem('unavailable', 'not_ready', 'No running server listens at the control socket.');
  const timeoutMs = options.silenceMs ?? silenceMs;
  socket.setTimeout(timeoutMs, () => socket.destroy(silenceError(path, timeoutMs)));
  try {
    socket.write(`${JSON.stringify({ name, input: input ?? null })}\n`);
    const line = await readLine(socket);
    if (line === undefined) throw new Error('The server closed the control socket without an answer.');
    const answer = JSON.parse(line) as ControlAnswer;
    if (answer.ok) return answer.result;
    throw new Problem(answer.error.kind, answer.error.code, answer.error.message);
  } finally {
    socket.destroy();
  }
}

function silenceError(path: string, timeoutMs: number): Error {
  return new Error(
    `The server at ${path} has sent nothing for ${timeoutMs / 1000} seconds and may hang. ` +
      'Look at its log, restart it, and run the command again.',
  );
}

async function answerRequest(
  socket: Socket,
  handlers: ReadonlyMap<string, ControlHandler>,
  { log, heartbeatMs: intervalMs = heartbeatMs }: ControlOptions,
): Promise<void> {
  // An interrupted command closes its socket; that is not an error of the server.
  socket.on('error', () => undefined);
  const timer = setTimeout(() => socket.destroy(), requestMs);
  try {
    const line = await readLine(socket);
    clearTimeout(timer);
    if (line === undefined) return;
    const heartbeat = setInterval(() => socket.write(' '), intervalMs);
    const answer = await handle(line, handlers, log).finally(() => clearInterval(heartbeat));
    await new Promise<void>((resolve) => {
      socket.once('close', () => resolve());
      socket.end(`${JSON.stringify(answer)}\n`, () => resolve());
    });
  } catch (error) {
    log.debug({ err: error }, 'a control connection broke');
  } finally {
    clearTimeout(timer);
    socket.destroy();
  }
}

async function handle(
  line: string,
  handlers: ReadonlyMap<string, ControlHandler>,
  log: Log,
): Promise<ControlAnswer> {
  try {
    const { name, input } = readRequest(line);
    const handler = handlers.get(name);
    if (!handler) throw new Problem('not_found', 'route_not_found', `The server has no control "${name}".`);
    return { ok: true, result: (await handler(input)) ?? null };
  } catch (error) {
    if (error instanceof Problem)
      return { ok: false, error: { kind: error.kind, code: error.code, message: error.message } };
    log.error({ err: error }, 'a control request failed');
    return {
      ok: false,
      error: {
        kind: 'internal',
        code: 'internal_error',
        message: 'The server failed to do this; its log has the reason.',
      },
    };
  }
}

function readRequest(line: string): { name: string; input: unknown } {
  let request: unknown;
  try {
    request = JSON.parse(line);
  } catch (cause) {
    throw new Problem('bad_request', 'invalid_request', 'A control request must be one line of JSON.', {
      cause,
    });
  }
  const { name, input = null } = asRecord(request);
  if (typeof name !== 'string')
    throw new Problem('bad_request', 'invalid_request', 'A control request needs a `name`.');
  return { name, input };
}

/** The first line; undefined when the peer closes before it has sent a whole line. */
async function readLine(socket: Socket): Promise<string | undefined> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    const end = piece.indexOf(0x0a);
    pieces.push(end < 0 ? piece : piece.subarray(0, end));
    bytes += piece.length;
    if (end >= 0) return Buffer.concat(pieces).toString('utf8');
    if (bytes > maximumLine)
      throw new Problem('too_large', 'request_too_large', 'The line on the control socket is too long.');
  }
  return undefined;
}

async function removeStaleSocket(path: string): Promise<void> {
  const existing = await lstat(path).catch(() => undefined);
  if (!existing) return;
  // Check the type first: a plain file refuses connections just like a stale socket.
  if (!existing.isSocket()) throw new Error(`${path} exists and is not a socket.`);
  const socket = await connectTo(path);
  if (socket) {
    socket.destroy();
    throw new Error(`A running server listens at ${path}.`);
  }
  await rm(path, { force: true });
}

/** Undefined when no server listens there. */
function connectTo(path: string): Promise<Socket | undefined> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once('connect', () => resolve(socket));
    socket.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ECONNREFUSED') resolve(undefined);
      else reject(error);
    });
  });
}
