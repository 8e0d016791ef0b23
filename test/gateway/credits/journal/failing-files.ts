// A disk that fails on demand, for journals.
import { segmentFiles, type SegmentFiles } from '../../../../src/gateway/credits/journal/segment-file.ts';

export const noSpace = Object.assign(new Error('no space'), { code: 'ENOSPC' });
export const ioError = Object.assign(new Error('I/O error'), { code: 'EIO' });

export interface DiskErrors {
  /** The number of the only file that fails; null for all. */
  onlyFile: number | null;
  write: Error | null;
  datasync: Error | null;
  create: Error | null;
}

/**
 * Real files that fail with the given errors. `writes` and `syncs` list the file of each operation.
 */
export function failingFiles(): {
  files: SegmentFiles;
  errors: DiskErrors;
  writes: number[];
  syncs: number[];
} {
  const errors: DiskErrors = { onlyFile: null, write: null, datasync: null, create: null };
  const writes: number[] = [];
  const syncs: number[] = [];
  let fileCount = 0;
  const files: SegmentFiles = {
    ...segmentFiles,
    async create(path, bytes) {
      if (errors.create !== null) throw errors.create;
      const file = await segmentFiles.create(path, bytes);
      fileCount += 1;
      const number = fileCount;
      const isFailing = (): boolean => errors.onlyFile === null || errors.onlyFile === number;
      return {
        ...file,
        write(block, position) {
          writes.push(number);
          if (errors.write !== null && isFailing()) throw errors.write;
          file.write(block, position);
        },
        async datasync() {
          syncs.push(number);
          if (errors.datasync !== null && isFailing()) throw errors.datasync;
          await file.datasync();
        },
      };
    },
  };
  return { files, errors, writes, syncs };
}
