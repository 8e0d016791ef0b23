// The thread that runs the embedded PostgreSQL. PGlite has one session and answers synchronously,
// so it does not run on the server's event loop. A commit is on disk before its answer leaves this file.
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { createGunzip } from 'node:zlib';
import { PGlite } from '@electric-sql/pglite';
import { NodeFS } from '@electric-sql/pglite/nodefs';
import { isSingleExecutable, readBytes, readPieces, assetPath } from '../../assets.ts';
import { findMessages, rowsOf, simpleQuery } from './protocol.ts';
import { rawProtocol } from './raw.ts';
import { createTurns } from './turns.ts';
import { createVacuum } from './vacuum.ts';

/** The start options of the thread. */
export interface EmbeddedStart {
  /** The cluster's folder; created from the seed when it does not exist. */
  cluster: string;
  /** A gzipped tar of an initialized cluster, or null: then initdb runs, which takes seconds. */
  seed: string | null;
  idleInTransactionMs: number;
  /** Interval for checking the size of the WAL since the last checkpoint. */
  checkpointEveryMs: number;
  /** Interval for checking for deleted rows. */
  vacuumEveryMs: number;
}

/** `query` carries whole protocol messages up to a Sync, Flush or simple Query; each gets one `answer`. */
export type ToWorker =
  | { kind: 'query'; peer: number; bytes: Uint8Array }
  | { kind: 'leave'; peer: number }
  | { kind: 'dump' }
  | { kind: 'stop' };

export type FromWorker =
  | { kind: 'ready' }
  | { kind: 'answer'; peer: number; bytes: Uint8Array }
  | { kind: 'notify'; peer: number; bytes: Uint8Array }
  | { kind: 'left'; peer: number }
  | { kind: 'expelled'; peer: number; bytes: Uint8Array }
  | { kind: 'dumped'; bytes: Uint8Array }
  | { kind: 'stopped' };

// PGlite's own list without `-F`, which turns fsync off. `fsync` must be named as the method because the
// default, fdatasync, is an empty call in PGlite's file layer. As much of the log is kept for reuse as is
// written between two checkpoints. 8 MB of buffers cost a tenth of the memory of its default and are no
// slower: the operating system caches the same pages.
const startParams = [
  '--single',
  '-O',
  '-j',
  '-c',
  'search_path=public',
  '-c',
  'exit_on_error=false',
  '-c',
  'log_checkpoints=false',
  '-c',
  'max_worker_processes=0',
  '-c',
  'max_parallel_workers=0',
  '-c',
  'max_parallel_workers_per_gather=0',
  '-c',
  'max_parallel_maintenance_workers=0',
  '-c',
  'io_method=sync',
  '-c',
  'fsync=on',
  '-c',
  'full_page_writes=on',
  '-c',
  'synchronous_commit=on',
  '-c',
  'wal_sync_method=fsync',
  '-c',
  'shared_buffers=8MB',
  '-c',
  'max_wal_size=32MB',
  '-c',
  'timezone=UTC',
];

/** PGlite's folder file system, whose fsync does nothing, with a real fsync. */
class DurableFolder extends NodeFS {
  /**
   * While it returns true, tables and indexes cannot be read, which ends a statement with an error. Files of
   * the transaction status stay readable: PostgreSQL reads them during commits, where an error is its PANIC.
   */
  isInterrupted: (() => boolean) | undefined;

  override async init(...[pg, options]: Parameters<NodeFS['init']>): ReturnType<NodeFS['init']> {
    const preparedModule = await super.init(pg, options);
    const preRun = preparedModule.emscriptenOpts.preRun ?? [];
    (preRun as ((module: EmscriptenModule) => void)[]).push(({ FS, NODEFS }) => {
      const { read } = NODEFS.stream_ops;
      NODEFS.stream_ops.read = (stream, ...range) => {
        if (this.isInterrupted !== undefined && stream.path.includes('/base/') && this.isInterrupted())
          throw new FS.ErrnoError(NODEFS.convertNodeCode({ code: 'EIO' }));
        return read(stream, ...range);
      };
      NODEFS.stream_ops.fsync = (stream) => {
        try {
          fsyncSync(stream.nfd);
          return 0;
        } catch (error) {
          // PostgreSQL has to see the error: a failed fsync of the WAL ends in its PANIC and never
          // in an answer.
          throw new FS.ErrnoError(NODEFS.convertNodeCode(error));
        }
      };
    });
    return { emscriptenOpts: { ...preparedModule.emscriptenOpts, preRun } };
  }
}

interface EmscriptenModule {
  FS: { ErrnoError: new (errno: number) => Error };
  NODEFS: {
    stream_ops: {
      fsync?: (stream: { nfd: number }) => number;
      read(stream: { path: string }, ...range: unknown[]): number;
    };
    convertNodeCode(error: unknown): number;
  };
}

// In single-user mode PostgreSQL makes no checkpoints by itself: the WAL would grow without bound,
// and recovery would read all of it. The check runs only outside of transactions.
const checkpointAboveBytes = 32 * 1024 * 1024;
const checkpointDueQuery = `select from pg_control_checkpoint() where pg_current_wal_insert_lsn() - redo_lsn > ${checkpointAboveBytes}`;

// A statement that arrives during a vacuum waits this long at most.
const maxVacuumWaitMs = 500;
// With more statements than this since the last second there is work, and no vacuum starts.
const quietStatements = 20;

if (parentPort) void serve(parentPort, workerData as EmbeddedStart);

async function serve(port: NonNullable<typeof parentPort>, start: EmbeddedStart): Promise<void> {
  const engine = await openCluster(start);
  let isDumping = false;

  function send(message: FromWorker): void {
    const bytes = 'bytes' in message ? message.bytes : undefined;
    port.postMessage(message, bytes?.buffer instanceof ArrayBuffer ? [bytes.buffer] : []);
  }

  function run(bytes: Uint8Array): Uint8Array {
    const answer = engine.run(bytes);
    // After a PANIC the engine's memory cannot be trusted. The supervisor starts another thread,
    // which recovers from the WAL; no answer was sent for an uncommitted change.
    if (engine.hasPanicked()) process.exit(1);
    return answer;
  }

  const turns = createTurns({
    run,
    send,
    onStatement: () => vacuum.countStatement(),
    idleInTransactionMs: start.idleInTransactionMs,
  });
  const vacuum = startVacuum({
    port,
    receive,
    query: (statement, isInterrupted) =>
      engine.interruptible(isInterrupted, () => run(simpleQuery(statement))),
    isFree: () => turns.isFree() && !isDumping,
    everyMs: start.vacuumEveryMs,
  });
  const checkpointTimer = setInterval(() => {
    if (turns.isFree()) checkpointWhenDue(run);
  }, start.checkpointEveryMs);

  function receive(message: ToWorker): void {
    if (message.kind === 'query') turns.add(message);
    else if (message.kind === 'leave') turns.leave(message.peer);
    else if (message.kind === 'dump') void dump();
    else void stop();
  }

  async function dump(): Promise<void> {
    isDumping = true;
    run(simpleQuery('checkpoint'));
    send({ kind: 'dumped', bytes: await engine.dump() });
    isDumping = false;
  }

  async function stop(): Promise<void> {
    clearInterval(checkpointTimer);
    vacuum.stop();
    turns.stop();
    await engine.close();
    send({ kind: 'stopped' });
    port.close();
  }

  port.on('message', receive);
  send({ kind: 'ready' });
}

function checkpointWhenDue(run: (bytes: Uint8Array) => Uint8Array): void {
  const isDue = findMessages(run(simpleQuery(checkpointDueQuery)), 'D').length > 0;
  if (isDue) run(simpleQuery('checkpoint'));
}

interface IdleVacuum {
  /** The owner calls it with each statement of a peer. */
  countStatement(): void;
  stop(): void;
}

/** Vacuums while there is little work; a message that arrives meanwhile waits 500 ms at most. */
function startVacuum({
  port,
  receive,
  query,
  isFree,
  everyMs,
}: {
  port: NonNullable<typeof parentPort>;
  receive(message: ToWorker): void;
  query(statement: string, isInterrupted: () => boolean): Uint8Array;
  /** Whether no transaction is open. */
  isFree(): boolean;
  everyMs: number;
}): IdleVacuum {
  let statements = 0;
  /** Messages that the check below has taken from the port. */
  const inbox: ToWorker[] = [];

  function runUntilInterrupted(statement: string): (string | null)[][] | null {
    if (inbox.length > 0) return null;
    const deadlineMs = performance.now() + maxVacuumWaitMs;
    const answer = query(statement, () => {
      // Messages are taken without a turn of the event loop, which the statement blocks.
      for (let next; performance.now() > deadlineMs && (next = receiveMessageOnPort(port)) !== undefined;)
        inbox.push((next as { message: ToWorker }).message);
      return inbox.length > 0;
    });
    return findMessages(answer, 'E').length > 0 ? null : rowsOf(answer);
  }

  const vacuum = createVacuum({ query: runUntilInterrupted, nowMs: () => performance.now() }, { everyMs });
  const timer = setInterval(
    () => {
      const isQuiet = statements <= quietStatements;
      statements = 0;
      if (isQuiet && isFree()) vacuum.step();
      inbox.splice(0).forEach(receive);
    },
    Math.min(1_000, everyMs),
  );
  return { countStatement: () => void (statements += 1), stop: () => clearInterval(timer) };
}

async function openCluster({ cluster, seed }: EmbeddedStart) {
  if (!existsSync(cluster)) {
    if (seed) await unpackSeed(seed, cluster);
    else await initialize(cluster);
  }
  let hasPanicked = false;
  const folder = new DurableFolder(cluster);
  const db = await PGlite.create({
    fs: folder,
    startParams,
    ...(await readEngineFiles()),
    onStderr: (line) => {
      if (/\bPANIC:/.test(line)) hasPanicked = true;
      return false;
    },
  });
  return {
    run: rawProtocol(db),
    hasPanicked: () => hasPanicked,
    /**
     * Statements of the work end with an error at their next read of a table once `isInterrupted` is true.
     */
    interruptible<T>(isInterrupted: () => boolean, work: () => T): T {
      folder.isInterrupted = isInterrupted;
      try {
        return work();
      } finally {
        folder.isInterrupted = undefined;
      }
    },
    dump: async () => new Uint8Array(await (await db.dumpDataDir('gzip')).arrayBuffer()),
    close: () => db.close(),
  };
}

/** PGlite finds its files beside its own code, which does not work in the single executable. */
async function readEngineFiles() {
  if (!isSingleExecutable) return {};
  const file = (name: string) => readBytes(assetPath(`packages/@electric-sql/pglite/${name}`));
  const [engine, initdb, data] = await Promise.all([
    file('pglite.wasm'),
    file('initdb.wasm'),
    file('pglite.data'),
  ]);
  return {
    pgliteWasmModule: await WebAssembly.compile(engine as BufferSource),
    initdbWasmModule: await WebAssembly.compile(initdb as BufferSource),
    fsBundle: new Blob([data as BlobPart]),
  };
}

/**
 * Unpacks the seed beside its target and renames it once everything is on disk, so that a killed
 * start leaves nothing incomplete. Works in small pieces: a buffer of a hundred megabytes would
 * stay with the process.
 */
async function unpackSeed(seed: string, cluster: string): Promise<void> {
  const unfinishedFolder = `${cluster}.new`;
  rmSync(unfinishedFolder, { recursive: true, force: true });
  mkdirSync(unfinishedFolder, { mode: 0o700 });
  const paths = [unfinishedFolder];
  let pendingBytes: Buffer = Buffer.alloc(0);
  let file: number | undefined;
  let missingBytes = 0;
  let padding = 0;
  for await (const chunk of readPieces(seed).pipe(
    createGunzip({ chunkSize: 256 * 1024 }),
  ) as AsyncIterable<Buffer>) {
    pendingBytes = pendingBytes.length > 0 ? Buffer.concat([pendingBytes, chunk]) : chunk;
    for (;;) {
      if (file !== undefined) {
        const part = pendingBytes.subarray(0, missingBytes);
        for (let offset = 0; offset < part.length;) offset += writeSync(file, part, offset);
        pendingBytes = pendingBytes.subarray(part.length);
        missingBytes -= part.length;
        if (missingBytes > 0) break;
        closeSync(file);
        file = undefined;
      }
      if (pendingBytes.length < padding + 512) break;
      const entry = parseTarEntry(pendingBytes.subarray(padding, padding + 512));
      if (!entry) break;
      pendingBytes = pendingBytes.subarray(padding + 512);
      padding = (512 - (entry.bytes % 512)) % 512;
      const target = join(unfinishedFolder, entry.name);
      if (!target.startsWith(unfinishedFolder))
        throw new Error(`The seed ${seed} names a file outside of itself: ${entry.name}`);
      paths.push(target);
      if (entry.isFolder) {
        mkdirSync(target, { recursive: true, mode: 0o700 });
      } else {
        file = openSync(target, 'wx', 0o600);
        missingBytes = entry.bytes;
      }
    }
  }
  if (file !== undefined || !existsSync(join(unfinishedFolder, 'PG_VERSION')))
    throw new Error(`The seed ${seed} is not whole.`);
  await syncAll(paths);
  renameSync(unfinishedFolder, cluster);
  syncPath(dirname(cluster));
}

/** The slow way to a first cluster, for a checkout without a seed. */
async function initialize(cluster: string): Promise<void> {
  const unfinishedFolder = `${cluster}.new`;
  rmSync(unfinishedFolder, { recursive: true, force: true });
  mkdirSync(unfinishedFolder, { mode: 0o700 });
  const db = await PGlite.create({
    fs: new DurableFolder(unfinishedFolder),
    startParams,
    ...(await readEngineFiles()),
    initDbStartParams: ['--wal-segsize=1'],
  });
  await db.close();
  renameSync(unfinishedFolder, cluster);
  syncPath(dirname(cluster));
}

/** Several at once: a file system combines concurrent fsyncs, which halves the time. */
async function syncAll(paths: string[]): Promise<void> {
  // Sixteen loops take their paths from one iterator.
  const remainingPaths = paths.values();
  await Promise.all(
    Array.from({ length: 16 }, async () => {
      for (const path of remainingPaths) {
        await using file = await open(path);
        await file.sync();
      }
    }),
  );
}

function syncPath(path: string): void {
  const file = openSync(path, 'r');
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/**
 * Parses one ustar header as PGlite and `tar` write it for a cluster: short names, no links.
 * Undefined at the end.
 */
function parseTarEntry(header: Buffer): { name: string; isFolder: boolean; bytes: number } | undefined {
  if (header[0] === 0) return undefined;
  const text = (start: number, length: number): string =>
    header.toString('latin1', start, start + length).replace(/\0.*$/s, '');
  const prefix = text(257, 5) === 'ustar' ? text(345, 155) : '';
  return {
    name: `${prefix}/${text(0, 100)}`,
    isFolder: header[156] === 0x35,
    bytes: Number.parseInt(text(124, 12), 8) || 0,
  };
}
