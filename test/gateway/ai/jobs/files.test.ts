// The files of a media job when the storage fails or loses their content.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { MediaFile } from '../../../../src/gateway/ai/hub/media-model.ts';
import { jobFiles } from '../../../../src/gateway/ai/jobs/files.ts';
import type { ClaimedJob } from '../../../../src/gateway/ai/jobs/job.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { createLog } from '../../../../src/kernel/log.ts';
import { createRedactor } from '../../../../src/kernel/secrets/secret.ts';
import { directoryStorage, type Storage } from '../../../../src/kernel/storage/storage.ts';

const job = { jobId: 'job_1' } as ClaimedJob;
const file: MediaFile = {
  content: Buffer.from('film'),
  mediaType: 'video/mp4',
  width: 640,
  height: 360,
  durationSeconds: 1,
};

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-job-files-'));
});
afterEach(() => rm(folder, { recursive: true }));

/** The files of jobs in a folder; the replacements simulate a storage that fails. */
function openFiles(replacements: Partial<Storage>) {
  const logLines: string[] = [];
  const files = jobFiles({
    store: { insertMedia: async () => {}, listExpiredMedia: async () => [], deleteMedia: async () => {} },
    storage: { ...directoryStorage(folder), ...replacements },
    clock: systemClock,
    log: createLog({ level: 'info', redactor: createRedactor(), write: (line) => void logLines.push(line) }),
  });
  return { files, logLines };
}

describe('the files of a job', () => {
  test('are refused when their content is missing after the upload', async () => {
    const { files } = openFiles({ open: async () => null });
    await expect(files.store(job, [file])).rejects.toThrow('The storage lacks med_');
  });

  test('report the error of the upload when their deletion fails too', async () => {
    const { files, logLines } = openFiles({
      put: () => Promise.reject(new Error('the disk is full')),
      remove: () => Promise.reject(new Error('the disk is gone')),
    });
    await expect(files.store(job, [file])).rejects.toThrow('the disk is full');
    expect(logLines.join('')).toContain('the disk is gone');
  });
});
