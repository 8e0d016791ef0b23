// JOURNAL_PATH: one folder per process that has, or had, a journal. The lock of a
// folder shows whether its process lives.
import { mkdir, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, systemClock } from '../../../kernel/clock.ts';
import { type FolderLock, tryLockFolder } from '../../../kernel/data/embedded/folder-lock.ts';
import { isMissing } from '../../../kernel/file-errors.ts';
import { makeSettingFolder, syncFolder } from '../../../kernel/folder.ts';
import { type MakeId, id } from '../../../kernel/ids.ts';
import type { Log } from '../../../kernel/log.ts';
import { abandonedJournal } from './abandoned-journal.ts';
import { moveAside } from './aside.ts';
import { readGeneration, removeFolder, writeGeneration } from './folder-facts.ts';
import type { AbandonedJournal, Journal, JournalDirectory } from './journal.ts';
import { openJournal } from './open-journal.ts';
import { listSegments, type SegmentFiles, segmentFiles } from './segment-file.ts';

export interface JournalDirectoryOptions {
  /** JOURNAL_PATH. */
  path: string;
  log: Log;
  clock?: Pick<Clock, 'now' | 'monotonicMs' | 'sleep'>;
  /** Called with the duration of each fdatasync. */
  onSync?: (durationMs: number) => void;
  /** Replaces the operations on disk and the segment size of 4 MiB, in tests. */
  files?: SegmentFiles;
  segmentBytes?: number;
  makeId?: MakeId;
}

type Settings = Required<JournalDirectoryOptions>;

const idPattern = /^gwy_[0-9a-z]{26}$/;
// The replay of another process removes a new folder if it sees it before it is locked; try again
// then.
const openAttempts = 3;

export function journalDirectory(options: JournalDirectoryOptions): JournalDirectory {
  const settings: Settings = {
    clock: systemClock,
    onSync: () => undefined,
    files: segmentFiles,
    segmentBytes: 4 * 1024 * 1024,
    makeId: id,
    ...options,
  };
  return {
    open: (generation) => openNew(settings, generation),
    takeAbandoned: () => takeAbandoned(settings),
  };
}

async function openNew(settings: Settings, generation: string): Promise<Journal> {
  await makeSettingFolder('JOURNAL_PATH', settings.path);
  const { journalId, folder, lock } = await createFolder(settings, generation);
  try {
    const journal = await openJournal({ ...settings, journalId, folder, lock });
    await syncFolder(settings.path);
    return journal;
  } catch (error) {
    lock.release();
    throw error;
  }
}

interface LockedFolder {
  journalId: string;
  folder: string;
  lock: FolderLock;
}

async function createFolder({ path, makeId }: Settings, generation: string): Promise<LockedFolder> {
  for (let attempt = 1; attempt <= openAttempts; attempt += 1) {
    const journalId = makeId('gwy');
    const folder = join(path, journalId);
    await mkdir(folder, { mode: 0o700 });
    const lock = await lockOrSkip(folder);
    if (lock === null) continue;
    try {
      await writeGeneration(folder, generation);
      return { journalId, folder, lock };
    } catch (error) {
      lock.release();
      if (!isMissing(error)) throw error;
    }
  }
  throw new Error(
    `Each folder created in ${path} was removed at once: another process deletes folders there.`,
  );
}

async function takeAbandoned(settings: Settings): Promise<AbandonedJournal[]> {
  const { path, log } = settings;
  const journals: AbandonedJournal[] = [];
  const names = await readdir(path).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  for (const journalId of names.filter((name) => idPattern.test(name)).sort()) {
    try {
      const journal = await takeOne(settings, journalId);
      if (journal !== null) journals.push(journal);
    } catch (error) {
      log.error({ err: error, journalId }, 'an abandoned journal could not be taken');
    }
  }
  return journals;
}

/** Null when its process lives, or when the folder was cleared because it names no generation. */
async function takeOne(settings: Settings, journalId: string): Promise<AbandonedJournal | null> {
  const folder = join(settings.path, journalId);
  const lock = await lockOrSkip(folder);
  if (lock === null) return null;
  try {
    const generation = await readGeneration(folder);
    if (generation !== null)
      return abandonedJournal({ ...settings, directory: settings.path, journalId, generation, lock });
    await clearFolderWithoutGeneration(settings, journalId);
  } catch (error) {
    lock.release();
    throw error;
  }
  lock.release();
  return null;
}

/**
 * Clears a folder without a generation: removes it when it has no segments, since its process was
 * killed while creating it, and moves it aside otherwise.
 */
async function clearFolderWithoutGeneration(
  { path, log, clock }: Settings,
  journalId: string,
): Promise<void> {
  const folder = join(path, journalId);
  if ((await listSegments(folder)).length === 0) {
    await removeFolder(folder);
    return;
  }
  log.error({ journalId }, 'a journal does not name the ledger that it belongs to; it is put aside');
  await moveAside(path, journalId, 'damaged', clock.now());
}

/** Null when another process holds the folder, or has removed it meanwhile. */
async function lockOrSkip(folder: string): Promise<FolderLock | null> {
  try {
    return tryLockFolder(folder);
  } catch (error) {
    const isThere = await stat(folder).then(
      () => true,
      () => false,
    );
    if (isThere) throw error;
    return null;
  }
}
