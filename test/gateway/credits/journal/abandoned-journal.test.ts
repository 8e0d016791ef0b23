// Journals of processes that have ended: who may lock one, which charges it has, and what happens
// when its bytes are damaged.
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { Journal, JournalLine } from '../../../../src/gateway/credits/journal/journal.ts';
import { failingFiles, ioError } from './failing-files.ts';
import {
  checkpointLine,
  finalLine,
  type JournalWorld,
  openJournalWorld,
  readCharges,
  sampleCall,
  sentLine,
} from './world.ts';

/** Leaves a closed journal with these lines, each of which was synced before the next. */
async function leaveJournal(world: JournalWorld, lines: readonly JournalLine[]): Promise<Journal> {
  const journal = await world.open();
  for (const line of lines) await journal.sync(journal.append(line));
  await journal.close();
  return journal;
}

async function findOnlySegment(world: JournalWorld, journal: Journal): Promise<string> {
  const [name, ...otherNames] = await world.segments(journal);
  if (name === undefined || otherNames.length > 0) throw new Error('Expected exactly one segment.');
  return join(world.path, journal.journalId, name);
}

const threeCalls = [finalLine('a'), finalLine('b'), finalLine('c')];

describe('takeAbandoned', () => {
  test('leaves a journal in use alone', async () => {
    const world = await openJournalWorld();
    const journal = await world.open();
    expect(await world.directory().takeAbandoned()).toEqual([]);
    await journal.sync(journal.append(finalLine('a')));
    expect(await readCharges(journal)).toHaveLength(1);
    await journal.close();
  });

  test('gives a journal to only one of two concurrent callers', async () => {
    const world = await openJournalWorld();
    await leaveJournal(world, threeCalls);
    const journals = await Promise.all([
      world.directory().takeAbandoned(),
      world.directory().takeAbandoned(),
    ]);
    expect(journals.flat()).toHaveLength(1);
    journals.flat()[0]?.unlock();
    expect(await world.directory().takeAbandoned()).toHaveLength(1);
  });

  test('returns the journal with its id and generation', async () => {
    const world = await openJournalWorld();
    const { journalId } = await leaveJournal(world, threeCalls);
    expect(await world.take()).toMatchObject({ journalId, generation: 'gen-1' });
  });

  test('removes an incomplete folder', async () => {
    const world = await openJournalWorld();
    const { journalId } = await leaveJournal(world, threeCalls);
    const folder = join(world.path, journalId);
    for (const name of await readdir(folder)) await rm(join(folder, name));
    expect(await world.directory().takeAbandoned()).toEqual([]);
    expect(await readdir(world.path)).toEqual([]);
  });

  test('puts a journal aside that names no ledger', async () => {
    const world = await openJournalWorld();
    const { journalId } = await leaveJournal(world, threeCalls);
    await writeFile(join(world.path, journalId, 'journal.json'), '');
    expect(await world.directory().takeAbandoned()).toEqual([]);
    expect(await readdir(join(world.path, 'aside'))).toEqual([journalId]);
    expect(world.alarms).toHaveLength(1);
  });
});

describe('charges', () => {
  test('yields final lines with their numbers', async () => {
    const world = await openJournalWorld();
    await leaveJournal(world, [sentLine('a'), finalLine('a', 7n), finalLine('b', 8n)]);
    const journal = await world.take();
    expect(await readCharges(journal)).toEqual([
      { seq: 2, ...withoutKind(finalLine('a', 7n)) },
      { seq: 3, ...withoutKind(finalLine('b', 8n)) },
    ]);
    expect(await readCharges(journal, 2)).toMatchObject([{ seq: 3 }]);
  });

  test('charges a call without a final line by its input estimate', async () => {
    const world = await openJournalWorld();
    await leaveJournal(world, [sentLine('a', 5n)]);
    expect(await readCharges(await world.take())).toMatchObject([
      {
        seq: 2,
        usageId: 'a',
        call: sampleCall,
        allotmentId: 'alt_1',
        credits: 5n,
        facts: { outcome: 'upstream_failed', estimated: true, action: 'text', tokens: { input: 0 } },
      },
    ]);
  });

  test('charges a call without a final line by its last checkpoint', async () => {
    const world = await openJournalWorld();
    await leaveJournal(world, [sentLine('a', 5n), checkpointLine('a', 9n), checkpointLine('a', 12n)]);
    expect(await readCharges(await world.take())).toMatchObject([
      { credits: 12n, facts: { durationMs: 7, outcome: 'upstream_failed' } },
    ]);
  });

  test('closes a call once', async () => {
    const world = await openJournalWorld();
    await leaveJournal(world, [sentLine('a', 5n)]);
    const firstJournal = await world.take();
    const charges = await readCharges(firstJournal);
    expect(await readCharges(firstJournal)).toEqual(charges);
    firstJournal.unlock();
    expect(await readCharges(await world.take())).toEqual(charges);
  });

  test('numbers an estimate above what the database has applied', async () => {
    const world = await openJournalWorld();
    await leaveJournal(world, [finalLine('a'), sentLine('b', 5n)]);
    const journal = await world.take();
    expect(await readCharges(journal, 40)).toMatchObject([{ seq: 41, usageId: 'b' }]);
    expect(await readCharges(journal, 40)).toMatchObject([{ seq: 41, usageId: 'b' }]);
    expect(world.alarms).toEqual([]);
  });

  test('ignores a last line torn at any byte', async () => {
    const world = await openJournalWorld();
    const journal = await leaveJournal(world, threeCalls);
    const path = await findOnlySegment(world, journal);
    const bytes = await readFile(path);
    const start = bytes.lastIndexOf(10, bytes.length - 2) + 1;
    for (let length = start; length < bytes.length; length += 1) {
      await writeFile(path, Buffer.concat([bytes.subarray(0, length), Buffer.alloc(bytes.length - length)]));
      const rereadJournal = await world.take();
      expect(await readCharges(rereadJournal), `${length} bytes`).toMatchObject([{ seq: 1 }, { seq: 2 }]);
      rereadJournal.unlock();
    }
    expect(world.alarms).toEqual([]);
  });

  test('charges a call whose torn end is followed by its estimate', async () => {
    const world = await openJournalWorld();
    const journal = await leaveJournal(world, [finalLine('a'), sentLine('b', 5n), finalLine('b', 9n)]);
    const path = await findOnlySegment(world, journal);
    const bytes = await readFile(path);
    await writeFile(path, bytes.subarray(0, bytes.length - 3));
    const expected = [
      { seq: 1, usageId: 'a' },
      { seq: 3, usageId: 'b', credits: 5n },
    ];
    const abandonedJournal = await world.take();
    expect(await readCharges(abandonedJournal)).toMatchObject(expected);
    abandonedJournal.unlock();
    expect(await readCharges(await world.take())).toMatchObject(expected);
    expect(world.alarms).toEqual([]);
  });

  test('reads lines after a torn page without an alarm', async () => {
    const world = await openJournalWorld();
    const journal = await world.open();
    await journal.sync(journal.append(finalLine('a')));
    // No line says that `b` is on disk: `c` is written together with it. So its loss is no damage.
    for (const usageId of ['b', 'c']) journal.append(finalLine(usageId));
    await journal.close();
    const path = await findOnlySegment(world, journal);
    const bytes = await readFile(path);
    const secondAt = bytes.indexOf(10) + 1;
    bytes.fill(0, secondAt, secondAt + 30);
    await writeFile(path, bytes);
    expect(await readCharges(await world.take())).toMatchObject([{ seq: 1 }, { seq: 3 }]);
    expect(world.alarms).toEqual([]);
  });
});

describe('a flipped byte in the middle', () => {
  async function damageJournal(world: JournalWorld): Promise<Journal> {
    const journal = await leaveJournal(world, threeCalls);
    const path = await findOnlySegment(world, journal);
    const bytes = await readFile(path);
    const position = bytes.indexOf(10) + 100;
    bytes[position] = (bytes[position] ?? 0) ^ 4;
    await writeFile(path, bytes);
    return journal;
  }

  test('damages only its own line', async () => {
    const world = await openJournalWorld();
    await damageJournal(world);
    expect(await readCharges(await world.take())).toMatchObject([{ seq: 1 }, { seq: 3 }]);
  });

  test('copies the segment aside with one alarm', async () => {
    const world = await openJournalWorld();
    const { journalId } = await damageJournal(world);
    const journal = await world.take();
    await readCharges(journal);
    await readCharges(journal);
    expect(await readdir(join(world.path, 'aside', `${journalId}-1`))).toContain('0000000000000001.segment');
    expect(world.alarms).toHaveLength(1);
  });

  test('copies the segment although a crash left an empty folder for it', async () => {
    const world = await openJournalWorld();
    const { journalId } = await damageJournal(world);
    const copy = join(world.path, 'aside', `${journalId}-1`);
    await mkdir(copy, { recursive: true });
    await readCharges(await world.take());
    expect(await readdir(copy)).toContain('0000000000000001.segment');
    expect(world.alarms).toHaveLength(1);
  });
});

describe('a failed segment and its replacement', () => {
  /** Leaves a segment with the lines 1 to 4, whose sync failed after line 1, and another with 2 to 4. */
  async function leaveReplacement(world: JournalWorld): Promise<string[]> {
    const { files, errors } = failingFiles();
    const journal = await world.open({ files });
    await journal.sync(journal.append(finalLine('a')));
    Object.assign(errors, { datasync: ioError, onlyFile: 1 });
    await Promise.all(['b', 'c', 'd'].map((usageId) => journal.sync(journal.append(finalLine(usageId)))));
    await journal.close();
    world.alarms.length = 0;
    return (await world.segments(journal)).map((name) => join(world.path, journal.journalId, name));
  }

  /** Loses a line of a segment, as a power loss loses a page that was not synced. */
  async function loseLine(path: string, lineIndex: number): Promise<void> {
    const bytes = await readFile(path);
    let at = 0;
    for (let line = 0; line < lineIndex; line += 1) at = bytes.indexOf(10, at) + 1;
    bytes.fill(0, at, at + 30);
    await writeFile(path, bytes);
  }

  test.each([
    ['the failed one', 0, 1],
    ['the replacement', 1, 1],
  ])('yield all lines in order when %s lost one', async (_name, segmentIndex, lineIndex) => {
    const world = await openJournalWorld();
    const paths = await leaveReplacement(world);
    expect(paths).toHaveLength(2);
    await loseLine(paths[segmentIndex] ?? '', lineIndex);
    const charges = await readCharges(await world.take());
    expect(charges.map(({ seq, usageId }) => `${seq} ${usageId}`)).toEqual(['1 a', '2 b', '3 c', '4 d']);
    expect(world.alarms).toEqual([]);
  });

  test('are damaged when both lost the same line', async () => {
    const world = await openJournalWorld();
    const [failedSegment = '', replacement = ''] = await leaveReplacement(world);
    await loseLine(failedSegment, 1);
    await loseLine(replacement, 0);
    expect(await readCharges(await world.take())).toMatchObject([{ seq: 1 }, { seq: 3 }, { seq: 4 }]);
  });
});

describe('remove', () => {
  test('keeps the folder for ten minutes', async () => {
    const world = await openJournalWorld();
    const { journalId } = await leaveJournal(world, threeCalls);
    await (await world.take()).remove();
    world.clock.advance(10 * 60_000 - 1);
    const retakenJournal = await world.take();
    expect(await readCharges(retakenJournal)).toHaveLength(3);
    await retakenJournal.remove();
    expect(await readdir(world.path)).toContain(journalId);
    world.clock.advance(1);
    await (await world.take()).remove();
    expect(await readdir(world.path)).toEqual([]);
  });
});

describe('unlock', () => {
  test('has no effect after remove', async () => {
    const world = await openJournalWorld();
    await leaveJournal(world, threeCalls);
    const journal = await world.take();
    await journal.remove();
    expect(() => journal.unlock()).not.toThrow();
  });
});

describe('putAside', () => {
  test('hides the journal from takeAbandoned', async () => {
    const world = await openJournalWorld();
    const { journalId } = await leaveJournal(world, threeCalls);
    await (await world.take()).putAside('other_generation');
    expect(await world.directory().takeAbandoned()).toEqual([]);
    expect(await readdir(join(world.path, 'aside'))).toEqual([journalId]);
  });
});

function withoutKind(line: JournalLine): object {
  const { kind: _kind, ...lineWithoutKind } = line;
  return lineWithoutKind;
}
