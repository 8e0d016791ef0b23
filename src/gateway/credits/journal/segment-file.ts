// Files of segments. A segment is filled with zeros and synced before its first line, so that
// fdatasync of a line writes neither a new length nor new blocks, and a full disk is detected
// before a call depends on it.
import { fdatasync, writeSync } from 'node:fs';
import { type FileHandle, open, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { syncFolder } from '../../../kernel/folder.ts';

export interface SegmentFile {
  /** Writes all bytes into the page cache of the system. Throws the system's error. */
  write(bytes: Uint8Array, position: number): void;
  datasync(): Promise<void>;
  /** Closes the file, truncated to `length` if that is known: the end of its last line. */
  close(length?: number): Promise<void>;
}

/** The operations on disk that can fail; a test replaces them. */
export interface SegmentFiles {
  /**
   * Creates a file of zeros; resolves once it is on disk. Replaces an earlier file of this name.
   */
  create(path: string, bytes: number): Promise<SegmentFile>;
  /** Renames a file and syncs its folder. */
  publish(from: string, to: string): Promise<void>;
}

const suffix = '.segment';

/** Segments are named after the number of their first line, so that they sort by it. */
export function segmentName(firstSeq: number): string {
  return String(firstSeq).padStart(16, '0') + suffix;
}

export interface SegmentPath {
  firstSeq: number;
  name: string;
  path: string;
}

/** The segments of a folder in the order of their lines. */
export async function listSegments(folder: string): Promise<SegmentPath[]> {
  const names = (await readdir(folder)).filter((name) => /^\d{16}\.segment$/.test(name)).sort();
  return names.map((name) => ({ firstSeq: Number.parseInt(name, 10), name, path: join(folder, name) }));
}

const zeros = Buffer.alloc(256 * 1024);

export const segmentFiles: SegmentFiles = {
  async create(path, bytes) {
    const handle = await open(path, 'w', 0o600);
    try {
      for (let offset = 0; offset < bytes; offset += zeros.length)
        await handle.write(zeros, 0, Math.min(zeros.length, bytes - offset), offset);
      await handle.sync();
    } catch (error) {
      await handle.close().catch(() => undefined);
      await rm(path, { force: true }).catch(() => undefined);
      throw error;
    }
    return segmentFile(handle);
  },
  async publish(from, to) {
    await rename(from, to);
    await syncFolder(join(to, '..'));
  },
};

function segmentFile(handle: FileHandle): SegmentFile {
  return {
    write(bytes, position) {
      for (let offset = 0; offset < bytes.length;)
        offset += writeSync(handle.fd, bytes, offset, bytes.length - offset, position + offset);
    },
    datasync: () =>
      new Promise((resolve, reject) => {
        fdatasync(handle.fd, (error) => (error === null ? resolve() : reject(error)));
      }),
    async close(length) {
      try {
        if (length !== undefined) await handle.truncate(length);
      } finally {
        await handle.close();
      }
    },
  };
}
