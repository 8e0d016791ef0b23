// Journals that were put aside: the operator lists, restores or discards them.
import { readFile, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { discardAside, listAside, restoreFromAside } from '../../../../src/gateway/credits/journal/aside.ts';
import { finalLine, type JournalWorld, openJournalWorld, readCharges, sentLine } from './world.ts';

/** Puts a journal with one charge and one unfinished call aside; resolves with its name. */
async function leaveAside(world: JournalWorld): Promise<string> {
  const journal = await world.open();
  await journal.sync(journal.append(finalLine('a', 46n)));
  await journal.sync(journal.append(sentLine('b')));
  await journal.close();
  await (await world.take()).putAside('other_generation');
  return journal.journalId;
}

describe('listAside', () => {
  test('reports the content of a journal and its reason', async () => {
    const world = await openJournalWorld();
    const name = await leaveAside(world);
    expect(await listAside(world.path)).toEqual([
      {
        name,
        reason: 'other_generation',
        at: '1970-01-01T00:00:00.000Z',
        generation: 'gen-1',
        charges: 1,
        credits: 46n,
        unfinished: 1,
        isDamaged: false,
      },
    ]);
  });

  test('returns an empty list when nothing was put aside', async () => {
    const world = await openJournalWorld();
    expect(await listAside(world.path)).toEqual([]);
  });
});

describe('restoreFromAside', () => {
  test('gives the journal to the current ledger under a new id', async () => {
    const world = await openJournalWorld();
    const name = await leaveAside(world);
    const journalId = await restoreFromAside(world.path, name, { generation: 'gen-2', usageDays: 400 });
    const journal = await world.take();
    expect(journalId).not.toBe(name);
    expect(journal).toMatchObject({ journalId, generation: 'gen-2' });
    expect(await readCharges(journal)).toHaveLength(2);
    expect(await listAside(world.path)).toEqual([]);
  });

  test('refuses a copy of a damaged segment', async () => {
    const world = await openJournalWorld();
    const journal = await world.open();
    for (const usageId of ['a', 'b', 'c']) await journal.sync(journal.append(finalLine(usageId)));
    await journal.close();
    const path = join(world.path, journal.journalId, '0000000000000001.segment');
    const bytes = await readFile(path);
    bytes.fill(0, 100, 110);
    await writeFile(path, bytes);
    const abandonedJournal = await world.take();
    await readCharges(abandonedJournal);
    abandonedJournal.unlock();
    const [copy] = await listAside(world.path);
    expect(copy).toMatchObject({ name: `${journal.journalId}-1`, reason: 'damaged', charges: 2 });
    await expect(
      restoreFromAside(world.path, `${journal.journalId}-1`, { generation: 'gen-2', usageDays: 400 }),
    ).rejects.toThrow('copy of a damaged segment');
  });

  test('refuses a journal older than the retention of usage records', async () => {
    const world = await openJournalWorld();
    const name = await leaveAside(world);
    const segment = join(world.path, 'aside', name, '0000000000000001.segment');
    const days = (count: number) => Date.now() / 1_000 - count * 86_400;
    await utimes(segment, days(401), days(401));
    const apply = () => restoreFromAside(world.path, name, { generation: 'gen-2', usageDays: 400 });
    await expect(apply()).rejects.toThrow('older than usage records are kept (400 days)');
    await utimes(segment, days(399), days(399));
    await apply();
    expect(await listAside(world.path)).toEqual([]);
  });

  test('refuses a name outside the folder', async () => {
    const world = await openJournalWorld();
    await leaveAside(world);
    await expect(restoreFromAside(world.path, '..', { generation: 'gen-2', usageDays: 400 })).rejects.toThrow(
      'No journal named',
    );
  });
});

describe('discardAside', () => {
  test('deletes the journal', async () => {
    const world = await openJournalWorld();
    const name = await leaveAside(world);
    await discardAside(world.path, name);
    expect(await listAside(world.path)).toEqual([]);
  });

  test('refuses an unknown name', async () => {
    const world = await openJournalWorld();
    await expect(discardAside(world.path, 'gwy_x')).rejects.toThrow('No journal named');
  });
});
