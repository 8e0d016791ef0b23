// The embedded PostgreSQL from the server's thread: data folder, lock and worker. One process uses a
// folder at a time, and every commit is durable.
import { chmodSync, existsSync } from 'node:fs';
import { getCompileCacheDir } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import type { Duplex } from 'node:stream';
import { setFlagsFromString } from 'node:v8';
import { assetExists, assetPath, isSingleExecutable, readBytes, startThread } from '../../assets.ts';
import { createSerializer } from '../../async.ts';
import { errorText } from '../../error-text.ts';
import { makeFolder } from '../../folder.ts';
import { engineFile } from './engine.ts';
import { lockFolder } from './folder-lock.ts';
import { createPeers } from './peers.ts';
import type { EmbeddedStart, EmbeddedThread, FromWorker, ToWorker } from './worker.ts';
import type { Log } from '../../log.ts';

export interface EmbeddedOptions {
  /** The data folder; created if it does not exist. Only its owner may read it. */
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
   * Opens a stream to the engine. With `isPatient` its statements may keep the engine busy for longer than
   * `stuckMs` (peers.ts), for example for a migration.
   */
  dial(options?: { isPatient?: boolean }): Promise<Duplex>;
  /**
   * The whole cluster as a gzipped tar, usable as a seed. All other queries wait while its files are read;
   * the tar is compressed beside them.
   */
  dump(): Promise<Uint8Array>;
  /**
   * Stops the thread after a checkpoint and releases the folder. Open streams are destroyed. A second call
   * waits for the first.
   */
  close(): Promise<void>;
}

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
    options.log.info({ folder, from: start.seed ? 'seed' : 'initdb' }, 'creating the embedded database');
  }
  // V8's optimizing compiler takes 550 MB for the engine's largest functions, without a measurable
  // speedup. The first flag implies the others only on the command line.
  for (const flag of ['--liftoff-only', '--no-wasm-tier-up', '--no-wasm-dynamic-tiering'])
    setFlagsFromString(flag);
  try {
    return await supervise(start, { log: options.log, release: () => lock.release() });
  } catch (cause) {
    lock.release();
    const message = `The embedded database in ${options.path} cannot be opened: ${errorText(cause)}.`;
    throw new Error(message, { cause });
  }
}

/** Whether the folder has a cluster, so that opening it creates nothing. */
export function hasCluster(path: string): boolean {
  return existsSync(clusterOf(resolve(path)));
}

function clusterOf(folder: string): string {
  return join(folder, 'pg');
}

/** Starts the engine, and restarts it at the next call after its thread has exited. */
async function supervise(
  options: EmbeddedStart,
  { log, release }: { log: Log; release: () => void },
): Promise<Embedded> {
  let engine: Promise<Engine> | undefined;
  let closePromise: Promise<void> | undefined;
  // The engine's thread answers one dump at a time.
  const serializeDumps = createSerializer();

  function start(): Promise<Engine> {
    const startedEngine = startEngine(options);
    startedEngine.then(
      async ({ exit }) => {
        const reason = await exit;
        engine = undefined;
        if (closePromise === undefined)
          log.error({ reason }, 'the embedded database stopped; the next query starts it again');
      },
      () => {
        engine = undefined;
      },
    );
    return startedEngine;
  }

  function runningEngine(): Promise<Engine> {
    if (closePromise !== undefined) throw new Error('The embedded database is closed.');
    return (engine ??= start());
  }

  async function stop(): Promise<void> {
    try {
      await (await engine?.catch(() => undefined))?.stop();
    } finally {
      release();
    }
  }

  await runningEngine();
  return {
    dial: async ({ isPatient = false } = {}) => (await runningEngine()).dial(isPatient),
    dump: () => serializeDumps(async () => (await runningEngine()).dump()),
    close: () => (closePromise ??= stop()),
  };
}

interface Engine {
  dial(isPatient: boolean): Duplex;
  dump(): Promise<Uint8Array>;
  stop(): Promise<void>;
  /** Resolves with the reason once the thread has exited. */
  exit: Promise<string>;
}

// The thread loads its code from this process's compile cache. In a checkout the cached code has no
// types any more, so the thread does not load Node's type stripper, which takes 11 MB.
function compileCacheEnvironment(): Record<string, string> {
  // Node returns the folder of its version, which lies in the configured folder.
  const folder = isSingleExecutable ? undefined : getCompileCacheDir();
  return folder === undefined ? {} : { NODE_COMPILE_CACHE: dirname(folder) };
}

let engineModule: Promise<WebAssembly.Module> | undefined;

/**
 * The engine's code, compiled once for all databases of the process: the local edition has two, and
 * each would otherwise validate and compile the same 9 MB.
 */
async function loadEngineModule(): Promise<WebAssembly.Module> {
  engineModule ??= readBytes(engineFile('pglite.wasm')).then((bytes) =>
    WebAssembly.compile(bytes as BufferSource),
  );
  try {
    return await engineModule;
  } catch (error) {
    engineModule = undefined;
    throw error;
  }
}

async function startEngine(start: EmbeddedStart): Promise<Engine> {
  const worker = startThread('src/kernel/data/embedded/worker', {
    workerData: { ...start, engineModule: await loadEngineModule() } satisfies EmbeddedThread,
    env: compileCacheEnvironment(),
    execArgv: [],
    name: 'embedded-postgres',
    resourceLimits: { maxYoungGenerationSizeMb: 6 },
  });
  const ready = Promise.withResolvers<void>();
  const exit = Promise.withResolvers<string>();
  let dump = Promise.withResolvers<Uint8Array>();
  let failure: Error | undefined;
  // A rejection must not count as unhandled when nothing waits for the promise.
  ready.promise.catch(() => undefined);
  dump.promise.catch(() => undefined);

  const send = (message: ToWorker): void =>
    worker.postMessage(message, 'bytes' in message ? [message.bytes.buffer as ArrayBuffer] : []);
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
    const reason = failure ?? new Error(`The embedded database's thread exited with code ${code}.`);
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

function builtSeed(): string | null {
  const seed = assetPath('build/pglite-seed.tgz');
  return assetExists(seed) ? seed : null;
}
