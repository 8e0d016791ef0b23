// A journal in use: when its lines are on disk, and what happens when the disk fails.
import { readdir } from 'node:fs/promises';
import { describe, expect, test, vi } from 'vitest';
import type { SegmentFiles } from '../../../../src/gateway/credits/journal/segment-file.ts';
import { failingFiles, ioError, noSpace } from './failing-files.ts';
import { checkpointLine, finalLine, openJournalWorld, readCharges, sentLine } from './world.ts';

/** The files, and the number of attempts to create one. */
function countCreates(files: SegmentFiles): { files: SegmentFiles; creates: () => number } {
  let creates = 0;
  const create: SegmentFiles['create'] = (path, bytes) => {
    creates += 1;
    return files.create(path, bytes);
  };
  return { files: { ...files, create }, creates: () => creates };
}

const usageIds = (charges: readonly { usageId: string }[]): string[] => charges.map(({ usageId }) => usageId);

describe('append', () => {
  test('numbers the lines from one', async () => {
    const world = await openJournalWorld();
    const journal = await world.open();
    expect([journal.append(sentLine('a')), journal.append(finalLine('a'))]).toEqual([1, 2]);
    await journal.close();
  });

  test('writes the lines of a turn at once', async () => {
    const world = await openJournalWorld();
    const { files, writes } = failingFiles();
    const journal = await world.open({ files });
    for (const usageId of ['a', 'b', 'c']) journal.append(sentLine(usageId));
    await journal.sync(3);
    expect(writes).toHaveLength(1);
    await journal.close();
  });
});

describe('sync', () => {
  test('covers all waiting lines with one fdatasync', async () => {
    const world = await openJournalWorld();
    const { files, syncs } = failingFiles();
    const journal = await world.open({ files });
    const seqs = ['a', 'b', 'c', 'd'].map((usageId) => journal.append(finalLine(usageId)));
    await Promise.all(seqs.map((seq) => journal.sync(seq)));
    expect(syncs).toHaveLength(1);
    await journal.close();
  });

  test('has one fdatasync in flight', async () => {
    const world = await openJournalWorld();
    const { files, syncs } = failingFiles();
    const journal = await world.open({ files });
    const firstSync = journal.sync(journal.append(finalLine('a')));
    await vi.waitFor(() => expect(syncs).toHaveLength(1));
    const laterSyncs = ['b', 'c', 'd'].map((usageId) => journal.sync(journal.append(finalLine(usageId))));
    await Promise.all([firstSync, ...laterSyncs]);
    expect(syncs).toHaveLength(2);
    await journal.close();
  });

  test('resolves at once for a line on disk', async () => {
    const world = await openJournalWorld();
    const { files, syncs } = failingFiles();
    const journal = await world.open({ files });
    await journal.sync(journal.append(finalLine('a')));
    await journal.sync(1);
    expect(syncs).toHaveLength(1);
    await journal.close();
  });
});

describe('a failed fdatasync', () => {
  test('moves the lines to a new segment', async () => {
    const world = await openJournalWorld();
    const { files, errors, syncs } = failingFiles();
    const journal = await world.open({ files });
    await journal.sync(journal.append(finalLine('a')));
    Object.assign(errors, { datasync: ioError, onlyFile: 1 });
    await journal.sync(journal.append(finalLine('b')));
    expect(syncs).toEqual([1, 1, 2]);
    await journal.sync(journal.append(finalLine('c')));
    expect(syncs, 'the failed file is not synced again').toEqual([1, 1, 2, 2]);
    expect(journal.health).toBe('ok');
    expect(usageIds(await readCharges(journal))).toEqual(['a', 'b', 'c']);
    await journal.close();
    expect(usageIds(await readCharges(await world.take()))).toEqual(['a', 'b', 'c']);
  });

  test('moves lines that no call waited for too', async () => {
    const world = await openJournalWorld();
    const { files, errors, syncs } = failingFiles();
    const journal = await world.open({ files });
    journal.append(sentLine('a', 9n));
    Object.assign(errors, { datasync: ioError, onlyFile: 1 });
    await journal.sync(journal.append(finalLine('b')));
    expect(syncs).toEqual([1, 2]);
    await journal.close();
    expect(await readCharges(await world.take())).toMatchObject([
      { seq: 2, usageId: 'b' },
      { seq: 3, usageId: 'a', credits: 9n },
    ]);
  });
});

describe('a failed write', () => {
  test('moves the lines to a new segment', async () => {
    const world = await openJournalWorld();
    const { files, errors, writes, syncs } = failingFiles();
    const journal = await world.open({ files });
    await journal.sync(journal.append(finalLine('a')));
    Object.assign(errors, { write: noSpace, onlyFile: 1 });
    await journal.sync(journal.append(finalLine('b')));
    expect(writes).toEqual([1, 1, 2]);
    expect(syncs).toEqual([1, 2]);
    await journal.close();
    expect(usageIds(await readCharges(await world.take()))).toEqual(['a', 'b']);
  });
});

describe('a disk that cannot store a new segment either', () => {
  test('rejects the sync with 503', async () => {
    const world = await openJournalWorld();
    const { files, errors } = failingFiles();
    const journal = await world.open({ files });
    Object.assign(errors, { datasync: ioError, create: noSpace });
    await expect(journal.sync(journal.append(finalLine('a')))).rejects.toMatchObject({
      status: 503,
      code: 'journal_unavailable',
    });
    expect(journal.health).toBe('failed');
    await journal.close();
  });

  test('fails the journal when the new segment cannot be synced', async () => {
    const world = await openJournalWorld();
    const { files, errors, syncs } = failingFiles();
    const journal = await world.open({ files });
    errors.datasync = ioError;
    await expect(journal.sync(journal.append(finalLine('a')))).rejects.toMatchObject({ status: 503 });
    expect(syncs).toEqual([1, 2]);
    expect(journal.health).toBe('failed');
    await journal.close();
  });

  test('refuses to send further calls', async () => {
    const world = await openJournalWorld();
    const { files, errors } = failingFiles();
    const journal = await world.open({ files });
    journal.append(sentLine('a'));
    Object.assign(errors, { write: noSpace, create: noSpace });
    await expect(journal.sync(journal.append(sentLine('b')))).rejects.toMatchObject({ status: 503 });
    expect(() => journal.append(sentLine('c'))).toThrow('Charges cannot be recorded');
    expect(journal.append(checkpointLine('a', 5n)), 'a checkpoint is dropped').toBe(2);
    expect(journal.append(finalLine('a')), 'a final line is held').toBe(3);
    await journal.close();
  });

  test('is retried every five seconds with all held lines', async () => {
    const world = await openJournalWorld();
    const disk = failingFiles();
    const { errors } = disk;
    const { files, creates } = countCreates(disk.files);
    const journal = await world.open({ files });
    await journal.sync(journal.append(finalLine('a')));
    Object.assign(errors, { datasync: ioError, create: noSpace });
    await expect(journal.sync(journal.append(finalLine('b')))).rejects.toMatchObject({ status: 503 });
    const seq = journal.append(finalLine('c'));
    const createsBefore = creates();
    await vi.waitFor(() => {
      world.clock.advance(5_000);
      expect(creates()).toBeGreaterThan(createsBefore);
    });
    expect(journal.health).toBe('failed');
    Object.assign(errors, { datasync: null, create: null });
    await vi.waitFor(() => {
      world.clock.advance(5_000);
      expect(journal.health).toBe('ok');
    });
    await journal.sync(seq);
    await journal.close();
    expect(usageIds(await readCharges(await world.take()))).toEqual(['a', 'b', 'c']);
  });
});

describe('a full disk', () => {
  test('is tried for the next segment every five seconds', async () => {
    const world = await openJournalWorld();
    const disk = failingFiles();
    const { errors } = disk;
    const { files, creates } = countCreates(disk.files);
    const journal = await world.open({ files });
    // A segment of 64 KiB has room for about 130 of these lines; the next one is prepared from the middle on.
    const fill = async () => {
      for (let line = 0; line < 40; line += 1) await journal.sync(journal.append(finalLine(`use_${line}`)));
    };
    await fill();
    errors.create = noSpace;
    const createsBefore = creates();
    await fill();
    expect(creates()).toBe(createsBefore + 1);
    world.clock.advance(5_000);
    await fill();
    expect(creates()).toBe(createsBefore + 2);
    expect(journal.health).toBe('ok');
    errors.create = null;
    await journal.close();
  });

  test('leaves no full segment open', async () => {
    const world = await openJournalWorld();
    const { files, errors } = failingFiles();
    let openFiles = 0;
    const countingFiles: SegmentFiles = {
      ...files,
      async create(path, bytes) {
        const file = await files.create(path, bytes);
        openFiles += 1;
        return {
          ...file,
          close(length) {
            openFiles -= 1;
            return file.close(length);
          },
        };
      },
    };
    const journal = await world.open({ files: countingFiles });
    errors.create = noSpace;
    // More lines than the first segment has room for.
    const fill = async () => {
      for (let line = 0; line < 200; line += 1) await journal.sync(journal.append(finalLine(`use_${line}`)));
    };
    await expect(fill()).rejects.toMatchObject({ status: 503 });
    await vi.waitFor(() => expect(openFiles).toBe(0));
    errors.create = null;
    await journal.close();
  });
});

describe('segments', () => {
  // A segment of these tests has 64 KiB, room for about 130 final lines.
  const manyIds = Array.from({ length: 400 }, (_, index) => `use_${index}`);

  test('are followed by a new one when full', async () => {
    const world = await openJournalWorld();
    const journal = await world.open();
    for (const usageId of manyIds) await journal.sync(journal.append(finalLine(usageId)));
    expect((await world.segments(journal)).length).toBeGreaterThan(2);
    expect(usageIds(await readCharges(journal))).toEqual(manyIds);
    expect(usageIds(await readCharges(journal, 300))).toEqual(manyIds.slice(300));
    await journal.close();
  });

  test('are deleted ten minutes after all of their lines are applied', async () => {
    const world = await openJournalWorld();
    const journal = await world.open();
    for (const usageId of manyIds) await journal.sync(journal.append(finalLine(usageId)));
    const segmentsBefore = await world.segments(journal);
    journal.markApplied(200);
    world.clock.advance(10 * 60_000 - 1);
    expect(await world.segments(journal)).toEqual(segmentsBefore);
    world.clock.advance(1);
    await vi.waitFor(async () => expect(await world.segments(journal)).toEqual(segmentsBefore.slice(1)));
    journal.markApplied(400);
    world.clock.advance(10 * 60_000);
    await vi.waitFor(async () => expect(await world.segments(journal)).toEqual(segmentsBefore.slice(-1)));
    await journal.close();
  });

  test('copy the lines of open calls to a later segment', async () => {
    const world = await openJournalWorld();
    const journal = await world.open();
    journal.append(sentLine('long', 5n));
    journal.append(checkpointLine('long', 70n));
    for (const usageId of manyIds) await journal.sync(journal.append(finalLine(usageId)));
    const segmentsBefore = await world.segments(journal);
    journal.markApplied(402);
    await vi.waitFor(async () => {
      world.clock.advance(10 * 60_000);
      expect(await world.segments(journal)).not.toContain(segmentsBefore[0]);
    });
    await journal.close();
    const charges = await readCharges(await world.take());
    expect(charges.at(-1)).toMatchObject({ usageId: 'long', credits: 70n });
  });
});

describe('close', () => {
  test('syncs lines that no call waited for', async () => {
    const world = await openJournalWorld();
    const { files, syncs } = failingFiles();
    const journal = await world.open({ files });
    journal.append(finalLine('a'));
    await journal.close();
    expect(syncs).toHaveLength(1);
    expect(usageIds(await readCharges(await world.take()))).toEqual(['a']);
  });

  test('removes a journal without a line', async () => {
    const world = await openJournalWorld();
    await (await world.open()).close();
    expect(await readdir(world.path)).toEqual([]);
  });
});
