// The embedded PostgreSQL from the server's thread: data folder, lock, worker, and streams with the
// PostgreSQL protocol. One process uses a folder at a time, and every commit is durable.
import { chmodSync, existsSync } from 'node:fs';
import { getCompileCacheDir } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { Duplex } from 'node:stream';
import { setFlagsFromString } from 'node:v8';
import { assetExists, assetPath, isSingleExecutable, startThread } from '../../assets.ts';
import { makeFolder } from '../../folder.ts';
import { lockFolder } from './folder-lock.ts';
import type { EmbeddedStart, FromWorker, ToWorker } from './worker.ts';
import type { Log } from '../../log.ts';

export interface EmbeddedOptions {
  /** The data folder; created readable by its owner only when it does not exist. */
  path: string;
  /** The seed of a first start: a gzipped tar of a cluster. The built seed when absent. */
  seed?: string | undefined;
  idleInTransactionMs: number;
  /** Time between checkpoints; 30 seconds when absent. */
  checkpointEveryMs?: number | undefined;
  /** Time between vacuums; 30 seconds when absent. */
  vacuumEveryMs?: number | undefined;
  log: Log;
}

export interface Embedded {
  /**
   * A new stream to the engine. `isPatient` ones may keep it busy longer than `stuckMs`, for example
   * for a migration.
   */
  dial(options?: { isPatient?: boolean }): Promise<Duplex>;
  /** The whole cluster as a gzipped tar, usable as a seed. Blocks all other queries meanwhile. */
  dump(): Promise<Uint8Array>;
  /** Stops the thread after a checkpoint and releases the folder. Open streams are destroyed. */
  close(): Promise<void>;
}

// How long a statement of a disconnected caller may keep the engine busy. A wasm engine cannot
// cancel a statement, but it can be killed and restarted, since all commits are on disk.
const stuckMs = 5_000;

/**
 * Locks the folder and starts the engine; resolves when it answers. Throws a Problem when the
 * folder is locked.
 */
export async function openEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  const folder = resolve(options.path);
  await makeFolder(folder);
  // makeFolder does not change the mode of an existing folder, and the umask may have reduced it.
  chmodSync(folder, 0o700);
  const lock = lockFolder(folder);
  const start: EmbeddedStart = {
    cluster: clusterOf(folder),
    seed: options.seed ?? builtSeed(),
    idleInTransactionMs: options.idleInTransactionMs,
    checkpointEveryMs: options.checkpointEveryMs ?? 30_000,
    vacuumEveryMs: options.vacuumEveryMs ?? 30_000,
  };
  if (!existsSync(start.cluster)) {
    options.log.info({ folder, from: start.seed ? 'seed' : 'initdb' }, 'making the embedded database');
  }
  // V8's optimizing compiler takes 550 MB for the engine's largest functions, without a measurable
  // speedup. The first flag implies the others only on the command line.
  for (const flag of ['--liftoff-only', '--no-wasm-tier-up', '--no-wasm-dynamic-tiering'])
    setFlagsFromString(flag);
  try {
    return await supervise(start, { log: options.log, release: () => lock.release() });
  } catch (cause) {
    lock.release();
    throw new Error(
      `The embedded database in ${options.path} cannot be opened: ${cause instanceof Error ? cause.message : String(cause)}.`,
      { cause },
    );
  }
}

/** Whether the folder has a cluster, so that opening it creates nothing. */
export function hasCluster(path: string): boolean {
  return existsSync(clusterOf(resolve(path)));
}

function clusterOf(folder: string): string {
  return join(folder, 'pg');
}

async function supervise(
  start: EmbeddedStart,
  { log, release }: { log: Log; release: () => void },
): Promise<Embedded> {
  let engine: Promise<Engine> | undefined = startEngine(start);
  let isClosing = false;
  await engine;

  function runningEngine(): Promise<Engine> {
    if (isClosing) throw new Error('The embedded database is closed.');
    engine ??= startEngine(start);
    const current = engine;
    current.then(
      ({ exit }) =>
        exit.then((reason) => {
          if (engine !== current) return;
          engine = undefined;
          if (!isClosing)
            log.error({ reason }, 'the embedded database stopped; the next query starts it again');
        }),
      () => {
        if (engine === current) engine = undefined;
      },
    );
    return current;
  }

  await runningEngine();
  return {
    dial: async ({ isPatient = false } = {}) => (await runningEngine()).dial(isPatient),
    dump: async () => (await runningEngine()).dump(),
    async close() {
      if (isClosing) return;
      isClosing = true;
      try {
        await (await engine?.catch(() => undefined))?.stop();
      } finally {
        release();
      }
    },
  };
}

interface Engine {
  dial(isPatient: boolean): Duplex;
  dump(): Promise<Uint8Array>;
  stop(): Promise<void>;
  /** Resolves with the reason once the thread has ended for any reason. */
  exit: Promise<string>;
}

// The thread compiles from this process's cache. In a checkout the cache has the code
// without its types, and the thread does not load Node's type stripper, which takes 11 MB.
function compileCacheEnvironment(): Record<string, string> {
  // Node's folder is named by its version, within the one that the process set.
  const folder = isSingleExecutable ? undefined : getCompileCacheDir();
  return folder === undefined ? {} : { NODE_COMPILE_CACHE: dirname(folder) };
}

async function startEngine(start: EmbeddedStart): Promise<Engine> {
  const worker = startThread('src/kernel/data/embedded/worker', {
    workerData: start,
    env: compileCacheEnvironment(),
    execArgv: [],
    name: 'embedded-postgres',
    resourceLimits: { maxYoungGenerationSizeMb: 6 },
  });
  const ready = Promise.withResolvers<void>();
  const exit = Promise.withResolvers<string>();
  let dump = Promise.withResolvers<Uint8Array>();
  let failure: Error | undefined;
  // Waiters get the rejection; without a waiter it must not count as unhandled.
  ready.promise.catch(() => undefined);
  dump.promise.catch(() => undefined);

  function send(message: ToWorker): void {
    worker.postMessage(message, 'bytes' in message ? [message.bytes.buffer as ArrayBuffer] : []);
  }
  const peers = createPeers(send, (reason) => {
    failure = reason;
    void worker.terminate();
  });

  worker.on('message', (message: FromWorker) => {
    if (message.kind === 'ready') ready.resolve();
    else if (message.kind === 'dumped') dump.resolve(message.bytes);
    else if (message.kind !== 'stopped') peers.receive(message);
  });
  worker.on('error', (error) => {
    failure = error instanceof Error ? error : new Error(String(error));
  });
  worker.on('exit', (code) => {
    const reason = failure ?? new Error(`The embedded database's thread ended with code ${code}.`);
    peers.end(reason);
    ready.reject(reason);
    dump.reject(reason);
    exit.resolve(reason.message);
  });
  await ready.promise;

  return {
    dial: peers.dial,
    dump() {
      dump = Promise.withResolvers();
      send({ kind: 'dump' });
      return dump.promise;
    },
    async stop() {
      peers.destroyStreams();
      send({ kind: 'stop' });
      await exit.promise;
    },
    exit: exit.promise,
  };
}

interface Peer {
  stream: Duplex;
  isPatient: boolean;
  /** Number of batches without an answer yet. */
  unanswered: number;
}

interface Peers {
  dial(isPatient: boolean): Duplex;
  receive(message: Extract<FromWorker, { peer: number }>): void;
  destroyStreams(reason?: Error): void;
  /** Rejects all waiting callers; the owner calls it when the thread has ended. */
  end(reason: Error): void;
}

/**
 * The streams to one engine, by number. A stream that closes during a statement which then takes
 * too long calls `kill`.
 */
function createPeers(send: (message: ToWorker) => void, kill: (reason: Error) => void): Peers {
  const peers = new Map<number, Peer>();
  /** The timers of streams that closed during a statement, by peer. */
  const killTimers = new Map<number, NodeJS.Timeout>();
  let nextPeer = 1;
  let hasEnded = false;

  function killStuck(number: number): void {
    const hasPatientStatement = [...peers.values()].some((peer) => peer.isPatient && peer.unanswered > 0);
    if (hasPatientStatement) killTimers.set(number, setTimeout(killStuck, stuckMs, number));
    else kill(new Error('A statement whose caller had left was ended with its engine.'));
  }

  function leave(number: number, { unanswered }: Peer): void {
    peers.delete(number);
    send({ kind: 'leave', peer: number });
    if (unanswered > 0 && !hasEnded) killTimers.set(number, setTimeout(killStuck, stuckMs, number));
  }

  function destroyStreams(reason?: Error): void {
    for (const { stream } of peers.values()) stream.destroy(reason);
  }

  return {
    dial(isPatient) {
      const number = nextPeer++;
      const stream = protocolStream({
        send(bytes) {
          peer.unanswered += 1;
          send({ kind: 'query', peer: number, bytes });
        },
        leave: () => leave(number, peer),
      });
      const peer: Peer = { stream, isPatient, unanswered: 0 };
      peers.set(number, peer);
      return stream;
    },
    receive(message) {
      const peer = peers.get(message.peer);
      if (message.kind === 'left') {
        clearTimeout(killTimers.get(message.peer));
        killTimers.delete(message.peer);
      } else if (message.kind === 'notify') {
        for (const [number, { stream }] of peers) if (number !== message.peer) stream.push(message.bytes);
      } else if (peer && message.kind === 'answer') {
        peer.unanswered -= 1;
        if (message.bytes.length > 0) peer.stream.push(message.bytes);
      } else if (peer) {
        // The engine refuses the peer: the bytes are its error.
        peer.stream.push(message.bytes);
        peer.stream.push(null);
        peer.stream.end();
      }
    },
    destroyStreams,
    end(reason) {
      hasEnded = true;
      for (const timer of killTimers.values()) clearTimeout(timer);
      destroyStreams(reason);
    },
  };
}

// AuthenticationOk, BackendKeyData and ReadyForQuery: our own worker needs no login.
const startupAnswer = Buffer.from([
  0x52, 0, 0, 0, 8, 0, 0, 0, 0, 0x4b, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0x5a, 0, 0, 0, 5, 0x49,
]);

/**
 * The client's side: forwards protocol messages in batches that end where the client waits for an
 * answer (Sync, Flush, Query).
 */
function protocolStream({ send, leave }: { send: (batch: Uint8Array) => void; leave: () => void }): Duplex {
  let receivedBytes: Buffer = Buffer.alloc(0);
  let hasStarted = false;
  const stream = new Duplex({
    read() {
      // Answers are pushed as they arrive; the engine has one answer in flight at a time.
    },
    write(chunk: Buffer, _encoding, done) {
      receivedBytes = receivedBytes.length > 0 ? Buffer.concat([receivedBytes, chunk]) : chunk;
      if (!hasStarted && receivedBytes.length >= 4 && receivedBytes.length >= receivedBytes.readUInt32BE(0)) {
        hasStarted = true;
        receivedBytes = receivedBytes.subarray(receivedBytes.readUInt32BE(0));
        // Not within the write: postgres.js drops what it writes while it is being answered.
        setImmediate(() => stream.push(startupAnswer));
      }
      if (hasStarted) sendBatches();
      done();
    },
    final(done) {
      stream.push(null);
      done();
    },
    destroy(error, done) {
      leave();
      done(error);
    },
  });
  function sendBatches(): void {
    let end = 0;
    for (let offset = 0; offset + 5 <= receivedBytes.length;) {
      const next = offset + 1 + receivedBytes.readUInt32BE(offset + 1);
      if (next > receivedBytes.length) break;
      if (endsBatch.has(receivedBytes[offset] ?? 0)) end = next;
      offset = next;
    }
    if (end === 0) return;
    // A copy, because the buffer is transferred to the worker.
    send(new Uint8Array(receivedBytes.subarray(0, end)));
    receivedBytes = receivedBytes.subarray(end);
  }
  // postgres.js sends Terminate only to a stream whose readyState is open.
  Object.defineProperty(stream, 'readyState', { get: () => (stream.destroyed ? 'closed' : 'open') });
  return stream;
}

const endsBatch = new Set([...'SHQ'].map((letter) => letter.charCodeAt(0)));

function builtSeed(): string | null {
  const seed = assetPath('build/pglite-seed.tgz');
  return assetExists(seed) ? seed : null;
}
