// The files of media jobs: bytes in the storage, and a row for each file in the
// database. The row is written before the bytes and deleted after them. So a crash can
// leave a row without bytes, which the cleanup finds, but never bytes without a row.
import { retry } from '../../../kernel/async.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { Storage } from '../../../kernel/storage/storage.ts';
import { id } from '../../../kernel/ids.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { MediaFile, MediaProperties, RemoteMedia } from '../hub/media-model.ts';
import { isTransient } from '../upstream/retry.ts';
import type { ClaimedJob } from './job.ts';
import type { JobsStore, StoredMedia } from './store.ts';

export interface JobFiles {
  /**
   * Stores the files, or none of them when one fails. They are not served
   * before `JobsStore.succeed`.
   */
  store(job: ClaimedJob, files: readonly (MediaFile | RemoteMedia)[]): Promise<StoredMedia[]>;
  delete(mediaIds: readonly string[]): Promise<void>;
  deleteExpired(): Promise<void>;
}

// Retention of a file whose job has not ended: longer than any job takes.
const unfinishedSeconds = 3600;
const maxDownloads = 3;
const downloadRetryMs = 1_000;
const deletionBatch = 200;

interface JobFilesOptions {
  store: Pick<JobsStore, 'insertMedia' | 'listExpiredMedia' | 'deleteMedia'>;
  storage: Storage;
  clock: Pick<Clock, 'sleep'>;
  log: Log;
}

export function jobFiles(options: JobFilesOptions): JobFiles {
  return {
    store: (job, files) => storeAll(options, job, files),
    delete: (mediaIds) => deleteFiles(options, mediaIds),
    deleteExpired: () => deleteExpired(options),
  };
}

async function storeAll(
  options: JobFilesOptions,
  job: ClaimedJob,
  files: readonly (MediaFile | RemoteMedia)[],
): Promise<StoredMedia[]> {
  const media: StoredMedia[] = [];
  const mediaIds: string[] = [];
  try {
    for (const [position, file] of files.entries()) {
      const mediaId = id('med');
      await options.store.insertMedia(job, { mediaId, position, keepSeconds: unfinishedSeconds });
      mediaIds.push(mediaId);
      media.push(await storeBytes(options, mediaId, file));
    }
    return media;
  } catch (error) {
    // Log a failed deletion and throw the job's own error: the regular cleanup deletes the files later.
    await deleteFiles(options, mediaIds).catch((deleteError: unknown) =>
      options.log.error(
        { err: deleteError, jobId: job.jobId, mediaIds },
        'files of a failed job were not deleted',
      ),
    );
    throw error;
  }
}

async function storeBytes(
  options: JobFilesOptions,
  mediaId: string,
  file: MediaFile | RemoteMedia,
): Promise<StoredMedia> {
  const { mediaType, width, height, durationSeconds } =
    'content' in file ? await upload(options, mediaId, file) : await download(options, mediaId, file);
  const storedBytes = await options.storage.open(mediaId);
  if (storedBytes === null) throw new Error(`The storage lacks ${mediaId}, which was just stored in it.`);
  return { mediaId, mediaType, width, height, durationSeconds, bytes: storedBytes.size };
}

async function upload(
  { storage }: JobFilesOptions,
  mediaId: string,
  file: MediaFile,
): Promise<MediaProperties> {
  await storage.put(mediaId, file.content);
  return file;
}

/**
 * Repeats a download whose connection broke: the provider still has the file, and the operator has already
 * paid for it.
 */
async function download(
  { storage, clock }: JobFilesOptions,
  mediaId: string,
  file: RemoteMedia,
): Promise<MediaProperties> {
  await retry(() => storage.put(mediaId, file.open()), {
    clock,
    isRetryable: (error, attempt) => attempt < maxDownloads && isWorthAnotherDownload(error),
    delayMs: () => downloadRetryMs,
  });
  return file.properties();
}

async function deleteFiles({ store, storage }: JobFilesOptions, mediaIds: readonly string[]): Promise<void> {
  for (const mediaId of mediaIds) await storage.remove(mediaId);
  await store.deleteMedia(mediaIds);
}

async function deleteExpired(options: JobFilesOptions): Promise<void> {
  for (;;) {
    const mediaIds = await options.store.listExpiredMedia(deletionBatch);
    await deleteFiles(options, mediaIds);
    if (mediaIds.length < deletionBatch) return;
  }
}

function isWorthAnotherDownload(error: unknown): boolean {
  return error instanceof Problem && (error.code === 'upstream_truncated' || isTransient(error));
}
