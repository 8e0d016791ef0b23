// The cluster of the embedded PostgreSQL on its disk: PGlite over a folder with a real fsync, and the
// creation of a new cluster from the seed.
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
import { createGunzip } from 'node:zlib';
import { PGlite } from '@electric-sql/pglite';
import { NodeFS } from '@electric-sql/pglite/nodefs';
import { isSingleExecutable, readBytes, openByteStream } from '../../assets.ts';
import { isWithin } from '../../folder.ts';
import { engineFile } from './engine.ts';
import { rawProtocol } from './raw.ts';
import { readTar } from './tar.ts';

const settings = [
  'search_path=public',
  'exit_on_error=false',
  'log_checkpoints=false',
  'max_worker_processes=0',
  'max_parallel_workers=0',
  'max_parallel_workers_per_gather=0',
  'max_parallel_maintenance_workers=0',
  'io_method=sync',
  'fsync=on',
  'full_page_writes=on',
  'synchronous_commit=on',
  // The default, fdatasync, does nothing in PGlite's file layer.
  'wal_sync_method=fsync',
  // A tenth of the memory of PGlite's default, and no slower: the operating system caches the same
  // pages.
  'shared_buffers=8MB',
  // PostgreSQL keeps as much WAL for reuse as it writes between two checkpoints.
  'max_wal_size=32MB',
  'timezone=UTC',
];

// PGlite's own start parameters without `-F`, which turns fsync off.
const startParams = ['--single', '-O', '-j', ...settings.flatMap((setting) => ['-c', setting])];

/** PGlite's folder file system, whose fsync does nothing, with a real fsync. */
class DurableFolder extends NodeFS {
  /**
   * While this returns true, every read of a table or an index fails, so that the running statement ends with
   * an error. The files of the transaction status stay readable: PostgreSQL reads them during commits, where
   * an error causes a PANIC.
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
          // PostgreSQL has to see the error: after a failed fsync of the WAL it must PANIC instead of
          // confirming a commit.
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

export interface ClusterOptions {
  /** The cluster's folder; created from the seed when it does not exist. */
  cluster: string;
  /** A gzipped tar of an initialized cluster, or null: then initdb runs, which takes seconds. */
  seed: string | null;
}

/** The options of the thread that opens the cluster. */
export interface ClusterThread extends ClusterOptions {
  /** The code of `pglite.wasm`. */
  engineModule: WebAssembly.Module;
}

export async function openCluster({ cluster, seed, engineModule }: ClusterThread) {
  if (!existsSync(cluster)) {
    await createFolder(cluster, (folder) =>
      seed ? unpackSeed(seed, folder) : initialize(folder, engineModule),
    );
  }
  let hasPanicked = false;
  const folder = new DurableFolder(cluster);
  const db = await PGlite.create({
    fs: folder,
    startParams,
    pgliteWasmModule: engineModule,
    ...(await readEngineFiles()),
    onStderr: (line) => {
      if (/\bPANIC:/.test(line)) hasPanicked = true;
      return false;
    },
  });
  return {
    run: rawProtocol(db),
    /** After a PANIC the engine's memory cannot be trusted. */
    hasPanicked: () => hasPanicked,
    /**
     * Runs the work. Once `isInterrupted` returns true, its running statement fails at the next read of a
     * table.
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
  const [initdb, data] = await Promise.all([
    readBytes(engineFile('initdb.wasm')),
    readBytes(engineFile('pglite.data')),
  ]);
  return {
    initdbWasmModule: await WebAssembly.compile(initdb as BufferSource),
    fsBundle: new Blob([data as BlobPart]),
  };
}

/**
 * Fills a folder beside its final path and renames it once everything is on disk, so that a killed
 * start leaves no incomplete cluster.
 */
async function createFolder(path: string, fill: (folder: string) => Promise<void>): Promise<void> {
  const unfinishedFolder = `${path}.new`;
  rmSync(unfinishedFolder, { recursive: true, force: true });
  mkdirSync(unfinishedFolder, { mode: 0o700 });
  await fill(unfinishedFolder);
  renameSync(unfinishedFolder, path);
  syncPath(dirname(path));
}

/** Works in small pieces: a buffer of a hundred megabytes would stay with the process. */
async function unpackSeed(seed: string, folder: string): Promise<void> {
  const paths = [folder];
  let file: number | undefined;
  const closeFile = (): void => {
    if (file !== undefined) closeSync(file);
    file = undefined;
  };
  try {
    for await (const part of readTar(openByteStream(seed).pipe(createGunzip({ chunkSize: 256 * 1024 })))) {
      if (part.kind === 'content') {
        writeAll(file, part.bytes);
        continue;
      }
      closeFile();
      const target = join(folder, part.name);
      if (!isWithin(target, folder))
        throw new Error(`The seed ${seed} contains a path outside of the cluster: ${part.name}`);
      paths.push(target);
      if (part.kind === 'folder') mkdirSync(target, { recursive: true, mode: 0o700 });
      else file = openSync(target, 'wx', 0o600);
    }
  } finally {
    closeFile();
  }
  if (!existsSync(join(folder, 'PG_VERSION')))
    throw new Error(`The seed ${seed} is incomplete: it has no PG_VERSION.`);
  await syncAll(paths);
}

function writeAll(file: number | undefined, bytes: Uint8Array): void {
  if (file === undefined) throw new Error('The seed has content without a file.');
  for (let offset = 0; offset < bytes.length;) offset += writeSync(file, bytes, offset);
}

/** Creates a cluster with initdb, which takes seconds; for a checkout without a seed. */
async function initialize(folder: string, engineModule: WebAssembly.Module): Promise<void> {
  const db = await PGlite.create({
    fs: new DurableFolder(folder),
    startParams,
    pgliteWasmModule: engineModule,
    ...(await readEngineFiles()),
    initDbStartParams: ['--wal-segsize=1'],
  });
  await db.close();
}

/** Syncs several paths at once: the file system combines concurrent fsyncs, which halves the time. */
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
